from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.reflector import Reflector
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.endpoint import Endpoint
from scheduler.objects.decode import decode_pod
from scheduler.tools.simulator.faults import requests
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import pod_object
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.errors import ObjectError
    from scheduler.kube.client.wire import ObjectIdentity
    from scheduler.objects.pod import PodInfo


class Believer:
    """Knows what it was told, and writes down whatever was told twice or out of order.

    It does not raise: a store logs what a handler raises and goes on.
    """

    def __init__(self) -> None:
        self.pods: dict[str, str] = {}  # uid -> resourceVersion
        self.told = 0
        self.contradictions: list[str] = []

    def on_add(self, new: PodInfo) -> None:
        self._expect(new.uid not in self.pods, f"added again: {new.key}")
        self.pods[new.uid] = new.resource_version

    def on_update(self, old: PodInfo, new: PodInfo) -> None:
        self._expect(old.uid == new.uid, f"another pod as update: {new.key}")
        self._expect(self.pods.get(old.uid) == old.resource_version, f"from a version never told: {new.key}")
        newer = int(new.resource_version) > int(old.resource_version)  # numbers, at this server
        self._expect(newer, f"an update that is no newer: {new.key}")
        self.pods[new.uid] = new.resource_version

    def on_delete(self, old: PodInfo) -> None:
        known = self.pods.pop(old.uid, None)
        self._expect(known == old.resource_version, f"deleted what was not there: {old.key}")

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        self._expect(False, f"unreadable: {error}")

    def _expect(self, holds: bool, otherwise: str) -> None:
        self.told += 1
        if not holds:
            self.contradictions.append(otherwise)


class Story:
    def __init__(self, server: ApiServer, reflector: Reflector[PodInfo], believer: Believer) -> None:
        self.server = server
        self.reflector = reflector
        self.believer = believer

    def create(self, name: str) -> None:
        pod = pod_object(name)
        pod["metadata"].pop("uid", None)
        self.server.store.create("pods", pod)

    def delete(self, name: str) -> None:
        self.server.store.delete("pods", name, grace_period_seconds=0)

    def touch(self, name: str, value: int) -> None:
        self.server.store.patch("pods", name, {"metadata": {"labels": {"touched": str(value)}}})

    @property
    def there(self) -> dict[str, str]:
        """uid -> resourceVersion, as the server has it."""
        return {
            pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"]
            for pod in self.server.store.list("pods")
        }

    def check(self) -> None:
        assert self.believer.contradictions == []
        assert self.believer.pods == self.there
        assert {pod.uid: pod.resource_version for pod in self.reflector.store.values()} == self.there


@asynccontextmanager
async def story(seed: int = 7) -> AsyncIterator[Story]:
    believer = Believer()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "s")
        async with (
            ApiServer(clock=LoopClock(), socket_path=path) as server,
            ApiConnection(Endpoint(server.url, unix_socket=path)) as connection,
        ):
            reflector = Reflector(connection, PODS, decode=decode_pod, handler=believer, random=Random(seed))
            running = asyncio.create_task(reflector.run())
            try:
                yield Story(server, reflector, believer)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


async def test_objects_created_before_and_after_the_list_are_in_the_store():
    async with story() as at:
        at.create("before")
        await at.reflector.wait_synced()
        at.create("after")
        at.touch("before", 1)
        await asyncio.sleep(1.0)

        assert set(at.reflector.store) == {"default/before", "default/after"}
        at.check()


async def test_an_hour_of_quiet_watching_needs_no_list():
    async with story() as at:
        at.create("a")
        await asyncio.sleep(3600.0)
        at.touch("a", 1)
        await asyncio.sleep(1.0)

        at.check()
        reads = at.server.requests.matching(method="GET", path="/pods")
        assert sum("sendInitialEvents" in each.query for each in reads) == 1
        assert 6 <= len(reads) <= 13


async def test_changes_during_lost_history_are_found_by_a_list():
    async with story() as at:
        for name in ("gone", "changed", "same", "replaced"):
            at.create(name)
        await at.reflector.wait_synced()
        refusal = at.server.faults.refuse(503, requests(verb="watch"))
        at.server.faults.drop_watches()
        at.delete("gone")
        at.touch("changed", 1)
        at.delete("replaced")
        at.create("replaced")
        at.create("new")
        at.server.faults.compact("pods")
        await asyncio.sleep(5.0)
        at.server.faults.remove(refusal)
        await asyncio.sleep(60.0)

        assert set(at.reflector.store) == {
            f"default/{name}" for name in ("changed", "same", "replaced", "new")
        }
        at.check()


async def test_a_stalled_watch_is_replaced():
    async with story() as at:
        at.create("a")
        await at.reflector.wait_synced()
        fault = at.server.faults.stall_watches()
        at.touch("a", 1)
        await asyncio.sleep(100.0)
        assert at.believer.pods != at.there
        at.server.faults._faults.remove(fault)  # new watches work, the old one stays silent
        await asyncio.sleep(100.0)

        at.check()


@pytest.mark.parametrize("seed", range(8))
async def test_after_any_fault_the_store_is_right_and_no_event_is_repeated(seed: int):
    random = Random(seed)
    async with story(seed) as at:
        faults = at.server.faults
        names = [f"p{n}" for n in range(12)]
        for step in range(250):
            name = random.choice(names)
            if at.server.store.find("pods", name) is None:
                at.create(name)
            elif random.random() < 0.4:
                at.delete(name)
            else:
                at.touch(name, step)
            chance = random.random()
            if chance < 0.05:
                faults.drop_watches()
            elif chance < 0.08:
                faults.compact("pods")
            elif chance < 0.11:
                faults.refuse(random.choice([429, 500, 503]), requests(resource="pods"), times=3)
            elif chance < 0.13:
                faults.stall_watches()
            elif chance < 0.16:
                faults.clear()
            await asyncio.sleep(random.choice([0.0, 0.01, 1.0, 20.0]))
        faults.clear()
        faults.drop_watches()
        await asyncio.sleep(300.0)

        at.check()
        # Guards the campaign itself: much was told, and more than one list was needed.
        assert at.believer.told > 100
        assert at.reflector.has_synced
        reads = at.server.requests.matching(method="GET", path="/pods")
        assert sum("sendInitialEvents" in each.query for each in reads) > 1
