"""An endless plugin is interrupted at any point, with the same effects as an exception."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import sys
import threading
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from plugins.node_resources.fit import NodeResourcesFit
from plugins.scheduling_gates import SchedulingGates
from scheduler.engine.cycle.scheduling import run_now, schedule_pod
from scheduler.engine.queue import Place
from scheduler.engine.runtime.budget import LoopBudget, OverBudgetError
from scheduler.framework import (
    ActionType,
    ClusterEvent,
    CycleState,
    EventResource,
    EventWithHint,
    FilterPlugin,
    PermitPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueingHint,
    ReservePlugin,
    ScorePlugin,
    Status,
    Wait,
)
from scheduler.objects.wording import Duration
from tests.support.builders import node, pod
from tests.support.guests import LOOPS, guest
from tests.support.scripted_plugins import (
    NodeFilter,
    NodeScore,
    Permit,
    PostFilter,
    PreFilter,
    PreScore,
    Reserve,
    framework_of,
)
from tests.unit.engine.cycle.cluster import Cluster
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from scheduler.engine.queue import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Snapshot

MESSAGE = (
    'running "Endless" filter plugin: over budget: stopped: more than 0.05s had passed'
    "; quarantined for 60s after 1 attempt over budget"
)


class TracedBudget(LoopBudget):
    """A budget whose alarm fires at a given instruction, and at each later one.

    Attributes:
        left: the number of instructions until the alarm.
    """

    def __init__(self) -> None:
        self.time, self.left, self.late, self.raised_in = 0.0, -1, 0.0, ""
        super().__init__(lambda: self.time, seconds=0.5, used=lambda: self.time)
        self._has_clock = True

    def _tick_in(self, seconds: float) -> None:
        self._armed = self.time, self.time, seconds

    def run(self, function: Callable[[], Any], after: int, late: float) -> Any:
        """Call a function; the alarm fires after a number of instructions, with a delay."""
        self.left, self.late = after, late
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return function()
        finally:
            sys.settrace(before)
            self.time += 10.0

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.time += 0.5 + self.late
            if self.left <= 0:
                try:
                    self._on_alarm(signal.SIGALRM, frame)
                except BaseException:
                    self.raised_in = frame.f_globals["__name__"]
                    above: FrameType | None = frame
                    while above is not None and not above.f_globals["__name__"].startswith("scheduler."):
                        above = above.f_back
                    assert above is not None
                    assert above.f_globals["__name__"].startswith("scheduler.engine.runtime."), (
                        "called by ours"
                    )
                    raise
        return self._trace


class Slowly(str):
    """A key with a plugin's own hash, which dictionaries of the scheduler call."""

    __slots__ = ()

    def __hash__(self) -> int:
        for _ in range(20):
            pass
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


class Everywhere(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin, PermitPlugin):
    """A third-party plugin at all points that reads columns, calls libraries and has cacheable results."""

    name = "Everywhere"

    def __init__(self) -> None:
        self.reserved: set[str] = set()

    def signature(self, pod: PodInfo) -> str:
        return "".join(sorted(pod.labels.values()))

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        for key in (Slowly("zone"), Slowly("disk")):
            for value in snapshot.label(key).values:
                state.write(f"{key}{value}", len(snapshot.names))

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        found = sum(len(other.labels) for other in node.pods)
        return Status.unschedulable("full of labels") if found > 8 else None

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return max(0, 100 - 10 * len(list(node.pods)) - len(node.name))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.add(pod.uid)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.discard(pod.uid)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None


def web(number: int) -> PodInfo:
    return pod(f"web-{number}", cpu="100m", labels={"app": f"a{number % 2}"})


def attempt(cluster: Cluster, queued: QueuedPodInfo) -> Any:
    return run_now(_in_stretches(cluster, queued))


async def _in_stretches(cluster: Cluster, queued: QueuedPodInfo) -> Any:
    return await cluster.parts.budget.run_in_slices(cluster.schedule_one(queued))


@pytest.mark.parametrize("seed", range(60))
def test_a_plugin_stopped_at_any_line_leaves_correct_state_and_later_decisions(seed: int) -> None:
    random, budget, theirs = Random(seed), TracedBudget(), Everywhere()
    cluster = Cluster(made(NodeResourcesFit), theirs, nodes=(), budget=budget)
    for number in range(5):
        cluster.nodes.on_add(node(f"n{number}", cpu="2", labels={"zone": f"z{number % 2}"}))
    stopped = 0
    for number in range(8):
        cluster.api.create(web(number))
        queued = cluster.pop()
        after, late = random.randrange(1, 6000), random.choice([0.1, 0.4])
        assumed = budget.run(partial(attempt, cluster, queued), after, late)
        cluster.cache.check()
        cluster.queue.check()
        if assumed is None:
            stopped += 1
            assert budget.raised_in in {"", __name__}, "raised in other code than the plugin's"
            assert cluster.place_of(f"web-{number}") is Place.BACKOFF
            assert "over budget" in cluster.notes(f"web-{number}")[-1]
            assert queued.pod.uid not in theirs.reserved
            assert cluster.cache.pod(queued.pod.uid) is None
        else:
            assert cluster.cache.pod(queued.pod.uid) is not None
            cluster.api.update(cluster.api.pods[assumed.pod.key].placed_on(assumed.node_name))
            cluster.queue.done(queued.pod.uid)
        asked = web(100 + number)
        reported = [
            schedule_pod(framework, asked, cluster.cache.snapshot(), nominated={}, random=Random(number))
            for framework in (cluster.framework, framework_of(made(NodeResourcesFit), Everywhere()))
        ]
        assert reported[0].node_name == reported[1].node_name
        assert (reported[0].diagnosis.rejected_by == reported[1].diagnosis.rejected_by).all()
        assert reported[0].scores is not None
        assert reported[1].scores is not None
        assert (reported[0].scores.total == reported[1].scores.total).all()
    assert stopped


def endless(*_: Any) -> Any:
    while True:
        pass


def catching(*_: Any) -> Any:
    while True:
        try:
            while True:
                pass
        except Exception:  # noqa: BLE001, S110 - what authors do
            pass


def in_a_library(*_: Any) -> Any:
    from fractions import Fraction

    total = Fraction(0)
    for number in range(1, 1_000_000_000):
        total += Fraction(1, 1 + number % 3)


def in_our_code(*args: Any) -> Any:
    while True:
        for _ in args[2].pods:
            pass
        _ = args[2].snapshot.n_nodes


def sleeping(*_: Any) -> Any:
    time.sleep(600)


def in_a_regular_expression(*_: Any) -> Any:
    re.match(r"(a+)+$", "a" * 60 + "b")


@pytest.fixture
def quick() -> Iterator[LoopBudget]:
    budget = LoopBudget(seconds=0.05)
    budget.take_clock()
    yield budget
    budget.give_clock_back()


@pytest.mark.parametrize(
    "goes_on", [endless, catching, sleeping, in_a_library, in_a_regular_expression, in_our_code]
)
def test_the_clock_stops_a_plugin_and_its_pod_is_quarantined(
    quick: LoopBudget, goes_on: Callable[..., Any]
) -> None:
    cluster = Cluster(NodeFilter("Endless", goes_on), budget=quick)
    cluster.api.create(pod("web"))
    queued = cluster.pop()

    assert attempt(cluster, queued) is None
    [note] = cluster.notes("web")
    # It may have ended just before the interruption.
    assert note in {MESSAGE, MESSAGE.replace("stopped: ", "")}
    [patch] = [each for each in cluster.api.patches if each.condition is not None]
    assert patch.condition is not None
    assert (patch.condition.reason, patch.condition.message) == ("SchedulerError", note)
    assert cluster.place_of("web") is Place.BACKOFF
    assert cluster.queue.next_deadline(0.0) >= 1060.0  # type: ignore[operator]
    cluster.check()


@pytest.mark.parametrize(
    "plugins",
    [
        pytest.param([PreFilter("A", endless)], id="PreFilter"),
        pytest.param([NodeScore("A", endless)], id="Score"),
        pytest.param([PreScore("A", endless), NodeScore("B", 1)], id="PreScore"),
        pytest.param(
            [NodeFilter("B", Status.unschedulable("no")), PostFilter("A", endless)], id="PostFilter"
        ),
        pytest.param([Reserve("A", reserve=endless)], id="Reserve"),
        pytest.param([Reserve("B", unreserve=endless), Permit("A", endless)], id="Permit, then Unreserve"),
    ],
)
def test_a_pod_stopped_at_any_extension_point_is_quarantined(quick: LoopBudget, plugins: list[Any]) -> None:
    cluster = Cluster(*plugins, SchedulingGates(), nodes=("n1", "n2"), budget=quick)
    cluster.api.create(pod("web"))
    queued = cluster.pop()

    assert attempt(cluster, queued) is None
    [note] = cluster.notes("web")
    assert '"A"' in note
    assert ": over budget: stopped" in note
    assert note.endswith("; quarantined for 60s after 1 attempt over budget")
    assert cluster.place_of("web") is Place.BACKOFF
    assert cluster.cache.pod(queued.pod.uid) is None
    cluster.check()


def test_without_the_timer_the_time_is_checked_between_plugins() -> None:
    said: list[Any] = []
    now = 0.0

    def takes_long(*_: object) -> None:
        nonlocal now
        now += 0.1

    def work() -> None:
        cluster = Cluster(NodeFilter("First", takes_long), made(NodeResourcesFit))
        cluster.parts.budget = cluster.scheduler._budget = cluster.framework._call.budget = LoopBudget(
            lambda: now, seconds=0.05
        )
        cluster.api.create(pod("web"))
        queued = cluster.pop()
        said.append((attempt(cluster, queued), cluster.notes("web")))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    reported = 'more than 0.05s had passed when plugin "First" was done'
    assert said == [(None, [f"over budget: {reported}; quarantined for 60s after 1 attempt over budget"])]


class Patient(PreBindPlugin):
    """Waits for long, and then computes for a given time."""

    name = "Patient"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        for _ in range(5):
            await asyncio.sleep(0.03)
        until = time.perf_counter() + self.seconds
        while time.perf_counter() < until:
            pass


@pytest.mark.parametrize("seconds", [0.0, 600.0], ids=["only waits", "works on and on"])
def test_awaited_time_does_not_count_against_a_budget(quick: LoopBudget, seconds: float) -> None:
    plugin = Patient(seconds)

    async def bind() -> Status:
        framework = framework_of(plugin, budget=quick)
        return await framework.run_pre_bind(CycleState(), pod("web"), "n1", frozenset({"Patient"}))

    status = asyncio.run(bind())
    reported = 'running PreBind plugin "Patient": over budget: stopped: more than 0.05s had passed'
    assert status.message == (reported if seconds else "")


def test_an_awaiting_plugin_can_be_cancelled_under_a_budget(quick: LoopBudget) -> None:
    said: list[str] = []

    class Waits(Patient):
        async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                said.append("cleaned up")

    async def cancel() -> None:
        framework = framework_of(Waits(0.0), budget=quick)
        running = asyncio.create_task(
            framework.run_pre_bind(CycleState(), pod("web"), "n1", frozenset({"Patient"}))
        )
        await asyncio.sleep(0)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
    assert said == ["cleaned up"]


async def test_time_that_an_attempt_awaits_does_not_count_against_its_budget() -> None:
    loop = asyncio.get_running_loop()
    budget = LoopBudget(loop.time, seconds=0.5)

    async def waits(*_: object) -> PostFilterResult:
        for _ in range(3):
            await asyncio.sleep(10)
        return PostFilterResult(Status.unschedulable("no victims"))

    second = PostFilter("Second", PostFilterResult(Status.unschedulable("none either")))
    cluster = Cluster(
        NodeFilter("No", Status.unschedulable("no")), PostFilter("Waits", waits), second, budget=budget
    )
    async with cluster.running():
        cluster.api.create(pod("web"))
        await cluster.until(lambda: cluster.notes("web"))

    [note] = cluster.notes("web")
    assert "over budget" not in note
    assert second.called() == ["post_filter"]
    assert cluster.place_of("web") is Place.UNSCHEDULABLE


async def test_deferred_changes_are_applied_after_an_attempt_over_budget() -> None:
    loop: Any = asyncio.get_running_loop()

    def goes_on() -> Wait:
        cluster.parts.freeze.begin()
        cluster.api.update(pod("web"))
        loop.stall(5.0)
        return Wait(100.0)

    gated = pod("web", schedulingGates=[{"name": "example.com/hold"}])
    slow = Permit("Slow", lambda _, asked, __: goes_on() if asked.name == "slow" else None)
    async with Cluster(
        SchedulingGates(), slow, budget=LoopBudget(loop.time, seconds=0.5)
    ).running() as cluster:
        cluster.api.create(gated)
        cluster.api.create(pod("slow"))
        await cluster.until(lambda: cluster.node_of("web"), seconds=60)


class Kept(NodeFilter):
    """Gives identical pods equal signatures."""

    def signature(self, pod: PodInfo) -> str:
        return "all alike"


def test_cached_results_are_dropped_when_a_plugin_is_stopped(quick: LoopBudget) -> None:
    quick.seconds = 0.5  # other plugins must not be interrupted on a busy machine
    kept = Kept("Kept")
    endless_for_bad = NodeFilter("Endless", lambda _, asked, __: endless() if asked.name == "bad" else None)
    cluster = Cluster(kept, endless_for_bad, nodes=("n1", "n2", "n3"), budget=quick)
    asked: list[int] = []
    for name in ("first", "second", "third", "bad", "fourth", "fifth", "sixth"):
        cluster.api.create(pod(name))
        queued = cluster.pop()
        kept.calls.clear()
        attempt(cluster, queued)
        asked.append(len(kept.calls))

    # Results of a class's first pod are not cached; later pods evaluate only the node of the pod before.
    assert asked[2:] == [1, 1, 3, 3, 1]
    cluster.check()


def test_a_suspended_process_does_not_count_against_the_plugin() -> None:
    budget, plugin = TracedBudget(), Everywhere()
    frame = sys._getframe()

    def wakes_up() -> str:
        budget.time += 60.0  # SIGSTOP, and SIGCONT a minute later
        budget._on_alarm(signal.SIGALRM, frame)
        return "done"

    assert budget.call(plugin, wakes_up) == "done"


def test_nothing_is_stopped_in_a_callback_of_the_garbage_collector() -> None:
    budget, plugin, raised, phases = TracedBudget(), Everywhere(), [], list[str]()

    def follows(phase: str, _: object) -> None:
        phases.append(phase)
        budget.time += 10.0
        try:
            budget._on_alarm(signal.SIGALRM, sys._getframe())
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    gc.callbacks.append(follows)
    try:
        budget.call(plugin, gc.collect)
    finally:
        gc.callbacks.remove(follows)
    assert phases[:2] == ["start", "stop"]
    assert not raised


class Endless(FilterPlugin, PreEnqueuePlugin):
    """Has a hint and a PreEnqueue method that never return."""

    name = "Endless"

    def __init__(self) -> None:
        self.is_open, self.hints, self.asked = True, 0, 0

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if self.is_open:
            return None
        self.asked += 1
        return endless()  # type: ignore[no-any-return]

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        return Status.unschedulable("never")

    def events(self) -> Any:
        return [EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD), self.hint)]

    def hint(self, *_: Any) -> QueueingHint:
        self.hints += 1
        return endless()  # type: ignore[no-any-return]


def test_an_endless_hint_is_called_once_and_requeues_the_pods(quick: LoopBudget) -> None:
    plugin = Endless()
    cluster = Cluster(plugin, budget=quick)
    for number in range(5):
        cluster.api.create(pod(f"web-{number}"))
        queued = cluster.pop()
        attempt(cluster, queued)
    cluster.nodes.on_add(node("n2"))

    assert plugin.hints == 1
    assert {cluster.place_of(f"web-{number}") for number in range(5)} == {Place.BACKOFF}
    cluster.check()


@pytest.mark.parametrize("silent", ["pod_key", "event_keys", "waits_for_keys"])
def test_an_endless_hint_key_is_called_once_and_requeues_the_pods(quick: LoopBudget, silent: str) -> None:
    asked = 0

    def says_nothing(*_: object) -> Any:
        nonlocal asked
        asked += 1
        return endless()

    class Silent(Endless):
        def events(self) -> Any:
            said: Any = {
                "pod_key": lambda _: "",
                "event_keys": lambda *_: ("a",),
                "waits_for_keys": lambda _: ("a",),
            }
            said[silent] = says_nothing
            return [EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD), self.hint, **said)]

        def hint(self, *_: Any) -> QueueingHint:
            return QueueingHint.QUEUE

    cluster = Cluster(Silent(), budget=quick)
    for number in range(5):
        cluster.api.create(pod(f"web-{number}"))
        queued = cluster.pop()
        attempt(cluster, queued)
    cluster.nodes.on_add(node("n2"))

    assert asked == 1
    assert {cluster.place_of(f"web-{number}") for number in range(5)} == {Place.BACKOFF}
    cluster.check()


def test_an_endless_gate_keeps_its_pods_gated_and_others_unaffected(quick: LoopBudget) -> None:
    plugin = Endless()
    plugin.is_open = False
    cluster = Cluster(plugin, budget=quick)
    for number in range(20):
        cluster.api.create(pod(f"web-{number}"))

    assert plugin.asked == 1
    assert {cluster.place_of(f"web-{number}") for number in range(20)} == {Place.GATED}
    cluster.check()


def test_a_plugin_that_is_stopped_three_times_in_a_row_is_suspended(quick: LoopBudget) -> None:
    cluster = Cluster(NodeFilter("Endless", endless), budget=quick)
    for number in range(30):
        cluster.api.create(pod(f"web-{number}"))
    assert quick.paused == []
    while (queued := cluster.queue.pop()) is not None:
        attempt(cluster, queued)

    stopped = [number for number in range(30) if "quarantined" in cluster.notes(f"web-{number}")[0]]
    assert stopped == [0, 1, 2]
    assert quick.paused == ["Endless"]
    quick.forget()
    assert quick.paused == []
    assert re.search(r"not asked: it rests for \d+s", cluster.notes("web-29")[0])
    last = cluster.queue.get(pod("web-29").uid)
    assert last is not None
    assert 0.0 < last.quarantine_seconds <= 60.0
    cluster.check()


def test_a_guest_that_reaches_its_time_limit_three_times_in_a_row_is_suspended(quick: LoopBudget) -> None:
    quick.seconds = 5.0
    cluster = Cluster(guest(LOOPS, time_limit=Duration(20_000_000)), budget=quick)
    for number in range(8):
        cluster.api.create(pod(f"web-{number}"))
    while (queued := cluster.queue.pop()) is not None:
        attempt(cluster, queued)

    stopped = [number for number in range(8) if "quarantined" in cluster.notes(f"web-{number}")[0]]
    assert stopped == [0, 1, 2]
    assert quick.paused == ["guest"]
    assert (
        'running "guest" filter plugin: over budget: wasm: filter error: stopped' in cluster.notes("web-0")[0]
    )
    assert "not asked: it rests for 60s" in cluster.notes("web-7")[0]
    cluster.check()


def test_a_plugin_stopped_at_one_extension_point_is_suspended_despite_other_points(quick: LoopBudget) -> None:
    class Endless(PreFilterPlugin, NodeFilter):
        def pre_filter(self, *_: Any) -> None:
            return None

    cluster = Cluster(Endless("Endless", endless), budget=quick)
    for number in range(5):
        cluster.api.create(pod(f"web-{number}"))
    while (queued := cluster.queue.pop()) is not None:
        attempt(cluster, queued)

    assert "not asked: it rests for 60s" in cluster.notes("web-4")[0]
    cluster.check()


def test_a_plugin_that_is_stopped_after_an_await_is_suspended(quick: LoopBudget) -> None:
    async def endless_step() -> None:
        endless()

    plugin = NodeFilter("Endless", endless)
    for _ in range(3):
        with pytest.raises(OverBudgetError, match="stopped"):
            asyncio.run(quick.awaited(plugin, endless_step, at="PreBind"))
    with pytest.raises(OverBudgetError, match="not asked"):
        asyncio.run(quick.awaited(plugin, endless_step, at="PreBind"))
