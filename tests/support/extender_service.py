"""Our plugins as an extender, against the simulated API server of a test, over real HTTP."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from plugins.registry import IN_TREE
from scheduler.configuration.load import parse
from scheduler.daemon.app.extender.pages import extender_application
from scheduler.daemon.app.extender.service import ExtenderService
from scheduler.daemon.app.needs import needs_of
from scheduler.daemon.app.rights import rights_of_needs
from scheduler.daemon.server.http_server import serving
from scheduler.kube.client.connection import ApiConnection
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from scheduler.daemon.app.rights import Right
    from scheduler.daemon.server.extender import Callers
    from scheduler.framework import Plugin
    from tests.support.daemon_harness import Cluster


class Asked:
    """A service, and who asks it.

    Attributes:
        service: who answers.
        url: where.
        stop: ends its readiness.
    """

    def __init__(
        self, service: ExtenderService, url: str, stop: asyncio.Event, session: aiohttp.ClientSession
    ) -> None:
        self.service = service
        self.url = url
        self.stop = stop
        self._session = session

    async def post(self, verb: str, said: Any) -> Any:
        """Ask, and return the decoded answer; bytes and files are sent as they are."""
        return msgspec.json.decode((await self.answer("POST", verb, said))[1])

    async def answer(self, method: str, path: str, said: Any = b"") -> tuple[int, str]:
        """Ask, and return the status and the text."""
        body = said if isinstance(said, bytes | io.IOBase) else msgspec.json.encode(said)
        async with self._session.request(method, f"{self.url}/{path}", data=body) as response:
            return response.status, await response.text()

    async def passes(self, pod: Mapping[str, Any], *names: str) -> list[str]:
        """Return the nodes that `filter` leaves.

        Raises:
            AssertionError: it could not answer.
        """
        answer = await self.post("filter", {"Pod": pod, "NodeNames": names})
        assert not answer["Error"], answer["Error"]
        found: list[str] = answer["NodeNames"]
        return found

    async def bind(self, pod: Mapping[str, Any], node: str) -> str:
        """Have a pod bound, and return the error; "" if it is."""
        metadata = pod["metadata"]
        said = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        error: str = (await self.post("bind", said))["Error"]
        return error


@asynccontextmanager
async def extender_service(
    cluster: Cluster,
    configuration: str,
    *,
    plugins: Mapping[str, type[Plugin]] | None = None,
    profile: str = "",
    waits: bool = True,
    binds: bool = True,
    callers: Callers | None = None,
) -> AsyncIterator[Asked]:
    """Serve on loopback.

    Args:
        cluster: what is watched.
        configuration: YAML.
        plugins: in-tree plugins beside the real ones.
        profile: that judges all pods.
        waits: until everything is read.
        binds: whether pods are bound.
        callers: who is answered; who asks here brings the token `secret`.
    """
    stop = asyncio.Event()
    account = cluster.account()
    async with ApiConnection(cluster.endpoint, authorization=account) as connection:
        service = ExtenderService(
            connection,
            parse(configuration),
            profile=profile,
            clock=LoopClock(),
            random=Random(1),
            in_tree={**IN_TREE, **(plugins or {})},
        )
        account.grant(dict.fromkeys(_rights(service, binds=binds), "the extender"))
        app = extender_application(service, stop, binds=binds, callers=callers)
        async with (
            service.running(),
            serving(app, "127.0.0.1", 0) as port,
            aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session,
        ):
            asked = Asked(service, f"http://127.0.0.1:{port}", stop, session)
            if waits:
                await cluster.until(lambda: service.has_synced)
            yield asked
    account.settle()


def _rights(service: ExtenderService, *, binds: bool) -> set[Right]:
    """Return what docs/extender.md says that it takes."""
    needs = needs_of(service.frameworks.values())
    every = {"list v1/nodes", "watch v1/nodes", "list v1/pods", "watch v1/pods"}
    events = {f"{verb} events.k8s.io/v1/events" for verb in ("create", "patch")}
    binding = {"get v1/pods", *needs.rights} if binds else set()
    return rights_of_needs(replace(needs, rights=frozenset(every | events | binding)))
