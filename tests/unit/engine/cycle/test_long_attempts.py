"""An attempt that needs more than one turn shares its time with the queue, and ends as any other attempt."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.queue import Place
from scheduler.engine.queue.quarantine import times_in_condition
from scheduler.engine.runtime.budget import LONG_SECONDS, LoopBudget
from scheduler.framework import NeedsTime, PreEnqueuePlugin, PreFilterPlugin, ReservePlugin, Status
from tests.support.builders import node, pod
from tests.support.scripted_plugins import NodeFilter, framework_of
from tests.support.snapshots import snapshot_of
from tests.support.virtual_time import LoopClock
from tests.unit.engine.cycle.cluster import PROFILE, Cluster, terminating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from scheduler.objects.pod import PodInfo

STEP_SECONDS = 0.002


def spend(seconds: float) -> None:
    """Hold the event loop for a time."""
    asyncio.get_running_loop()._now += seconds  # type: ignore[attr-defined]


class Hungry(PreFilterPlugin, ReservePlugin):
    """Needs the number of steps in a pod's label, at PreFilter or at Reserve.

    Attributes:
        seconds: pod name -> duration of its steps.
        closed: the names of the pods whose steps ended in any way.
        is_unlimited: see NeedsTime.
        at: the extension point where it needs time.
        error: the error that the first step raises.
        reserved: the uids of reserved pods.
    """

    name = "Hungry"

    def __init__(self, *, at: str = "pre_filter", is_unlimited: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self.closed: list[str] = []
        self.is_unlimited, self.at = is_unlimited, at
        self.error: Exception | None = None
        self.reserved: set[str] = set()
        self._known: set[str] = set()

    def _ask(self, pod: PodInfo, at: str) -> None:
        steps = int(pod.labels.get("steps", "0"))
        if at == self.at and steps and pod.uid not in self._known:
            raise NeedsTime(self._steps(pod, steps), is_unlimited=self.is_unlimited)

    def _steps(self, pod: PodInfo, number: int) -> Generator[None, None, None]:
        try:
            for _ in range(number):
                if self.error is not None:
                    raise self.error
                spend(STEP_SECONDS)
                self.seconds[pod.name] = self.seconds.get(pod.name, 0.0) + STEP_SECONDS
                yield
            self._known.add(pod.uid)
        finally:
            self.closed.append(pod.name)

    def pre_filter(self, state: Any, pod: PodInfo, snapshot: Any) -> None:
        self._ask(pod, "pre_filter")

    def reserve(self, state: Any, pod: PodInfo, node_name: str) -> None:
        self._ask(pod, "reserve")
        self.reserved.add(pod.uid)

    def unreserve(self, state: Any, pod: PodInfo, node_name: str) -> None:
        self.reserved.discard(pod.uid)


def hungry(name: str, steps: int, **more: Any) -> PodInfo:
    return pod(name, labels={"steps": str(steps)}, **more)


def cluster_with(*plugins: Any, **options: Any) -> Cluster:
    """A cluster in which all time is charged to a plugin."""
    now = LoopClock().monotonic
    return Cluster(*plugins, budget=LoopBudget(now, used=now), **options)


@asynccontextmanager
async def long_attempt() -> AsyncIterator[tuple[Cluster, Hungry]]:
    """A cluster in the middle of a very long attempt at the pod heavy."""
    plugin = Hungry()
    cluster = cluster_with(plugin)
    cluster.api.create(hungry("heavy", 100_000))
    async with cluster.running():
        await cluster.until(lambda: plugin.seconds)
        yield cluster, plugin


async def test_other_pods_are_bound_while_a_long_attempt_runs() -> None:
    plugin = Hungry()
    cluster = cluster_with(plugin)
    cluster.api.create(hungry("heavy", 500))
    async with cluster.running():
        await cluster.until(lambda: plugin.seconds)
        began = cluster.clock.monotonic()
        for number in range(20):
            cluster.api.create(pod(f"web-{number}"))
        await cluster.until(lambda: len(cluster.api.binds) == 20)
        assert cluster.clock.monotonic() - began <= 0.2
        assert cluster.place_of("heavy") is Place.IN_FLIGHT
        assert cluster.scheduler.has_in_hand(pod("heavy").uid)
        await cluster.until(lambda: cluster.node_of("heavy"))

    assert not cluster.notes("heavy")
    assert not [patch for patch in cluster.api.patches if patch.key == "default/heavy"]
    assert cluster.counts.attempts == [(PROFILE, "scheduled")] * 21
    assert plugin.closed == ["heavy"]


async def test_long_attempts_get_half_of_the_time_while_pods_wait_and_else_all_of_it() -> None:
    plugin = Hungry()
    cluster = cluster_with(plugin, NodeFilter("Slow", lambda *_: spend(0.003)))
    for number in range(400):
        cluster.api.create(pod(f"web-{number}"))
    cluster.api.create(hungry("heavy", 2000, priority=9))
    async with cluster.running():
        await cluster.until(lambda: len(cluster.api.binds) >= 400)
        share = plugin.seconds["heavy"] / cluster.clock.monotonic()
        assert 0.3 <= share <= 0.51
        left = 4.0 - plugin.seconds["heavy"]
        began = cluster.clock.monotonic()
        await cluster.until(lambda: cluster.node_of("heavy"))
        assert cluster.clock.monotonic() - began <= left + 0.2


async def test_the_loop_runs_between_two_slices() -> None:
    cluster = cluster_with(Hungry())
    cluster.api.create(hungry("heavy", 200))
    turns, longest = [cluster.clock.monotonic()], 0.0
    async with cluster.running():
        while not cluster.node_of("heavy"):
            await asyncio.sleep(0)
            turns.append(cluster.clock.monotonic())
            longest = max(longest, turns[-1] - turns[-2])
    assert longest <= 0.005 + STEP_SECONDS


@pytest.mark.parametrize("is_begun", [True, False])
async def test_a_pod_deleted_during_a_long_attempt_is_dropped_and_its_work_closed(is_begun: bool) -> None:
    plugin = Hungry()
    cluster = cluster_with(plugin)
    heavy = [hungry(f"heavy-{number}", 100_000) for number in range(6)]
    async with cluster.running():
        for each in heavy:
            cluster.api.create(each)
        await cluster.until(lambda: plugin.seconds)
        gone = heavy[0] if is_begun else heavy[5]
        cluster.api.delete(gone.key)
        await cluster.until(lambda: cluster.queue.get(gone.uid) is None, seconds=1)
        assert not cluster.scheduler.has_in_hand(gone.uid)
        assert plugin.closed == (["heavy-0"] if is_begun else [])
        cluster.queue.check()
        assert cluster.scheduler.has_in_hand(heavy[1].uid)
    assert not [attempt for attempt in cluster.counts.attempts if attempt[1] == "error"]


async def test_a_pod_changed_during_a_long_attempt_is_tried_in_its_new_version() -> None:
    async with long_attempt() as (cluster, plugin):
        cluster.api.update(pod("heavy", labels={"steps": "0"}))
        await cluster.until(lambda: cluster.node_of("heavy"), seconds=1)
    assert plugin.closed == ["heavy"]


async def test_a_pod_that_terminates_during_a_long_attempt_is_skipped() -> None:
    async with long_attempt() as (cluster, _):
        cluster.api.update(terminating("heavy"))
        await cluster.until(lambda: cluster.notes("heavy"), seconds=1)
    assert cluster.notes("heavy") == ["skip schedule deleting pod: default/heavy"]
    assert cluster.place_of("heavy") is Place.OUTSIDE


async def test_a_pod_bound_by_another_scheduler_during_a_long_attempt_is_dropped() -> None:
    async with long_attempt() as (cluster, plugin):
        cluster.api.update(cluster.api.pods["default/heavy"].placed_on("n1"))
        await cluster.until(lambda: cluster.place_of("heavy") is Place.OUTSIDE, seconds=1)
        assert plugin.closed == ["heavy"]
    assert not cluster.api.binds


async def test_a_reload_during_a_long_attempt_starts_it_again() -> None:
    async with long_attempt() as (cluster, plugin):
        binder = cluster.framework.plugins.all()[-1]
        sort = cluster.framework.plugins.all()[0]
        cluster.profiles.swap({PROFILE: framework_of(sort, binder, budget=cluster.parts.budget)})
        await cluster.until(lambda: cluster.node_of("heavy"), seconds=1)
    assert plugin.closed == ["heavy"]


MESSAGE = f'running PreFilter plugin "Hungry": over budget: more than {LONG_SECONDS:g}s had been used'


async def test_the_next_leader_reads_the_growing_quarantine_of_a_pod() -> None:
    plugin = Hungry()
    cluster = cluster_with(plugin)
    cluster.api.create(hungry("heavy", 100_000))
    async with cluster.running():
        await cluster.until(lambda: cluster.notes("heavy"))
        used = plugin.seconds["heavy"]
        assert LONG_SECONDS <= used <= LONG_SECONDS + 0.02
        assert cluster.notes("heavy") == [f"{MESSAGE}; quarantined for 60s after 1 attempt over budget"]
        assert cluster.place_of("heavy") is Place.BACKOFF
        assert not cluster.scheduler.has_in_hand(pod("heavy").uid)
        await asyncio.sleep(59)
        assert plugin.seconds["heavy"] == used
        await cluster.until(lambda: len(cluster.notes("heavy")) == 2)
        assert cluster.notes("heavy")[1] == f"{MESSAGE}; quarantined for 120s after 2 attempts over budget"
        [*_, patch] = cluster.api.patches
    assert patch.condition is not None
    assert patch.condition.reason == "SchedulerError"
    reported = {
        "type": "PodScheduled",
        "status": "False",
        "reason": patch.condition.reason,
        "message": patch.condition.message,
    }
    seen = hungry("heavy", 100_000, status={"conditions": [reported]})
    assert times_in_condition(seen) == 2

    another = cluster_with(Hungry())
    another.api.create(seen)
    async with another.running():
        await asyncio.sleep(100)
        assert another.place_of("heavy") is Place.BACKOFF


async def test_the_results_of_long_attempts_are_counted() -> None:
    plugin, ends = Hungry(), list[tuple[str, str, str]]()
    cluster = cluster_with(plugin)

    def count(profile: str, plugin: str, result: str, seconds: float) -> None:
        assert seconds > 0
        ends.append((profile, plugin, result))

    cluster.counts.long_attempt_ended = count  # type: ignore[method-assign]
    for name, steps in (("short", 100), ("endless", 100_000), ("gone", 100_000)):
        cluster.api.create(hungry(name, steps))
    async with cluster.running():
        await cluster.until(lambda: len(plugin.seconds) == 3)
        assert len(cluster.scheduler._long) == 3
        cluster.api.delete("default/gone")
        await cluster.until(lambda: cluster.notes("endless"))
    assert ends == [(PROFILE, "Hungry", result) for result in ("dropped", "decided", "over_budget")]
    assert not len(cluster.scheduler._long)


async def test_a_plugin_without_a_time_limit_is_not_stopped() -> None:
    plugin = Hungry(is_unlimited=True)
    cluster = cluster_with(plugin)
    cluster.api.create(hungry("heavy", 12_000))
    async with cluster.running():
        await cluster.until(lambda: cluster.node_of("heavy"))
    assert plugin.seconds["heavy"] == pytest.approx(24.0)
    assert not cluster.notes("heavy")


async def test_a_choice_is_released_while_a_plugin_needs_time_at_reserve() -> None:
    plugin, before = Hungry(at="reserve"), Hungry(at="never")
    before.name = "Before"
    cluster = cluster_with(before, plugin)
    cluster.api.create(hungry("heavy", 500))
    async with cluster.running():
        await cluster.until(lambda: plugin.seconds)
        assert cluster.cache.pod(pod("heavy").uid) is None
        assert not before.reserved
        assert not plugin.reserved
        await cluster.until(lambda: cluster.node_of("heavy"))
    assert before.reserved == plugin.reserved == {pod("heavy").uid}


async def test_a_plugin_whose_work_raises_has_failed() -> None:
    plugin = Hungry()
    plugin.error = ValueError("no")
    cluster = cluster_with(plugin)
    cluster.api.create(hungry("heavy", 10))
    async with cluster.running():
        await cluster.until(lambda: cluster.notes("heavy"))
        assert cluster.notes("heavy") == ['running PreFilter plugin "Hungry": ValueError: no']
        assert cluster.place_of("heavy") is Place.BACKOFF


async def test_only_a_few_long_attempts_run_in_turn_and_the_others_wait() -> None:
    plugin = Hungry()
    cluster = cluster_with(plugin)
    for number in range(10):
        cluster.api.create(hungry(f"heavy-{number}", 100))
    async with cluster.running():
        await cluster.until(lambda: len(cluster.api.binds) == 1)
        first = sorted(plugin.seconds)
        assert first[:4] == [f"heavy-{number}" for number in range(4)]
        assert len(first) <= 8
        await cluster.until(lambda: len(cluster.api.binds) == 10)
    assert [name for name, _ in cluster.api.binds] == [f"heavy-{number}" for number in range(10)]


async def test_shutdown_closes_the_work_and_leaves_the_pod_to_the_next_leader() -> None:
    async with long_attempt() as (cluster, plugin):
        assert not plugin.closed
    assert plugin.closed == ["heavy"]
    assert cluster.scheduler.has_in_hand(pod("heavy").uid)
    assert not cluster.api.events


async def test_an_event_during_a_long_attempt_is_not_recorded_and_not_missed() -> None:
    plugin = Hungry()
    rule = NodeFilter(
        "Rule", lambda _state, _pod, node: None if node.name == "n9" else Status.unschedulable("no")
    )
    cluster = cluster_with(plugin, rule)
    cluster.api.create(hungry("heavy", 1000))
    async with cluster.running():
        await cluster.until(lambda: plugin.seconds)
        for number in range(2, 10):
            cluster.nodes.on_add(node(f"n{number}"))
        assert not cluster.queue.in_flight_events
        await cluster.until(lambda: cluster.node_of("heavy"))
    assert cluster.node_of("heavy") == "n9"
    assert not cluster.notes("heavy")


async def test_the_history_of_a_pod_names_the_plugin_that_needs_time() -> None:
    plugin = Hungry()
    cluster = cluster_with(plugin)
    cluster.api.create(hungry("heavy", 1000))
    async with cluster.running():
        await cluster.until(lambda: plugin.seconds)
        assert [move.why for move in cluster.queue.history(pod("heavy").uid)][-1] == "Hungry needs more time"


class Opening(PreEnqueuePlugin):
    """Raises NeedsTime outside an attempt."""

    name = "Opening"

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        raise NeedsTime(iter(()))  # type: ignore[arg-type]


def test_plugins_get_no_extra_time_outside_of_attempts() -> None:
    cluster = Cluster(Opening())
    cluster.api.create(pod("web"))
    assert cluster.place_of("web") is Place.GATED


async def test_an_offline_caller_runs_the_work_at_once() -> None:
    plugin = Hungry()
    framework = framework_of(plugin)
    cluster = cluster_with(nodes=("n1",))
    decision = schedule_pod(
        framework, hungry("heavy", 50), cluster.cache.snapshot(), nominated={}, random=Random(0)
    )
    assert decision.node_name == "n1"
    assert plugin.seconds["heavy"] == pytest.approx(0.1)


async def test_objects_of_an_attempt_that_needs_time_are_freed_at_once() -> None:
    framework, snapshot = framework_of(Hungry()), snapshot_of(node("n"))
    gc.disable()
    try:
        with suppress(NeedsTime):
            try:
                schedule_pod(
                    framework,
                    hungry("heavy", 3),
                    snapshot,
                    nominated={},
                    random=Random(1),
                    yields_to_loop=True,
                )
            except NeedsTime as needs:
                raised = weakref.ref(needs)
                raise
        assert raised() is None
    finally:
        gc.enable()
