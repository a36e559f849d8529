"""Long decisions run in time slices, and the state of the cluster stays the same meanwhile."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from plugins.node_resources.fit import NodeResourcesFit
from plugins.preemption.default_preemption import DefaultPreemption
from plugins.preemption.disruption_budgets import BUDGETS
from scheduler.engine.cycle.event_handlers import EventHandler
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.cycle.shared import Profiles, Shared
from scheduler.engine.cycle.time_slices import SLICE_SECONDS, ClusterFreeze, TimeSlices
from scheduler.engine.ports import Time
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework import PostFilterPlugin, PostFilterResult
from scheduler.testing.fakes import FakeFeatures, FakeMetrics, FakeQueuedPods
from tests.support.builders import node, pod
from tests.support.manual_clock import ManualClock
from tests.unit.engine.cycle.cluster import Cluster
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    import pytest


class Heard(EventHandler[str]):
    def __init__(self, freeze: ClusterFreeze) -> None:
        shared = Shared(ManualClock(0.0), NoObserver())
        shared.freeze = freeze
        super().__init__(shared)
        self.calls: list[Any] = []

    def _added(self, obj: str) -> Any:
        if obj == "bad":
            raise ValueError(obj)
        self.calls.append(("add", obj))
        return ()

    def _updated(self, old: str, new: str) -> Any:
        self.calls.append(("update", old, new))
        return ()

    def _deleted(self, old: str) -> Any:
        self.calls.append(("delete", old))
        return ()

    def _undecodable(self, identity: Any, error: Any) -> None:
        self.calls.append(("undecodable", identity, error))


@asynccontextmanager
async def frozen(freeze: ClusterFreeze) -> AsyncIterator[None]:
    freeze.begin()
    try:
        yield
    finally:
        await freeze.end()


def tell_everything(handler: Any) -> list[Any]:
    handler.on_add("a")
    handler.on_update("a", "b")
    handler.on_undecodable("b", "why")
    handler.on_delete("b")
    return [("add", "a"), ("update", "a", "b"), ("undecodable", "b", "why"), ("delete", "b")]


def test_without_a_freeze_changes_are_applied_at_once() -> None:
    heard = Heard(ClusterFreeze())
    assert tell_everything(heard) == heard.calls


async def test_changes_during_a_freeze_are_applied_in_order_at_its_end() -> None:
    freeze = ClusterFreeze()
    heard = Heard(freeze)
    async with frozen(freeze):
        expected = tell_everything(heard)
        assert heard.calls == []
        assert freeze.is_on
    assert not freeze.is_on
    assert heard.calls == expected


async def test_a_failing_deferred_change_does_not_block_the_others(caplog: pytest.LogCaptureFixture) -> None:
    freeze = ClusterFreeze()
    heard = Heard(freeze)
    with caplog.at_level(logging.ERROR):
        async with frozen(freeze):
            heard.on_add("bad")
            heard.on_add("good")
    assert heard.calls == [("add", "good")]
    assert "A deferred change failed" in caplog.text


async def test_a_waiting_task_continues_only_without_a_freeze() -> None:
    freeze, seen = ClusterFreeze(), []

    async def wait() -> None:
        await freeze.wait_over()
        seen.append(freeze.is_on)

    async with frozen(freeze):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(1)
        assert not waiting.done()
    async with frozen(freeze):  # again, before the waiting task runs
        await asyncio.sleep(1)
        assert not waiting.done()
    await waiting
    assert seen == [False]


class SlowClock(ManualClock):
    """A clock on which each reading takes three milliseconds."""

    def monotonic(self) -> float:
        self.advance(0.003)
        return super().monotonic()


def counting(steps: int) -> Generator[None, None, int]:
    for _ in range(steps):
        yield
    return steps


def test_short_work_neither_waits_nor_freezes() -> None:
    freeze = ClusterFreeze()

    assert run_now(TimeSlices(freeze, Time(ManualClock(0.0))).done(counting(1000))) == 1000
    assert not freeze.is_on


async def test_other_tasks_run_between_slices_and_the_cluster_is_frozen() -> None:
    freeze, turns = ClusterFreeze(), []

    async def other() -> None:
        while True:
            turns.append(freeze.is_on)
            await asyncio.sleep(0)

    others = asyncio.create_task(other())
    assert await TimeSlices(freeze, Time(SlowClock(0.0))).done(counting(100)) == 100
    others.cancel()

    assert 100 * 0.003 / SLICE_SECONDS * 0.5 <= len(turns) <= 100
    assert all(turns)
    assert freeze.is_on, "the owner of the attempt ends it"


def full(cluster: Cluster, count: int) -> None:
    for number in range(count):
        cluster.nodes.on_add(node(f"n{number}", cpu="2"))
        for victim in range(2):
            cluster.api.create(pod(f"v{number}-{victim}", cpu="1", node=f"n{number}", priority=number % 3))


def preempting(clock: Any) -> tuple[Cluster, list[str]]:
    """A full cluster whose scheduler searches for victims, and the resulting nominations."""
    dry_run, fit = DryRun(), made(NodeResourcesFit)
    freeze = ClusterFreeze()
    plugin = DefaultPreemption(
        args=DefaultPreemption.Args(),
        dry_run=dry_run,
        review=ExtenderReview(Cluster().profiles),
        preemptions=NoPreemptions(),
        work=TimeSlices(freeze, Time(clock)),
        members=PodGroups(),
        groups=Profiles(),
        features=FakeFeatures(),
        clock=ManualClock(),
        queued=FakeQueuedPods(),
        metrics=FakeMetrics(),
    )
    cluster = Cluster(fit, plugin, nodes=(), freeze=freeze)
    dry_run.filtering = cluster.framework.filtering
    cluster.cache.table.watch_kind(BUDGETS)
    full(cluster, 30)
    nominated: list[str] = []
    cluster.counts.decided = lambda *told: nominated.append(told[1].nominated_node_name)  # type: ignore[assignment,method-assign]
    return cluster, nominated


async def test_events_during_a_search_for_victims_are_applied_afterwards() -> None:
    judged_at_once, expected = preempting(ManualClock(0.0))
    judged_at_once.api.create(pod("urgent", cpu="2", priority=9))
    async with judged_at_once.running():
        await judged_at_once.until(lambda: expected)

    cluster, found = preempting(SlowClock(0.0))
    cluster.api.create(pod("urgent", cpu="2", priority=9))

    async def meddle() -> None:
        while not cluster.parts.freeze.is_on:  # noqa: ASYNC110 - each turn counts
            await asyncio.sleep(0)
        before = cluster.cache.table.n_nodes
        for victim in range(2):  # the nodes that would be chosen are not candidates any more
            for number in range(0, 30, 3):
                cluster.api.delete(f"default/v{number}-{victim}")
        cluster.nodes.on_add(node("empty", cpu="64"))
        assert cluster.cache.table.n_nodes == before, "the picture moved"

    async with cluster.running():
        meddling = asyncio.create_task(meddle())
        await cluster.until(lambda: found and meddling.done())
        await meddling
        await cluster.until(lambda: cluster.node_of("urgent"))

    assert found[0] == expected[0] == "n0"
    assert cluster.cache.table.n_nodes == 31
    assert not cluster.parts.freeze.is_on


class Broken(PostFilterPlugin):
    """Begins a freeze and raises."""

    name = "Broken"

    def __init__(self, work: TimeSlices) -> None:
        self.work = work

    async def post_filter(self, *_: Any) -> PostFilterResult:
        await self.work.done(counting(10))
        raise ValueError("no")


async def test_a_freeze_ends_with_its_attempt_in_any_case() -> None:
    freeze = ClusterFreeze()
    cluster = Cluster(
        made(NodeResourcesFit), Broken(TimeSlices(freeze, Time(SlowClock(0.0)))), nodes=("n1",), freeze=freeze
    )
    cluster.api.create(pod("large", cpu="100"))
    async with cluster.running():
        await cluster.until(lambda: cluster.notes("large"))
        assert not freeze.is_on
