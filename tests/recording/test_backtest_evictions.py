"""Evictions in a recording and in its backtest, and the replacement pods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.whatif.backtest.backtest_run import as_recorded
from tests.recording.backtests import PACKING, SPREADING, delete, material, owned, under
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster


async def two_on_two(it: Cluster, owner: str) -> None:
    it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
    it.add_pods(owned(f"{owner}-0", owner, cpu="1"))
    await asyncio.sleep(1.0)
    it.add_pods(owned(f"{owner}-1", owner, cpu="1"))


async def until_the_last(it: Cluster, seconds: float) -> None:
    """Let time pass, and add a pod at its end: a recording ends with its last event."""
    await asyncio.sleep(seconds)
    it.add_pods(pod_object("last"))
    await asyncio.sleep(1.0)


async def small_ones_then_a_large_one(it: Cluster) -> None:
    await two_on_two(it, "low")
    await asyncio.sleep(5.0)
    it.add_pods(pod_object("high", cpu="4", priority=10))


async def one_sends_another_away(it: Cluster) -> None:
    await small_ones_then_a_large_one(it)
    await it.until(lambda: bool(it.node_of("high")))
    it.add_pods(owned("low-2", "low", cpu="1"))
    await asyncio.sleep(60.0)


def test_a_pod_evicted_only_in_the_recording_stays_without_replacement(
    tmp_path: Path,
) -> None:
    recorded = material(tmp_path, one_sends_another_away)

    again, packed, was = under(recorded, SPREADING), under(recorded, PACKING), as_recorded(recorded)

    assert (was.figures.preemptions, was.figures.evictions, was.figures.arrived) == (1, 1, 4)
    assert (again.figures.preemptions, again.figures.evictions, again.figures.placed) == (1, 1, 4)
    assert again.moves.elsewhere == 0
    assert (packed.figures.preemptions, packed.figures.evictions, packed.figures.placed) == (0, 0, 3)
    assert (packed.dropped, packed.run_on) == (1, 0)
    assert packed.figures.samples[-1].utilisation["cpu"] == 6 / 8


def test_a_pod_evicted_only_in_the_backtest_is_recreated(tmp_path: Path) -> None:
    async def room_for_all(it: Cluster) -> None:
        await small_ones_then_a_large_one(it)
        await until_the_last(it, 60.0)

    recorded = material(tmp_path, room_for_all, configuration=PACKING)

    spread, was = under(recorded, SPREADING), as_recorded(recorded)

    assert (was.figures.preemptions, was.figures.evictions, was.figures.placed) == (0, 0, 4)
    assert (spread.figures.preemptions, spread.figures.evictions, spread.figures.placed) == (1, 1, 5)
    assert spread.figures.samples[-1].utilisation["cpu"] == 6 / 8


@pytest.mark.parametrize(
    ("kind", "until"),
    [("ReplicaSet", 61.0), ("Job", 70.0), ("StatefulSet", 91.0)],
    ids=[
        "replica-set-at-once-for-the-remaining-time",
        "job-at-once-from-the-start",
        "stateful-set-after-deletion-for-the-remaining-time",
    ],
)
def test_recreated_pods_have_a_run_time(tmp_path: Path, kind: str, until: float) -> None:
    async def low_pods_run_for_a_minute(it: Cluster) -> None:
        it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
        it.add_pods(owned("low-0", "low", kind, cpu="1"))
        await asyncio.sleep(1.0)
        it.add_pods(owned("low-1", "low", kind, cpu="1"))
        await asyncio.sleep(9.0)
        it.add_pods(pod_object("high", cpu="4", priority=10))
        await asyncio.sleep(50.0)
        for name in ("low-0", "low-1"):
            it.server.store.delete("pods", name, "default", grace_period_seconds=0)
        await until_the_last(it, 60.0)

    recorded = material(tmp_path, low_pods_run_for_a_minute, configuration=PACKING)

    spread = under(recorded, SPREADING)

    # low-1 is evicted after 11 s, 9 s after its start, and takes 30 s to terminate.
    assert (spread.figures.evictions, spread.figures.placed) == (1, 5)
    beside_high = [each.at for each in spread.figures.samples if each.utilisation.get("cpu", 0) > 4 / 8]
    assert max(beside_high) == pytest.approx(until, abs=1.0)


def test_pods_of_a_removed_node_return_instead_of_their_recorded_replacements(
    tmp_path: Path,
) -> None:
    async def a_node_goes(it: Cluster) -> None:
        await two_on_two(it, "web")
        await asyncio.sleep(10.0)
        gone = it.node_of("web-0")
        it.server.store.delete("nodes", gone)
        delete(it, "web-0")
        it.add_pods(owned("web-2", "web", cpu="1"))
        await until_the_last(it, 20.0)

    recorded = material(tmp_path, a_node_goes)

    again, packed = under(recorded, SPREADING), under(recorded, PACKING)

    for run in (again, packed):
        assert run.dropped == 1
        assert run.figures.samples[-1].utilisation["cpu"] == 2 / 4
    assert again.figures.evictions == 1
    assert packed.figures.evictions == 2


def test_a_drained_node_evicts_the_pods_that_are_then_on_it(tmp_path: Path) -> None:
    async def drained(it: Cluster) -> None:
        it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
        for each in range(2):
            it.add_pods(owned(f"web-{each}", "web", cpu="1"))
            await asyncio.sleep(1.0)
        node = it.node_of("web-0")
        it.server.store.patch("nodes", node, {"spec": {"unschedulable": True}})
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        it.server.store.patch(
            "pods", "web-0", {"status": {"conditions": [condition]}}, "default", subresource="status"
        )
        delete(it, "web-0")
        it.add_pods(owned("web-2", "web", cpu="1"))
        await until_the_last(it, 60.0)

    recorded = material(tmp_path, drained)

    again, packed = under(recorded, SPREADING), under(recorded, PACKING)

    assert [run.figures.evictions for run in (again, packed)] == [1, 2]
    assert [run.dropped for run in (again, packed)] == [1, 1]
    for run in (again, packed):
        assert run.figures.samples[-1].utilisation["cpu"] == 2 / 8
        assert run.figures.samples[-1].in_use == 1
