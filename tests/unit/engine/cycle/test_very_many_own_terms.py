"""The affinity terms of a pending pod with very many terms are counted in steps, while other pods are placed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from plugins.inter_pod_affinity.plugin import InterPodAffinity
from scheduler.engine.cycle.time_slices import SLICE_SECONDS
from scheduler.engine.queue import Place
from scheduler.engine.runtime.budget import LoopBudget
from scheduler.snapshot.pod_tally import PodTally
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.virtual_time import LoopClock
from tests.unit.engine.cycle.cluster import Cluster
from tests.unit.plugins.inter_pod_affinity.test_very_many_own_terms import TermKind, pending
from tests.unit.snapshot.test_many_affinity_terms import SHAPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.snapshot.pod_counts import Alike

LOOK_UP_SECONDS = 0.001


class Slices:
    """Implements `TimeSlice` in virtual time."""

    slice_seconds = SLICE_SECONDS

    def __init__(self) -> None:
        self.seconds = LoopClock().monotonic

    def measured(self, is_so: bool, what: str = "") -> bool:
        return is_so


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let each lookup of a class hold the event loop for a while; return the namespaces of the looked-up classes."""
    namespaces: list[str] = []
    asked = PodTally._asked

    def slowly(tally: PodTally, each: Alike, labels: Mapping[str, str]) -> Any:
        asyncio.get_running_loop()._now += LOOK_UP_SECONDS  # type: ignore[attr-defined]
        namespaces.append(each.namespace)
        return asked(tally, each, labels)

    monkeypatch.setattr(PodTally, "_asked", slowly)
    return namespaces


async def test_innocent_pods_are_bound_while_one_with_very_many_terms_is_counted(
    looked_up: list[str],
) -> None:
    now = LoopClock().monotonic
    cluster = Cluster(
        InterPodAffinity(args=InterPodAffinity.Args(), time_slice=Slices(), features=FakeFeatures()),
        budget=LoopBudget(now, used=now),
    )
    for name in ("n2", "n3"):
        cluster.nodes.on_add(node(name, labels={"host": name}))
    for place in range(2000):
        cluster.api.create(pod(f"bound-{place}", labels={"app": f"app-{place}"}, node_name="n2"))
    shape = SHAPES["another value of a popular key"]
    evil = pending((TermKind.PREFERRED_AFFINITY, [shape(f"app-{place}") for place in range(100)]))
    async with cluster.running():
        cluster.api.create(evil)
        await cluster.until(lambda: looked_up)
        began = cluster.clock.monotonic()
        for place in range(20):
            cluster.api.create(pod(f"web-{place}", labels={"app": "web"}))
        await cluster.until(lambda: len(cluster.api.binds) == 20)
        assert cluster.clock.monotonic() - began <= 0.5
        assert cluster.queue.place_of(evil.uid) is Place.IN_FLIGHT
        await cluster.until(lambda: cluster.api.pods[evil.key].node_name)

    assert 2000 <= len(looked_up) <= 2100  # each class once, although the attempt was started twice
