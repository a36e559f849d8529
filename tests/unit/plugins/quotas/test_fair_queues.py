"""FairQueues: which queue keeps a pod back, which pods may be preempted, and the order of waiting pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from plugins.node_resources.fit import NodeResourcesFit
from plugins.preemption.disruption_budgets import BUDGETS, DisruptionBudgets
from plugins.preemption.protection import (
    MIN_RUN_TIME,
    PRIORITY_CLASSES,
    PROTECTED,
    MinRunTime,
    ProtectionArgs,
)
from plugins.quotas.fair_queues import FairQueues, FairQueuesArgs, QueueAttempt, Reclaim
from plugins.quotas.history import HistoryArgs
from plugins.quotas.queues import QUEUES
from scheduler.clock import rfc3339
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.engine.cycle.shared import Profiles
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.state.cache import Cache
from scheduler.engine.state.nominator import Nominator
from scheduler.framework import (
    ActionType,
    ClusterEvent,
    Code,
    CycleState,
    Diagnosis,
    EventResource,
    PreFilterResult,
    QueueingHint,
    Status,
)
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.objects.wording import Duration
from scheduler.testing import Fakes
from scheduler.testing.fakes import FakeSleep
from tests.support import virtual_time
from tests.support.builders import node, pod
from tests.support.scripted_plugins import framework_of
from tests.unit.plugins.plugin_calls import faults, made

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.pod import PodInfo


class Noted(NoPreemptions):
    def __init__(self) -> None:
        self.started: list[tuple[str, list[str]]] = []  # node, victims
        self.quotas: list[str] = []

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None:
        assert plugin == "FairQueues"
        self.started.append((node_name, [victim.name for victim in victims]))
        self.quotas.append(quota)

    def is_running(self, uid: str) -> bool:
        return bool(self.started)


@dataclass
class World:
    """A cluster with queues, by default one for each namespace, and the plugin beside NodeResourcesFit."""

    queues: dict[str, dict[str, Any]]
    pods: Sequence[PodInfo] = ()
    nodes: Sequence[str] = ("n",)
    cpu: str = "12"
    cache: Cache = field(default_factory=Cache)
    nominator: Nominator = field(default_factory=Nominator)
    preemptions: Noted = field(default_factory=Noted)
    fakes: Fakes = field(default_factory=Fakes)
    protection: ProtectionArgs | None = None
    history: HistoryArgs | None = None

    def __post_init__(self) -> None:
        self.budgets = self.cache.table.watch_kind(BUDGETS)
        self.objects = self.cache.table.watch_kind(QUEUES)
        self.cache.table.watch_kind(PRIORITY_CLASSES)
        for name, spec in self.queues.items():
            self.apply(name, **spec)
        for name in self.nodes:
            self.cache.add_node(node(name, cpu=self.cpu))
        for placed in self.pods:
            self.cache.add_pod(placed)
        dry_run = DryRun()
        self.plugin = FairQueues(
            args=FairQueuesArgs(protection=self.protection, history=self.history),
            dry_run=dry_run,
            review=ExtenderReview(Profiles()),
            preemptions=self.preemptions,
            nominated=self.nominator,
            members=self.cache.groups,
            groups=Profiles(),
            work=WithoutSlices(),
            clock=self.fakes.clock,
            queued=self.fakes.queued,
            cluster=TableObjects(self.cache.table),
            activator=self.fakes.activator,
            sleep=FakeSleep(self.fakes.clock),
            metrics=self.fakes.metrics,
        )
        self.filtering = dry_run.filtering = framework_of(made(NodeResourcesFit), self.plugin).filtering

    def apply(self, name: str, **spec: Any) -> None:
        parents = {each.get("parent") for each in self.queues.values()}
        claims = {} if name in parents or "podSelector" in spec else {"namespaces": [name]}
        self.objects[name] = {"metadata": {"name": name}, "spec": {**claims, **spec}}

    def wait(self, *pods: PodInfo) -> None:
        """Add pods to the queue now."""
        for each in pods:
            self.fakes.queued.put(each, since=self.fakes.clock.monotonic())
            assert self.plugin.pre_enqueue(each) is None

    def pre_filter(self, incoming: PodInfo) -> str:
        """Why a pod is kept back; "" if it is not."""
        answer = self.plugin.pre_filter(CycleState(), incoming, self.cache.snapshot())
        if answer is None:
            return ""
        if isinstance(answer, PreFilterResult):
            return f"only {sorted(answer.node_names)}"
        assert answer.code is Code.UNSCHEDULABLE
        return answer.message

    def attempt(self, incoming: PodInfo) -> Status:
        """Try a pod that fits nowhere, including PostFilter."""
        snapshot, state = self.cache.snapshot(), AttemptState()
        diagnosis = Diagnosis.blank(snapshot.n_nodes)
        status = self.filtering.run_pre_filter(state, incoming, snapshot, diagnosis)
        if status.is_success:
            feasible = self.filtering.find_feasible(
                state, incoming, snapshot, diagnosis, rows=snapshot.all_rows, nominated={}
            )
            assert not feasible.size, "it fits"
        return virtual_time.run(self.plugin.post_filter(state, incoming, snapshot, diagnosis)).status

    def refresh(self) -> list[str]:
        """The pods that the periodic check activates."""
        self.fakes.activator.activated.clear()
        virtual_time.run(self.plugin.refresh())
        return [uid.removeprefix("uid-of-") for uid in self.fakes.activator.activated]


def running(namespace: str, count: int = 1, *, on: str = "n", cpu: str = "1", **fields: Any) -> list[PodInfo]:
    first = fields.pop("first", 0)
    return [
        pod(f"{namespace}{number}", namespace=namespace, cpu=cpu, node=on, **fields)
        for number in range(first, first + count)
    ]


def incoming(namespace: str = "a", cpu: str = "1", *, name: str = "p", **fields: Any) -> PodInfo:
    return pod(name, namespace=namespace, cpu=cpu, **fields)


TWO: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
TREE: dict[str, dict[str, Any]] = {
    "research": {},
    "nlp": {"parent": "research"},
    "vision": {"parent": "research"},
    "shop": {},
}


@pytest.mark.parametrize(
    ("queues", "pods", "waiting", "wanted", "expected"),
    [
        pytest.param(TWO, running("b", 12), [], incoming("c", "9"), "", id="of no queue"),
        pytest.param(TWO, running("a", 11), [], incoming(), "", id="borrows unused capacity"),
        pytest.param(
            TWO,
            running("a", 6),
            [incoming("b", "9")],
            incoming(),
            "queue a has 6 of its fair 6 cpu, the pod requests 1",
            id="capacity with demand is not borrowed",
        ),
        pytest.param(
            TWO,
            running("a", 6),
            [incoming("b", "4")],
            incoming(),
            "",
            id="capacity above all demand is borrowed",
        ),
        pytest.param(
            {"a": {"max": {"cpu": 2}}},
            running("a", 2),
            [],
            incoming(cpu="500m"),
            "queue a has 2 of its max 2 cpu, the pod requests 0.5",
            id="max",
        ),
        pytest.param(
            TREE,
            [*running("nlp", 3), *running("vision", 3, first=3)],
            [incoming("shop", "9")],
            incoming("nlp", cpu="2"),
            "queue research/nlp has 3 of its fair 3 cpu, the pod requests 2",
            id="a queue within another",
        ),
        pytest.param(
            {**TREE, "research": {"max": {"cpu": 5}}},
            [*running("vision", 5)],
            [],
            incoming("nlp"),
            "queue research has 5 of its max 5 cpu, the pod requests 1",
            id="the one above it",
        ),
        pytest.param(
            TWO,
            [*running("c", 8), *running("a", 2, first=8)],
            [incoming("b", "9")],
            incoming(),
            "queue a has 2 of its fair 2 cpu, the pod requests 1",
            id="capacity used by pods without a queue is not divided",
        ),
        pytest.param(
            TWO, running("a", 12), [incoming("b", "9")], incoming(cpu="0"), "", id="an empty request"
        ),
    ],
)
def test_the_named_queue_rejects_a_pod(
    queues: dict[str, dict[str, Any]],
    pods: Sequence[PodInfo],
    waiting: Sequence[PodInfo],
    wanted: PodInfo,
    expected: str,
) -> None:
    world = World(queues, pods)
    world.wait(*(each for each in waiting), wanted)

    assert world.pre_filter(wanted) == expected


def test_usage_and_demand_are_updated_by_the_cluster() -> None:
    world = World(TWO, running("a", 6))
    wanted, others = incoming(), incoming("b", "9", name="others")
    world.wait(wanted, others)
    reported = [bool(world.pre_filter(wanted))]
    assumed = world.cache.assume(others, "n")
    world.plugin.reserve(CycleState(), others, "n")
    reported.append(bool(world.pre_filter(wanted)))
    world.cache.forget(assumed.uid)
    reported.append(bool(world.pre_filter(wanted)))
    world.plugin.unreserve(CycleState(), others, "n")
    reported.append(bool(world.pre_filter(wanted)))
    world.apply("a", weight=3)
    reported.append(bool(world.pre_filter(wanted)))
    world.apply("a", weight=1)
    world.cache.add_node(node("m", cpu="12"))
    reported.append(bool(world.pre_filter(wanted)))

    assert reported == [True, True, False, True, False, False]


def test_a_pod_that_no_longer_waits_is_dropped_and_others_are_requeued() -> None:
    world = World(TWO, running("a", 6))
    wanted, others = incoming(), incoming("b", "9", name="others")
    world.wait(wanted, others)
    assert world.pre_filter(wanted)
    assert world.refresh() == []
    del world.fakes.queued.waiting[others.uid]

    assert world.refresh() == [wanted.uid.removeprefix("uid-of-")]


def test_no_more_pods_are_requeued_than_fit() -> None:
    world = World(TWO, running("a", 10))
    several = [incoming(name=f"p{number}") for number in range(9)]
    others = incoming("b", "9", name="others")
    world.wait(others, *several)
    assert all(list(map(world.pre_filter, several)))
    del world.fakes.queued.waiting[others.uid]

    assert world.refresh() == ["a-p0", "a-p1"]


# Reclaim.


def test_a_queue_within_its_share_reclaims_from_any_priority() -> None:
    world = World(TWO, running("b", 12, priority=1000))
    wanted = incoming(cpu="2")
    world.wait(wanted, incoming("b", "9", name="more"))

    assert world.attempt(wanted).is_success
    [(_, victims)] = world.preemptions.started
    assert len(victims) == 2


def test_a_preemption_names_the_queue_of_its_pod() -> None:
    world = World(TWO, running("b", 12))
    wanted = incoming(cpu="2")
    world.wait(wanted, incoming("b", "9", name="more"))

    assert world.attempt(wanted).is_success
    assert world.preemptions.quotas == ["a"]


@pytest.mark.parametrize(
    ("queues", "pods", "waiting", "wanted"),
    [
        pytest.param(
            TWO, [*running("b", 2, cpu="4"), *running("a", 4)], ["b"], incoming(cpu="2"), id="below its share"
        ),
        pytest.param(TWO, running("b", 12), [], incoming("c", cpu="1"), id="a pod of no queue, by priority"),
        pytest.param(TWO, running("c", 12), [], incoming(cpu="1", priority=9), id="from no queue"),
        pytest.param(
            TREE,
            [*running("vision", 4), *running("nlp", 2, first=4), *running("shop", 6)],
            ["vision", "shop"],
            incoming("nlp", cpu="5"),
            id="beyond its own share",
        ),
    ],
)
def test_only_borrowed_capacity_is_reclaimed(
    queues: dict[str, dict[str, Any]], pods: Sequence[PodInfo], waiting: Sequence[str], wanted: PodInfo
) -> None:
    world = World(queues, pods)
    world.wait(wanted, *(incoming(name, "9", name="more") for name in waiting))

    assert not world.attempt(wanted).is_success
    assert world.preemptions.started == []


def test_within_one_parent_only_borrowing_queues_return_capacity() -> None:
    world = World(TREE, [*running("vision", 6), *running("shop", 6)])
    wanted = incoming("nlp", cpu="3")
    world.wait(wanted, incoming("vision", "9", name="more"), incoming("shop", "9", name="more"))

    assert world.attempt(wanted).is_success
    [(_, victims)] = world.preemptions.started
    assert sorted(name[:6] for name in victims) == ["vision"] * 3


def test_beyond_its_share_a_queue_preempts_lower_priorities_of_its_own_only() -> None:
    pods = [*running("a", 6, priority=1), *running("b", 6, first=6, priority=-1)]
    world = World(TWO, pods)
    wanted = incoming(priority=5)
    world.wait(wanted, incoming("b", "9", name="more"))

    assert world.attempt(wanted).is_success
    [(_, [victim])] = world.preemptions.started
    assert victim.startswith("a")


def test_a_pod_without_a_queue_preempts_by_priority() -> None:
    world = World(TWO, running("b", 12))

    assert world.attempt(incoming("c", priority=5)).is_success


def test_terminating_pods_are_not_evicted_again() -> None:
    world = World(TWO, [*running("b", 8), *running("a", 4, first=8)])
    first, second = incoming(cpu="2", name="first"), incoming(cpu="2", name="second")
    world.wait(first, second, incoming("b", "9", name="more"))

    assert world.attempt(first).is_success
    world.plugin._pending.drop(first.uid)
    assert not world.attempt(second).is_success
    assert len(world.preemptions.started) == 1
    world.preemptions.started.clear()  # the victims were deleted, or that failed
    world.refresh()
    assert world.attempt(second).is_success


def test_budgets_are_respected_where_possible() -> None:
    world = World(
        TWO, [*running("b", 2, labels={"app": "db"}), *running("b", 10, first=2, priority=9)], cpu="12"
    )
    world.budgets["b/db"] = {
        "metadata": {"name": "db", "namespace": "b"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    wanted = incoming(cpu="4")
    world.wait(wanted, incoming("b", "9", name="more"))

    assert world.attempt(wanted).is_success
    [(_, victims)] = world.preemptions.started
    assert not {"b0", "b1"} & set(victims)


def test_pods_of_a_unit_are_evicted_together_or_not_at_all() -> None:
    world = World(TWO, running("b", 12))
    wanted = incoming(cpu="3")
    world.wait(wanted, incoming("b", "9", name="more"))
    state, snapshot = CycleState(), world.cache.snapshot()
    world.plugin.pre_filter(state, wanted, snapshot)
    reclaim = Reclaim(state.read("FairQueues", QueueAttempt), wanted.priority)

    def in_fours(pods: Any) -> list[list[PodInfo]]:
        every = sorted(pods, key=lambda each: each.name)
        return [every[start : start + 4] for start in range(0, 12, 4)]

    budgets = DisruptionBudgets()
    one_by_one, whole = (reclaim.choice(snapshot, budgets)(0), reclaim.choice(snapshot, budgets, in_fours)(0))
    assert not isinstance(one_by_one, Status)
    assert len(one_by_one) == 3
    assert isinstance(whole, Status)


# The order of waiting pods.


def overdue(world: World) -> None:
    world.fakes.clock.advance(61)


def test_no_younger_pod_overtakes_one_that_waits_for_the_share_of_its_queue() -> None:
    world = World({"a": {"max": {"cpu": 4}}}, running("a", 3))
    large = incoming(cpu="2", name="large")
    world.wait(large)
    assert "max" in world.pre_filter(large)
    world.fakes.clock.advance(1)
    small, urgent = incoming(name="small"), incoming(name="urgent", priority=9)
    world.wait(small, urgent)
    assert world.pre_filter(small) == ""
    overdue(world)
    assert "max" in world.pre_filter(large)

    assert world.pre_filter(small) == "queue a keeps its next place for pod a/large, which has waited longer"
    assert world.pre_filter(urgent) == ""


def test_an_evaluation_for_an_explanation_records_nothing() -> None:
    world = World(TWO, [*running("a", 4), *running("b", 5, first=4)])
    large = incoming(cpu="3", name="large")
    world.wait(large, incoming("b", "9", name="more"))
    overlay = world.cache.snapshot().overlay()

    result = world.plugin.pre_filter(AttemptState(), incoming(cpu="1", name="large"), overlay)
    rejected = world.plugin.pre_filter(AttemptState(), large, overlay)

    assert result is None
    assert isinstance(rejected, Status), "the same answer as in an attempt"
    overdue(world)
    assert world.refresh() == [], "the pod is not among those that its share keeps back"


def test_a_pod_larger_than_the_share_of_its_queue_is_placed_in_time() -> None:
    world = World(TWO, [*running("a", 4), *running("b", 5, first=4)])
    large = incoming(cpu="3", name="large")
    world.wait(large, incoming("b", "9", name="more"))
    assert world.pre_filter(large) == "queue a has 4 of its fair 6 cpu, the pod requests 3"
    overdue(world)

    assert world.refresh() == ["a-large"]
    assert world.pre_filter(large) == ""


def test_one_node_is_held_for_a_pod_that_waits_for_capacity() -> None:
    on_n = [*running("b", 3), *running("a", 1)]
    on_m = [*running("b", 2, first=3, on="m"), *running("a", 1, first=1, on="m")]
    world = World(TWO, [*on_n, *on_m], nodes=("n", "m"), cpu="6")
    large, older = incoming(cpu="4", name="large"), incoming("b", name="older")
    world.wait(older)
    world.fakes.clock.advance(1)
    world.wait(large)
    assert not world.attempt(large).is_success
    world.fakes.clock.advance(1)
    younger = incoming("b", name="younger")
    world.wait(younger)
    assert world.pre_filter(younger) == ""
    overdue(world)
    assert not world.attempt(large).is_success

    assert world.pre_filter(younger) == "only ['n']"
    assert world.pre_filter(older) == ""
    assert world.pre_filter(large) == ""
    world.plugin.reserve(CycleState(), large, "m")
    world.refresh()
    assert world.pre_filter(younger) == ""


def test_pods_are_activated_in_the_order_in_which_they_wait() -> None:
    """A set has another order in each process, so a simulation or a replay would differ."""
    world = World(TWO, [*running("b", 6), *running("a", 2, on="m")], nodes=("n", "m"), cpu="6")
    large, younger = incoming(cpu="5", name="large"), [incoming("b", name=f"p{n}") for n in range(9)]
    world.wait(large, *younger)
    overdue(world)
    assert not world.attempt(large).is_success
    world.plugin._waiting_order.sent_elsewhere.update(each.uid for each in younger)

    world.plugin.reserve(CycleState(), large, "m")

    assert world.refresh() == [f"b-p{number}" for number in range(9)]


def test_a_pod_that_fits_on_no_node_holds_no_capacity() -> None:
    world = World(TWO, running("a", 6))
    hopeless, wanted = incoming("b", "99", name="hopeless"), incoming()
    world.wait(hopeless, wanted)
    assert world.pre_filter(wanted)
    overdue(world)
    assert not world.attempt(hopeless).is_success

    assert world.pre_filter(wanted) == ""


def test_a_deleted_pod_that_fits_on_no_node_leaves_other_demand_unchanged() -> None:
    world = World(TWO, running("a", 6))
    hopeless, wanted = incoming("b", "99", name="hopeless"), incoming()
    world.wait(hopeless, incoming("b", "9", name="more"), wanted)
    assert not world.attempt(hopeless).is_success
    del world.fakes.queued.waiting[hopeless.uid]
    world.refresh()

    assert world.pre_filter(wanted) == "queue a has 6 of its fair 6 cpu, the pod requests 1"


# Requeueing and reports.


@pytest.mark.parametrize(
    ("event", "requeues"),
    [
        (ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE), True),
        (ClusterEvent(EventResource.ASSIGNED_POD, ActionType.UPDATE_POD_SCALE_DOWN), True),
        (ClusterEvent(EventResource.of(QUEUES), ActionType.UPDATE), True),
        (ClusterEvent(EventResource.NODE, ActionType.ADD), True),
        (ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_ALLOCATABLE), True),
        (ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_LABEL), False),
        (ClusterEvent(EventResource.ASSIGNED_POD, ActionType.ADD), False),
    ],
    ids=lambda value: value.label if isinstance(value, ClusterEvent) else "",
)
def test_the_events_that_requeue_waiting_pods(event: ClusterEvent, *, requeues: bool) -> None:
    assert any(each.event.covers(event) for each in World(TWO).plugin.events()) is requeues


def test_a_hint_compares_the_request_with_the_current_share() -> None:
    world = World(TWO, [*running("a", 6), *running("b", 6, first=6)])
    wanted = incoming()
    world.wait(wanted, incoming("b", "9", name="more"))
    deleted = next(each for each in world.plugin.events() if each.event.action & ActionType.DELETE)
    assert deleted.hint is not None
    gone = running("b", 1, first=6)[0]
    world.cache.remove_pod(gone.uid)
    assert deleted.hint(wanted, gone, None) is QueueingHint.SKIP
    gone = running("a", 1)[0]
    world.cache.remove_pod(gone.uid)

    assert deleted.hint(wanted, gone, None) is QueueingHint.QUEUE


def test_the_reason_names_the_blocking_pod_and_the_wait() -> None:
    world = World(TWO, running("a", 6))
    wanted = incoming()
    world.wait(wanted, incoming("b", "9", name="more"))
    world.fakes.clock.advance(7)

    assert world.plugin.why(wanted, world.cache.snapshot(), None) == [
        "queue a has 6 of its fair 6 cpu, the pod requests 1",
        "the pod has waited for 7s",
    ]


def test_a_negative_wait_is_refused() -> None:
    assert faults(FairQueuesArgs, longestWaitSeconds=-1) == [
        "longestWaitSeconds: at least 0 is expected, was -1"
    ]


def began(count: int, ago: float, *, first: int = 0, namespace: str = "b") -> list[PodInfo]:
    """Pods that started some seconds before the time of the fakes."""
    start = rfc3339(Fakes().clock.utc_now() - timedelta(seconds=ago))
    return running(namespace, count, first=first, cpu="1", status={"startTime": start})


def test_a_fair_share_reclaims_no_pod_within_its_minimum_run_time() -> None:
    args = ProtectionArgs(min_run_time=MinRunTime(fair_share_reclaim=Duration.parse("10m")))
    world = World(TWO, [*began(11, 60), *began(1, 500, first=11)], protection=args)
    wanted = incoming()
    world.wait(wanted)

    assert f"1 {PROTECTED.message}" in world.attempt(wanted).message
    assert world.fakes.queued.times == {wanted.uid: 100.0}
    world.fakes.clock.advance(100)
    assert world.attempt(wanted).is_success
    assert world.preemptions.started == [("n", ["b11"])]


@pytest.mark.parametrize(
    ("holder", "by"),
    [("nlp", "queue research/nlp"), ("research", "queue research")],
    ids=["its own", "an ancestor"],
)
def test_the_annotation_of_the_nearest_queue_replaces_the_time_of_the_profile(holder: str, by: str) -> None:
    world = World(TREE, began(12, 60, namespace="nlp"), protection=ProtectionArgs())
    if holder != "research":
        world.objects["research"]["metadata"]["annotations"] = {MIN_RUN_TIME: "1h"}
    world.objects[holder] = {
        **world.objects[holder],
        "metadata": {"name": holder, "annotations": {MIN_RUN_TIME: "2m"}},
    }
    wanted = incoming("shop")
    world.wait(wanted)

    assert not world.attempt(wanted).is_success
    placed = next(iter(world.cache.snapshot().pods_on(0)))
    found = world.plugin.protections(placed, world.cache.snapshot())
    assert [each.by for each in found.values()] == [by, by]
    world.fakes.clock.advance(60)
    assert world.attempt(wanted).is_success
