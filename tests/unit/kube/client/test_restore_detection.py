from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.reflector import ObjectChange, has_happened, is_too_old, is_yet_to_come
from scheduler.kube.client.resources import NODES, PODS, Resource
from scheduler.kube.http.endpoint import Endpoint
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SELECTORS = {"fieldSelector": "status.phase!=Failed"}


class Case:
    def __init__(self, server: ApiServer, connection: ApiConnection) -> None:
        self.server, self.store = server, server.store
        self._connection = connection

    def add(self, name: str) -> ObjectChange:
        return _change(self.store.create("pods", pod_object(name, cpu="1")))

    def remove(self, name: str) -> ObjectChange:
        gone = _change(self.store.delete("pods", name, grace_period_seconds=0))
        return gone._replace(version=self.store.version, is_deletion=True)

    async def go_back(self, backup: object) -> None:
        await self.server.stop()
        self.server.restore(backup)  # type: ignore[arg-type]
        await self.server.start()

    async def knows(self, change: ObjectChange, resource: Resource = PODS) -> bool:
        return await has_happened(self._connection, resource, SELECTORS if resource is PODS else {}, change)


def _change(obj: dict[str, dict[str, str]]) -> ObjectChange:
    metadata = obj["metadata"]
    key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    return ObjectChange(int(metadata["resourceVersion"]), key, metadata["uid"])


@asynccontextmanager
async def case(folder: Path) -> AsyncIterator[Case]:
    path = folder / "s"
    async with (
        ApiServer(clock=LoopClock(), socket_path=path) as server,
        ApiConnection(Endpoint(server.url, unix_socket=path)) as connection,
    ):
        yield Case(server, connection)


async def test_an_object_that_the_server_has_is_known_after_later_changes(tmp_path: Path):
    async with case(tmp_path) as at:
        node = _change(at.store.create("nodes", node_object("n", cpu="1")))
        added = at.add("a")
        failed = _change(at.store.patch("pods", "a", {"status": {"phase": "Failed"}}, subresource="status"))
        at.add("b")
        removed = at.remove("b")

        assert await at.knows(node, NODES)
        assert await at.knows(added)
        assert await at.knows(failed._replace(is_deletion=True)), "to whom does not see ended pods, it went"
        assert await at.knows(removed)


async def test_a_lost_change_is_unknown_though_its_version_exists_again(tmp_path: Path):
    async with case(tmp_path) as at:
        kept = at.add("kept")
        at.add("gone")
        backup = at.server.backup()
        lost = [at.add("lost"), at.remove("gone")]
        await at.go_back(backup)
        for change in lost:
            with pytest.raises(ApiError) as raised:
                await at.knows(change)
            assert is_yet_to_come(raised.value)
            assert not is_too_old(raised.value)
        at.add("x")
        at.add("y")
        at.remove("gone")

        assert [await at.knows(change) for change in lost] == [False, False]
        assert await at.knows(kept)


async def test_only_the_same_pod_bound_at_the_same_version_is_ambiguous(tmp_path: Path):
    async with case(tmp_path) as at:
        backup = at.server.backup()
        lost = at.add("a")
        await at.go_back(backup)
        again = at.add("a")

        assert again.version == lost.version
        assert not await at.knows(lost), "another uid"


async def test_a_compacted_change_is_an_error(tmp_path: Path):
    async with case(tmp_path) as at:
        added = at.add("a")
        at.add("b")
        at.server.faults.compact()

        with pytest.raises(ApiError) as raised:
            await at.knows(added)
        assert is_too_old(raised.value)
