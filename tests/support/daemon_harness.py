"""The daemon and the simulated API server in one process and one loop with virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from plugins.registry import IN_TREE
from scheduler.configuration.load import default, parse
from scheduler.configuration.overrides import with_leader_election
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.endpoint import Endpoint
from scheduler.tools.simulator.server import ApiServer
from tests.support.daemon_accounts import Account, GrantedDaemon, token_users
from tests.support.virtual_time import LoopClock, next_poll

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.app.ports import Ports
    from scheduler.daemon.app.rights import Named
    from scheduler.framework import Plugin


class GarblingConnection(ApiConnection):
    """A connection on which a text arrives as another: what no API server would send, and a bug might.

    Attributes:
        garbled: sent -> received.
    """

    garbled: Mapping[bytes, bytes] = {}

    async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[list[bytes], None]:
        async for lines in super().stream(*args, **options):
            yield [self._garble(line) for line in lines]

    def _garble(self, text: bytes) -> bytes:
        for sent, received in self.garbled.items():
            text = text.replace(sent, received)
        return text


class Cluster:
    """A running server, and the daemons against it.

    Attributes:
        server: its `store`, `faults` and `requests` are for the tests.
        garbled: what arrives at daemons as something else: sent -> received.
    """

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.garbled: dict[bytes, bytes] = {}
        self._accounts = 0

    async def define(self, *definitions: dict[str, Any]) -> None:
        """Create CustomResourceDefinitions, and wait until their kinds are served."""
        for definition in definitions:
            self.server.store.create("customresourcedefinitions.apiextensions.k8s.io", definition)
        await asyncio.sleep(0.1)

    @asynccontextmanager
    async def daemon(
        self,
        configuration: str = "",
        *,
        plugins: Mapping[str, type[Plugin]] | None = None,
        seed: int = 1,
        leader_elect: bool = False,
        no_bind: bool = False,
        config_map: Named | None = None,
        scheduler_profiles: bool = False,
        ports: Ports | None = None,
    ) -> AsyncIterator[Daemon]:
        """Run a daemon that has the rights its configuration takes; it is stopped in good order at the end.

        Args:
            configuration: YAML; the defaults if empty.
            plugins: in-tree plugins beside the real ones.
            seed: of ties and retries.
            leader_elect: whether it waits for the lease.
            no_bind: whether it writes nothing.
            config_map: that it may follow.
            scheduler_profiles: whether it may follow SchedulerProfiles.
            ports: the connections of the engine.
        """
        account = self.account()
        async with GarblingConnection(self.endpoint, authorization=account) as connection:
            connection.garbled = self.garbled
            parsed = parse(configuration) if configuration else default()
            daemon = GrantedDaemon(
                connection,
                with_leader_election(parsed, leader_elect=leader_elect),
                clock=LoopClock(),
                random=Random(seed),
                in_tree={**IN_TREE, **(plugins or {})},
                no_bind=no_bind,
                account=account,
                config_map=config_map,
                scheduler_profiles=scheduler_profiles,
                ports=ports,
            )
            stop = asyncio.Event()
            running = asyncio.create_task(daemon.run(stop))
            try:
                yield daemon
            finally:
                stop.set()
                await running
                account.settle()

    def account(self) -> Account:
        """Return an account that no other daemon has."""
        self._accounts += 1
        return Account(self.server, self._accounts - 1)

    @property
    def endpoint(self) -> Endpoint:
        assert self.server.socket_path is not None
        return Endpoint("http://localhost", unix_socket=self.server.socket_path)

    def add_nodes(self, *nodes: Mapping[str, Any]) -> None:
        for node in nodes:
            self.server.store.create("nodes", dict(node))

    def add_pods(self, *pods: Mapping[str, Any]) -> None:
        """Create pods; a priority gets a class of its own, as the API server wants it."""
        for pod in pods:
            priority = pod["spec"].get("priority", 0)
            spec = (
                {**pod["spec"], "priorityClassName": self.priority_class(priority)}
                if priority
                else pod["spec"]
            )
            self.server.store.create("pods", {**pod, "spec": spec})

    def priority_class(self, value: int) -> str:
        """Return the name of a class with this value; create it if there is none."""
        name, kind = f"priority-{value}", "priorityclasses.scheduling.k8s.io"
        if name not in {known["metadata"]["name"] for known in self.server.store.list(kind)}:
            self.server.store.create(kind, {"metadata": {"name": name}, "value": value})
        return name

    def label_pod(self, name: str, **labels: str) -> None:
        """Change a pod's labels, so that its watchers hear of it."""
        self.server.store.patch("pods", name, {"metadata": {"labels": labels}})

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.server.store.get("pods", name, namespace)

    def pods(self) -> list[dict[str, Any]]:
        return self.server.store.list("pods")

    def node_of(self, name: str) -> str:
        """The node a pod is on; "" if it is on none."""
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def condition(self, name: str, type_: str = "PodScheduled") -> dict[str, Any]:
        """One condition of a pod; empty if it has none."""
        conditions = self.pod(name).get("status", {}).get("conditions", ())
        return next((each for each in conditions if each["type"] == type_), {})

    def notes(self, name: str, reason: str) -> list[str]:
        """The notes of a pod's events of one reason, oldest first."""
        events = self.server.store.list("events.events.k8s.io")
        return [
            event["note"]
            for event in events
            if event["regarding"]["name"] == name and event["reason"] == reason
        ]

    async def until(self, holds: Callable[[], object], *, seconds: float = 60.0) -> None:
        """Wait until something holds.

        Raises:
            AssertionError: it does not within so many seconds of virtual time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not holds():
            assert loop.time() < deadline, f"it does not hold after {seconds} s: {holds}"
            await next_poll(0.01, deadline)


@asynccontextmanager
async def cluster(folder: Path, **options: Any) -> AsyncIterator[Cluster]:
    """Run a server with RBAC on a Unix socket in `folder`; options are ApiServer's."""
    path, users = folder / "api.sock", token_users()
    async with ApiServer(clock=LoopClock(), socket_path=path, rbac=True, users=users, **options) as server:
        yield Cluster(server)
