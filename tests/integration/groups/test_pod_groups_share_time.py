"""A long attempt at a group shares the time with other pods; time is virtual.

Here every attempt takes long: it pauses wherever it can.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from scheduler.engine.cycle import group_pauses, scheduler, time_slices
from scheduler.engine.cycle.binding import BindingCycle
from scheduler.engine.cycle.failure import FailureHandler
from scheduler.engine.cycle.time_slices import ClusterFreeze, PausableAttempt
from scheduler.engine.queue import SchedulingQueue
from scheduler.engine.state.cache import Cache
from scheduler.framework import PreFilterPlugin
from tests.integration.groups.gangs import (
    add_gang,
    add_group,
    condition,
    fill,
    member,
    members,
    placed,
    running,
    told,
)
from tests.integration.groups.test_coscheduling import VOLCANO, kinds_served
from tests.integration.groups.test_coscheduling import members as volcano_members
from tests.integration.groups.test_coscheduling import pod_group as volcano_group
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

WATCHES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: Watches}]}}
  pluginConfig:
  - {name: GangScheduling, args: {preemptInDomains: true}}
"""

WITH_VOLCANO = WATCHES.replace("[{name: Watches}]", "[{name: Watches}, {name: Coscheduling}]").replace(
    "plugins: {", "plugins: {queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: '*'}]}, "
)


class Watches(PreFilterPlugin):
    """Notes which pods are decided about, and lets a test do something then."""

    name = "Watches"
    api_version = 1
    decided: ClassVar[list[str]] = []
    when: ClassVar[dict[str, Callable[[], object]]] = {}

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> None:
        self.decided.append(pod.name)
        self.when.pop(pod.name, lambda: None)()


watched = partial(running, configuration=WATCHES, plugins={"Watches": Watches})


@pytest.fixture(autouse=True)
def rests_wherever_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_pauses, "_UNIT_SECONDS", -1.0)
    monkeypatch.setattr(group_pauses, "_PASS_SECONDS", -1.0)
    Watches.decided.clear()
    Watches.when.clear()


def with_distinct_terms(pod: dict[str, Any], count: int) -> dict[str, Any]:
    name = pod["metadata"]["name"]
    terms = [
        {"labelSelector": {"matchLabels": {f"{name}-{number}": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        for number in range(count)
    ]
    pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod


async def test_other_pods_are_placed_while_a_large_gang_is_tried(tmp_path: Path) -> None:
    async with watched(tmp_path, *(node_object(f"n{number}", cpu="16") for number in range(5))) as (
        it,
        daemon,
    ):
        add_group(it, "g", 60)
        innocents = [pod_object(f"alone-{number}", cpu="1") for number in range(5)]
        Watches.when["g-1"] = lambda: it.add_pods(*innocents)
        it.add_pods(*(with_distinct_terms(each, 10) for each in members("g", 60)))
        await it.until(lambda: len(placed(it)) == 65)

        last_member = max(place for place, name in enumerate(Watches.decided) if name.startswith("g-"))
        assert all(Watches.decided.index(each["metadata"]["name"]) < last_member for each in innocents)
        daemon.parts.cache.check()
        daemon.parts.queue.check()


async def test_a_pod_rejected_for_capacity_of_a_gang_that_fails_is_retried(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, node_object("n", cpu="29")) as (it, _):
        Watches.when["g-25"] = lambda: it.add_pods(pod_object("alone", cpu="14"))
        add_gang(it, "g", 60)
        await it.until(lambda: condition(it, "g")[0] == "False")
        await it.until(lambda: placed(it) == {"alone"}, seconds=5)
        assert Watches.decided.count("alone") > 1, "it was not refused at first"


async def test_pods_rejected_for_held_capacity_are_retried_in_their_order(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, node_object("n", cpu="29")) as (it, _):
        add_group(it, "g", 60)
        large = [pod_object(f"large-{number}", cpu="28") for number in range(12)]
        Watches.when["g-10"] = lambda: it.add_pods(*large)
        it.add_pods(*members("g", 60))
        await it.until(lambda: len(placed(it)) == 1, seconds=5)
        tried = [name for name in Watches.decided if name.startswith("large-")]
        first, second = tried[:12], [name for place, name in enumerate(tried) if name in tried[:place]]
        assert len(second) > 6, "they were tried while members were assumed"
        assert second == [name for name in first if name in second]


async def test_assumed_members_yield_to_higher_priority_without_deletion(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, node_object("n", cpu="60")) as (it, _):
        Watches.when["g-20"] = lambda: it.add_pods(pod_object("urgent", cpu="59", priority=100))
        add_gang(it, "g", 60)
        await it.until(lambda: "urgent" in placed(it), seconds=20)
        await asyncio.sleep(20)
        assert placed(it) == {"urgent"}
        assert len(it.pods()) == 61, "none of them was deleted"
        assert Watches.decided.count("urgent") > 1, "it did not have to wait for room"


async def test_no_other_pod_is_tried_during_a_group_trial_without_its_possible_victims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile, trials, number, without = list[str](), 0, count(), Cache.without

    @asynccontextmanager
    async def followed(cache: Cache, pods: Any, yield_to_loop: Any) -> AsyncIterator[None]:
        nonlocal trials
        async with without(cache, pods, yield_to_loop):
            trials, began = trials + 1, len(Watches.decided)
            yield
            meanwhile.extend(Watches.decided[began:])

    def another_pod() -> None:
        it.add_pods(pod_object(f"alone-{next(number)}", cpu="1500m"))
        Watches.when["g-0"] = another_pod

    monkeypatch.setattr(Cache, "without", followed)
    async with watched(
        tmp_path, *(node_object(f"n{row}", cpu="2", labels={"zone": "a"}) for row in range(2)), kubelet=True
    ) as (it, _):
        for zone in ("b", "c"):  # enough room for the group, which may not be used
            it.add_nodes(node_object(zone, cpu="8", labels={"zone": zone}, unschedulable=True))
        await fill(it, 2, cpu="2", priority=1)
        constraints = {"topology": [{"key": "zone"}]}
        add_group(it, "g", 2, priority=100, schedulingConstraints=constraints)
        another_pod()
        it.add_pods(*members("g", 2, cpu="2", priority=100))
        await it.until(lambda: {"g-0", "g-1"} <= placed(it), seconds=60)
        assert trials, "room was looked for"
        assert {*meanwhile} == {"g-0", "g-1"}
        assert placed(it) == {"g-0", "g-1"}, "there was never room for another"


def with_one_on_a_node(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the members of a group with anti-affinity to each other."""
    for each in group:
        each["metadata"]["labels"] = {"apart": "x"}
        term = {"labelSelector": {"matchLabels": {"apart": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        each["spec"]["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        }
    return group


async def test_other_pods_are_placed_within_a_dry_run_of_a_gang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pauses are in dry runs and in the first pass only.
    monkeypatch.setattr(group_pauses, "_UNIT_SECONDS", 1e9)
    async with watched(tmp_path, *(node_object(f"n{row}", cpu="4") for row in range(4)), kubelet=True) as (
        it,
        daemon,
    ):
        await fill(it, 4, cpu="2", priority=1)
        add_group(it, "g", 6, priority=100)

        def in_the_dry_run() -> None:
            if Watches.decided.count("g-1") < 2:
                Watches.when["g-1"] = in_the_dry_run
            else:
                it.add_pods(pod_object("alone", cpu="2"))

        Watches.when["g-1"] = in_the_dry_run
        it.add_pods(*with_one_on_a_node(members("g", 6, cpu="2", priority=100)))
        await it.until(lambda: "alone" in placed(it))
        began = Watches.decided.index("g-0", Watches.decided.index("g-0") + 1)
        assert "alone" in Watches.decided[began : began + 8], "it is placed before the end of the dry run"
        assert Watches.decided.count("alone") == 1, "the members did not take its capacity"
        await it.until(lambda: bool(told(it, "g-5")))
        assert len(placed(it)) == 5, "no pod is evicted in vain"
        daemon.parts.cache.check()
        daemon.parts.queue.check()


async def test_no_pod_is_evicted_if_another_pod_took_a_node_in_a_dry_run(tmp_path: Path) -> None:
    async with watched(tmp_path, *(node_object(f"n{row}", cpu="4") for row in range(2)), kubelet=True) as (
        it,
        _,
    ):
        it.add_pods(pod_object("low", cpu="4", priority=1, node="n0"))
        add_group(it, "g", 2, priority=100)

        def in_the_dry_run() -> None:
            if Watches.decided.count("g-1") < 2:
                Watches.when["g-1"] = in_the_dry_run
            else:
                it.add_pods(pod_object("equal", cpu="3", priority=100))

        Watches.when["g-1"] = in_the_dry_run
        it.add_pods(*members("g", 2, cpu="4", priority=100))
        await it.until(lambda: "equal" in placed(it))
        await it.until(lambda: bool(told(it, "g-1")))
        await asyncio.sleep(20)
        assert placed(it) == {"low", "equal"}


async def test_the_search_for_victims_goes_on_when_the_last_node_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(tmp_path, *(node_object(f"n{row}", cpu="2") for row in range(3)), kubelet=True) as (
        it,
        _,
    ):
        it.add_pods(
            *(pod_object(f"low-{row}", cpu="1", priority=row % 3, node=f"n{row % 3}") for row in range(6))
        )
        add_group(it, "g", 2, priority=100)

        def in_the_dry_run() -> None:
            if Watches.decided.count("g-1") < 2:
                Watches.when["g-1"] = in_the_dry_run
            else:
                it.server.store.delete("nodes", "n2")

        Watches.when["g-1"] = in_the_dry_run
        it.add_pods(*members("g", 2, cpu="1", priority=100))
        await it.until(lambda: {"g-0", "g-1"} <= placed(it), seconds=60)
        assert "Plugin failed to preempt pods for a group" not in caplog.messages


async def test_an_attempt_restarts_when_the_last_node_is_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(
        tmp_path, *(node_object(f"n{row}", cpu="20", labels={"zone": "a"}) for row in range(3))
    ) as (it, _):
        constraints = {"topology": [{"key": "zone"}]}
        add_group(it, "g", 30, schedulingConstraints=constraints)
        Watches.when["g-5"] = lambda: it.server.store.delete("nodes", "n2")
        it.add_pods(*members("g", 30))
        await it.until(lambda: len(placed(it)) == 30)
        assert Watches.decided.count("g-0") > 1
        assert "Scheduling cycle failed" not in caplog.messages


@pytest.mark.parametrize("change", ["deleted", "changed"])
async def test_an_attempt_restarts_when_a_member_was_recreated(change: str, tmp_path: Path) -> None:
    async with watched(tmp_path, node_object("n", cpu="60")) as (it, daemon):
        add_group(it, "g", 50)

        def meddle() -> None:
            if change == "deleted":
                it.server.store.delete("pods", "g-0", "default")
            else:
                it.server.store.patch("pods", "g-0", {"metadata": {"labels": {"a": "b"}}}, "default")

        Watches.when["g-20"] = meddle
        it.add_pods(*members("g", 60))
        await it.until(lambda: len(placed(it)) == (59 if change == "deleted" else 60))
        assert Watches.decided.count("g-1") == 2
        daemon.parts.cache.check()
        daemon.parts.queue.check()
        assert not daemon.parts.cache.counts()["assumed_pods"]


async def test_victims_are_confirmed_on_the_current_cluster_at_the_end_of_the_search(
    tmp_path: Path,
) -> None:
    async with watched(
        tmp_path, *(node_object(f"n{number}", cpu="2") for number in range(3)), kubelet=True
    ) as (it, _):
        await fill(it, 3, cpu="2", priority=1)
        add_gang(it, "g", 2, cpu="2", priority=100), pod_object("alone", cpu="1", priority=0)
        await it.until(lambda: {"g-0", "g-1"} <= placed(it), seconds=60)
        assert len(placed(it)) == 3, "no more pods left than it takes"


async def test_a_gang_over_its_budget_is_quarantined_also_by_the_next_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_pauses, "BUDGET_SECONDS", -1.0)
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("n", cpu="8"))
        add_group(it, "g", 2)
        async with it.daemon() as daemon:
            it.add_pods(*members("g", 2), pod_object("alone"))
            await it.until(lambda: "quarantined for 60s after 1 attempt over budget" in told(it, "g-0"))
            await it.until(lambda: "quarantined for 60s after 1 attempt over budget" in told(it, "g-1"))
            assert "the attempt at the pod group used more than" in told(it, "g-1")
            assert placed(it) == {"alone"}
            await it.until(lambda: "quarantined for 120s after 2 attempts" in told(it, "g-1"), seconds=70)
            daemon.parts.queue.check()
        monkeypatch.undo()
        async with it.daemon() as daemon:
            await asyncio.sleep(100)
            assert placed(it) == {"alone"}
            await it.until(lambda: len(placed(it)) == 3, seconds=30)


async def test_bindings_of_a_gang_start_and_are_rolled_back_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, begun, undone = 0, dict[int, int](), dict[int, int]()

    def counting(counts: dict[int, int], original: Any) -> Any:
        def counted(*args: Any) -> Any:
            counts[turn] = counts.get(turn, 0) + 1
            return original(*args)

        return counted

    async def turns() -> None:
        nonlocal turn
        for turn in range(3000):  # noqa: B007
            await asyncio.sleep(0)

    monkeypatch.setattr(BindingCycle, "_run", counting(begun, BindingCycle._run))
    monkeypatch.setattr(BindingCycle, "_take_back", counting(undone, BindingCycle._take_back))
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="100"))
        add_group(it, "g", 50)

        def is_binding(request: Any) -> bool:
            found: bool = request.path.endswith("/binding")
            if found:
                daemon.parts.freeze.begin()  # all fail meanwhile, and wait for its end
            return found

        it.server.faults.refuse(403, is_binding)
        it.add_pods(*members("g", 50))
        counting_turns = asyncio.create_task(turns())
        await it.until(lambda: daemon.parts.freeze.is_on)
        await asyncio.sleep(1)
        assert (sum(begun.values()), undone) == (50, {})
        counting_turns.cancel()
        counting_turns = asyncio.create_task(turns())
        await daemon.parts.freeze.end()
        await counting_turns
    assert sum(undone.values()) >= 50
    assert max(begun.values()) <= 16
    assert max(undone.values()) <= 2


async def test_a_paused_attempt_is_closed_when_the_daemon_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[PausableAttempt[Any]] = []
    end = ClusterFreeze.end

    class Noted(PausableAttempt[Any]):
        def __init__(self, attempt: Any, none: Any) -> None:
            super().__init__(attempt, none)
            attempts.append(self)

    async def cancelled(freeze: ClusterFreeze) -> None:
        await end(freeze)
        if attempts and attempts[-1].holds:
            raise asyncio.CancelledError

    monkeypatch.setattr(scheduler, "PausableAttempt", Noted)
    monkeypatch.setattr(ClusterFreeze, "end", cancelled)
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="60"))
        add_gang(it, "g", 10)
        await it.until(lambda: daemon.cycles.scheduler._is_over)
        [attempt] = attempts
        assert attempt._attempt.cr_frame is None, "it has ended"


async def test_a_member_created_while_its_group_is_paused_is_tried_with_it(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, node_object("n", cpu="49")) as (it, _):
        Watches.when["g-20"] = lambda: it.add_pods(member("g", "late"))
        add_gang(it, "g", 60, 50)
        await it.until(lambda: "late" in Watches.decided)
        await asyncio.sleep(20)
        assert Watches.decided.count("late") == Watches.decided.count("g-0") - 1, "never without the others"


async def test_held_changes_are_applied_when_the_daemon_is_cancelled_in_a_freeze(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(*_: object) -> Iterator[None]:
        yield
        raise asyncio.CancelledError

    monkeypatch.setattr(time_slices, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(SchedulingQueue, "pop_group", cancelled)
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="60"))
        add_gang(it, "g", 10)
        await it.until(lambda: daemon.cycles.scheduler._is_over)
        assert not daemon.parts.freeze.is_on


async def test_a_member_that_changes_groups_during_a_pause_is_placed_with_the_new_one(
    tmp_path: Path,
) -> None:
    async with kinds_served(tmp_path) as it, it.daemon(WITH_VOLCANO, plugins={"Watches": Watches}) as daemon:
        it.add_nodes(node_object("n", cpu="60"))
        it.server.store.create(VOLCANO, volcano_group(VOLCANO, "g", 50))
        it.server.store.create(VOLCANO, volcano_group(VOLCANO, "h", 1))
        joins = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "h"}}}
        Watches.when["g-20"] = lambda: it.server.store.patch("pods", "g-40", joins, "default")
        it.add_pods(*volcano_members(VOLCANO, "g", 50))
        await it.until(lambda: placed(it) == {"g-40"}, seconds=5)
        await asyncio.sleep(5)
        assert placed(it) == {"g-40"}, "the others are too few"
        daemon.parts.cache.check()
        daemon.parts.queue.check()


async def test_other_pods_are_placed_while_a_large_gang_is_returned_to_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought_back, handle = list[str](), FailureHandler.handle

    def noted(self: FailureHandler, attempt: Any, *args: Any, **options: Any) -> None:
        brought_back.append(attempt.queued.pod.name)
        if len(brought_back) == 1:
            it.add_pods(pod_object("alone", cpu="1"))
            Watches.when["alone"] = lambda: brought_back.append("alone is tried")
        handle(self, attempt, *args, **options)

    monkeypatch.setattr(FailureHandler, "handle", noted)
    async with watched(tmp_path, node_object("n", cpu="40")) as (it, daemon):
        add_gang(it, "g", 60)
        await it.until(lambda: placed(it) == {"alone"})
        await it.until(lambda: told(it, "g-59"))
        assert brought_back.index("alone is tried") < 30
        assert {*brought_back} >= {f"g-{number}" for number in range(60)}
        daemon.parts.cache.check()
        daemon.parts.queue.check()


async def test_a_hopeless_gang_is_not_tried_again_without_its_possible_victims(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(WATCHES, plugins={"Watches": Watches}):
        it.add_nodes(
            node_object("n", cpu="4"),
            node_object("cordoned", cpu="100", unschedulable=True),
            node_object("tainted", cpu="100", taints=["own=others:NoSchedule"]),
        )
        await fill(it, 4, priority=1)
        add_gang(it, "g", 5, cpu="1", priority=100)
        await it.until(lambda: told(it, "g-4"))
        assert [Watches.decided.count(f"g-{number}") for number in range(5)] == [1] * 5
        assert len(placed(it)) == 4, "nobody has left in vain"

        it.add_nodes(node_object("another", cpu="1"))
        await it.until(lambda: len({f"g-{number}" for number in range(5)} & placed(it)) == 5, seconds=60)
