"""Statuses of thousands of objects: compared in many turns, computed again when they are written, and not kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from scheduler.daemon.app.object_statuses import ObjectStatuses
from scheduler.framework import Acceptance, StatusSource, WantedStatus
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Mapping

N_OBJECTS = 500


class Fields(dict[str, Any]):
    """The fields of a status, with weak references; a tuple, such as a WantedStatus, has none."""


class Source(StatusSource):
    """Statuses that say whether an object is even."""

    kind = "scheduling.x-k8s.io/v1alpha1/elasticquotas"
    object_kind = "ElasticQuota"
    condition_types = frozenset({"Accepted"})

    def __init__(self) -> None:
        self.turn, self.computed_in = 0, Counter[int]()
        self.seconds = 0.0
        self.times: list[float] = []
        self._computed: list[ref[Fields]] = []

    def count_kept(self) -> int:
        """Return how many of the computed statuses are kept."""
        self._computed = [each for each in self._computed if each() is not None]
        return len(self._computed)

    async def status_of(self, _objects: object) -> Any:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.seconds)
        return self._status_of

    def _status_of(self, key: str, _obj: object) -> WantedStatus:
        self.computed_in[self.turn] += 1
        if self.computed_in[self.turn] == 1:
            asyncio.get_running_loop().call_soon(self._next_turn)
        verdict = Acceptance("Valid" if int(key[-1]) % 2 == 0 else "Ignored", f"message of {key}")
        fields = Fields(used={"cpu": key})
        self._computed.append(ref(fields))
        return WantedStatus(fields, (verdict.condition(),))

    def _next_turn(self) -> None:
        self.turn += 1


class Cluster:
    """Objects, and an API server that writes their statuses."""

    def __init__(self, number: int = N_OBJECTS) -> None:
        self.source = Source()
        self.objects = {f"a/q{place}": made(place) for place in range(number)}
        self.writes: list[str] = []
        self.kept_statuses: list[int] = []
        self.is_leader = True
        parts: Any = SimpleNamespace(
            clock=LoopClock(),
            cache=SimpleNamespace(table=SimpleNamespace(watch_kind=lambda _kind: self.objects)),
        )
        recorder: Any = SimpleNamespace(record=lambda *_args, **_fields: None)
        self.statuses = ObjectStatuses(
            self.source, parts, writes=self, is_leading=lambda: self.is_leader, recorder=recorder
        )

    async def write_status(
        self, kind: str, key: str, uid: str, wanted: WantedStatus, **_options: object
    ) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        self.kept_statuses.append(self.source.count_kept())
        self.writes.append(key)
        obj, status = self.objects[key], wanted.status()
        version = str(int(obj["metadata"]["resourceVersion"]) + 1000)
        self.objects[key] = {
            **obj,
            "metadata": {**obj["metadata"], "resourceVersion": version},
            "status": status,
        }
        return self.objects[key]

    async def run(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.statuses.run(), seconds)


def made(place: int) -> Mapping[str, Any]:
    return {
        "metadata": {"name": f"q{place}", "namespace": "a", "uid": f"u{place}", "resourceVersion": str(place)}
    }


async def test_statuses_of_many_objects_are_compared_in_many_turns() -> None:
    cluster = Cluster()
    await cluster.run(0.5)
    assert max(cluster.source.computed_in.values()) <= 64
    assert cluster.source.computed_in.total() >= N_OBJECTS


@pytest.mark.parametrize(("seconds", "wait"), [(0.0, 1.0), (0.2, 20.0), (12.0, 60.0)])
async def test_comparisons_that_take_long_are_made_less_often_and_at_least_once_a_minute(
    seconds: float, wait: float
) -> None:
    cluster = Cluster(1)
    cluster.source.seconds = seconds
    await cluster.run(200)
    first, second, *_ = cluster.source.times[1:]
    assert second - first == pytest.approx(seconds + wait, abs=1.0)


async def test_a_status_is_kept_no_longer_than_it_is_written() -> None:
    cluster = Cluster()
    await cluster.run(0.5)
    assert len(cluster.writes) == 50
    assert max(cluster.kept_statuses) == 1


async def test_each_status_is_written_once_and_again_when_another_client_changed_it() -> None:
    cluster = Cluster(60)
    await cluster.run(30)
    assert sorted(cluster.writes) == sorted(cluster.objects)

    cluster.writes.clear()
    obj = cluster.objects["a/q7"]
    metadata = {**obj["metadata"], "resourceVersion": "9999"}
    cluster.objects["a/q7"] = {**obj, "metadata": metadata, "status": {"used": {"cpu": "wrong"}}}
    await cluster.run(20)
    assert cluster.writes == []
    await cluster.run(60)
    assert cluster.writes == ["a/q7"]
