"""CapacityScheduling: which quota rejects a pod, which pods may be preempted, and the messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from plugins.node_resources.fit import NodeResourcesFit
from plugins.preemption.disruption_budgets import BUDGETS
from plugins.preemption.protection import (
    MIN_RUN_TIME,
    PRIORITY_CLASSES,
    PROTECTED,
    MinRunTime,
    ProtectionArgs,
)
from plugins.preemption.ranking import Unit
from plugins.quotas.capacity_scheduling import Accounts, CapacityScheduling, CapacitySchedulingArgs
from plugins.quotas.elastic_quotas import ELASTIC_QUOTAS, NamespaceUsage
from scheduler.clock import rfc3339
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.engine.cycle.shared import Profiles
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.state.cache import Cache
from scheduler.engine.state.nominator import Nominator
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework import (
    ActionType,
    ClusterEvent,
    Code,
    CycleState,
    Diagnosis,
    EventResource,
    QueueingHint,
)
from scheduler.framework.pod_groups import PodGroup
from scheduler.framework.preemption import REPORT, PreemptionReport
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.loop_work import run_to_end
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from scheduler.objects.wording import Duration
from scheduler.testing import Fakes
from scheduler.testing.fakes import FakeSleep
from tests.support import virtual_time
from tests.support.builders import node, pod, pod_object
from tests.support.scripted_plugins import framework_of
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugins.preemption.candidates import Choice
    from scheduler.framework import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

PLENTY = {"memory": "1Ti", "ephemeral-storage": "1Ti"}


def quota(
    namespace: str,
    min_: Any = None,
    max_: Any = None,
    *,
    name: str = "q",
    created: str = "2026-03-01T08:00:00Z",
) -> dict[str, Any]:
    """An ElasticQuota; a number means cpus, with plenty of memory."""
    spec = {
        key: {"cpu": str(given), **PLENTY} if isinstance(given, int) else given
        for key, given in (("min", min_), ("max", max_))
        if given is not None
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
        "spec": spec,
    }


@dataclass(frozen=True)
class Started:
    """The arguments of a started preemption."""

    node: str
    victims: Sequence[str]


class Noted(NoPreemptions):
    def __init__(self) -> None:
        self.started: list[Started] = []
        self.quotas: list[str] = []

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None:
        assert plugin == "CapacityScheduling"
        self.started.append(Started(node_name, [victim.key for victim in victims]))
        self.quotas.append(quota)


@dataclass
class World:
    """A cluster with quotas, and the plugin beside NodeResourcesFit."""

    quotas: Sequence[Mapping[str, Any]] = ()
    pods: Sequence[PodInfo] = ()
    nodes: Sequence[str] = ("n",)
    cpu: str = "4"
    cache: Cache = field(default_factory=Cache)
    nominator: Nominator = field(default_factory=Nominator)
    preemptions: Noted = field(default_factory=Noted)
    fakes: Fakes = field(default_factory=Fakes)
    protection: ProtectionArgs | None = None

    def __post_init__(self) -> None:
        self.budgets = self.cache.table.watch_kind(BUDGETS)
        self.objects = self.cache.table.watch_kind(ELASTIC_QUOTAS)
        self.cache.table.watch_kind(PRIORITY_CLASSES)
        for each in self.quotas:
            self.apply(each)
        for name in self.nodes:
            self.cache.add_node(node(name, cpu=self.cpu))
        for placed in self.pods:
            self.cache.add_pod(placed)
        dry_run = DryRun()
        self.plugin = CapacityScheduling(
            args=CapacitySchedulingArgs(protection=self.protection),
            dry_run=dry_run,
            review=ExtenderReview(Profiles()),
            preemptions=self.preemptions,
            nominated=self.nominator,
            work=WithoutSlices(),
            members=PodGroups(),
            groups=Profiles(),
            cluster=TableObjects(self.cache.table),
            sleep=FakeSleep(self.fakes.clock),
            clock=self.fakes.clock,
            queued=self.fakes.queued,
            metrics=self.fakes.metrics,
        )
        self.filtering = dry_run.filtering = framework_of(made(NodeResourcesFit), self.plugin).filtering

    def apply(self, each: Mapping[str, Any]) -> None:
        self.objects[f"{each['metadata']['namespace']}/{each['metadata']['name']}"] = each

    def pre_filter(self, incoming: PodInfo) -> str:
        """Why a pod is rejected on all nodes; "" if it is not."""
        answer = self.plugin.pre_filter(CycleState(), incoming, self.cache.snapshot())
        if answer is None:
            return ""
        assert answer.code is Code.UNSCHEDULABLE
        return answer.message

    def preempt(self, incoming: PodInfo) -> tuple[Status, CycleState]:
        """Let a pod that fits nowhere preempt."""
        snapshot, state = self.cache.snapshot(), AttemptState()
        diagnosis = Diagnosis.blank(snapshot.n_nodes)
        status = self.filtering.run_pre_filter(state, incoming, snapshot, diagnosis)
        if status.is_success:
            feasible = self.filtering.find_feasible(
                state, incoming, snapshot, diagnosis, rows=snapshot.all_rows, nominated={}
            )
            assert not feasible.size, "it fits"
        result = virtual_time.run(self.plugin.post_filter(state, incoming, snapshot, diagnosis))
        return result.status, state


def running(name: str, namespace: str, cpu: str = "1", *, on: str = "n", **fields: Any) -> PodInfo:
    return pod(name, namespace=namespace, cpu=cpu, node=on, **fields)


def incoming(namespace: str = "a", cpu: str = "1", **fields: Any) -> PodInfo:
    return pod("p", namespace=namespace, cpu=cpu, **fields)


MORE_THAN_MAX = "Pod a/p is rejected in PreFilter because ElasticQuota a is more than Max"
MORE_THAN_MIN = "Pod a/p is rejected in PreFilter because total ElasticQuota used is more than min"


@pytest.mark.parametrize(
    ("quotas", "pods", "expected"),
    [
        pytest.param([], [running("r", "a", "4")], "", id="no quota"),
        pytest.param([quota("b", 0, 0)], [running("r", "a", "4")], "", id="quotas of others only"),
        pytest.param([quota("a", 4, 2)], [running("r", "a")], "", id="up to max"),
        pytest.param([quota("a", 4, 2)], [running("r", "a", "1001m")], MORE_THAN_MAX, id="beyond max"),
        pytest.param([quota("a", 2, 4)], [running("r", "a")], "", id="up to min"),
        pytest.param(
            [quota("a", 2, 4)], [running("r", "a", "2")], MORE_THAN_MIN, id="no namespace to borrow from"
        ),
        pytest.param([quota("a", 2, 4), quota("b", 2)], [running("r", "a", "2")], "", id="borrows"),
        pytest.param(
            [quota("a", 2, 4), quota("b", 2)],
            [running("r", "a", "2"), running("s", "b", "2")],
            MORE_THAN_MIN,
            id="the lender uses its min",
        ),
        pytest.param([quota("a", 1), quota("b", 1, 1)], [running("r", "a")], "", id="no max is no limit"),
        pytest.param([quota("a", None, 4)], [], MORE_THAN_MIN, id="without min nothing is guaranteed"),
        pytest.param([quota("a", 4, {})], [], MORE_THAN_MAX, id="an empty max allows nothing"),
        pytest.param([quota("a", 4, {"cpu": 4})], [], "", id="a resource outside max that no pod uses"),
        pytest.param(
            [quota("a", 4, {"cpu": 4})],
            [running("r", "a", memory="1")],
            MORE_THAN_MAX,
            id="a max without memory allows none",
        ),
        pytest.param(
            [quota("a", 0, 0, name="late", created="2026-03-02T08:00:00Z"), quota("a", 9, 9, name="old")],
            [],
            "",
            id="the oldest of two holds",
        ),
        pytest.param(
            [quota("a", 4, {"cpu": "many"})], [running("r", "a", "9")], "", id="no quantity, no quota"
        ),
        pytest.param(
            [quota("a", 4), quota("b", -4)],
            [running("r", "a", "3")],
            "",
            id="negative amounts lower no total",
        ),
        pytest.param(
            [quota("a", 4), quota("b", {"cpu": "8Ei"})],
            [running("r", "a", "3")],
            "",
            id="overflowing amounts lower no total",
        ),
    ],
)
def test_a_pod_is_rejected_with_the_message_of_upstream(
    quotas: Sequence[Mapping[str, Any]], pods: Sequence[PodInfo], expected: str
) -> None:
    assert World(quotas, pods).pre_filter(incoming()) == expected


@pytest.mark.parametrize(
    ("quotas", "used", "details"),
    [
        pytest.param(
            [quota("a", 1, 2)],
            "2",
            ["ElasticQuota of namespace a: 2 cpu used, 1 requested, limit 2"],
            id="its max",
        ),
        pytest.param(
            [quota("a", 1, 8), quota("b", 2)],
            "3",
            ["all ElasticQuotas together: 3 cpu used, 1 requested, limit 3"],
            id="the sum of all min",
        ),
        pytest.param([quota("a", 8)], "1", [], id="within both"),
        pytest.param([], "1", [], id="no quota"),
    ],
)
def test_the_numbers_of_a_quota_are_explained(
    quotas: Sequence[Mapping[str, Any]], used: str, details: list[str]
) -> None:
    world = World(quotas, [running("r", "a", used)])

    assert world.plugin.why(incoming(), world.cache.snapshot(), None) == details
    assert bool(world.pre_filter(incoming())) is bool(details)


@pytest.mark.parametrize(
    ("min_", "max_", "used", "expected"),
    [
        pytest.param({}, {}, 1, MORE_THAN_MIN, id="missing in min is none, in max no limit"),
        pytest.param({"example.com/gpu": 2}, {"example.com/gpu": 2}, 1, "", id="up to both"),
        pytest.param({"example.com/gpu": 9}, {"example.com/gpu": 2}, 2, MORE_THAN_MAX, id="beyond max"),
    ],
)
def test_other_resources_count_if_they_are_requested(
    min_: Mapping[str, Any], max_: Mapping[str, Any], used: int, expected: str
) -> None:
    native = {"cpu": 9, **PLENTY}
    world = World(
        [quota("a", {**native, **min_}, {**native, **max_})],
        [running("r", "a", requests={"example.com/gpu": used})],
    )

    assert world.pre_filter(incoming(requests={"example.com/gpu": 1})) == expected


@pytest.mark.parametrize(
    ("namespace", "priority", "quotas", "expected"),
    [
        pytest.param("a", 5, [quota("a", 9, 2)], MORE_THAN_MAX, id="its own, of the same priority: max"),
        pytest.param("a", 5, [quota("a", 2)], MORE_THAN_MIN, id="its own, of the same priority: min"),
        pytest.param("a", 4, [quota("a", 1, 1)], "", id="its own, of a lower priority"),
        pytest.param("b", 0, [quota("a", 0), quota("b", 2)], MORE_THAN_MIN, id="another's within its min"),
        pytest.param("c", 9, [quota("a", 2)], "", id="one without a quota"),
    ],
)
def test_requests_of_nominated_pods_count(
    namespace: str, priority: int, quotas: Sequence[Mapping[str, Any]], expected: str
) -> None:
    world = World(quotas)
    world.nominator.add(pod("n", namespace=namespace, cpu="2", priority=priority), "n")
    world.nominator.add(incoming(priority=5), "n")  # the pod itself is not counted twice

    assert world.pre_filter(incoming(priority=5)) == expected


def test_nominated_requests_above_the_min_of_their_namespace_do_not_count() -> None:
    world = World([quota("a", 4), quota("b", 1)], [running("r", "b", "2")])
    world.nominator.add(pod("n", namespace="b", cpu="3", priority=9), "n")

    assert world.pre_filter(incoming()) == ""


def test_usage_follows_pods_nodes_and_quotas() -> None:
    world = World([quota("a", 9, 2)], nodes=("n", "m"))
    reported = [world.pre_filter(incoming())]
    assumed = world.cache.assume(pod("r", namespace="a", cpu="2"), "n")
    reported.append(world.pre_filter(incoming()))
    world.cache.forget(assumed.uid)
    reported.append(world.pre_filter(incoming()))
    world.cache.add_pod(running("s", "a", "2", on="m"))
    world.cache.remove_node("n")
    reported.append(world.pre_filter(incoming()))
    world.apply(quota("a", 9, 3))
    reported.append(world.pre_filter(incoming()))
    world.cache.recount()
    reported.append(world.pre_filter(incoming(cpu="2")))
    world.cache.remove_pod("uid-of-a-s")
    reported.append(world.pre_filter(incoming(cpu="2")))

    assert reported == ["", MORE_THAN_MAX, "", MORE_THAN_MAX, "", MORE_THAN_MAX, ""]


def test_an_overlay_has_its_own_usage() -> None:
    world = World([quota("a", 9, 2)], [running("r", "a", "2")])
    snapshot = world.cache.snapshot()
    gone = snapshot.overlay(remove=[(0, running("r", "a", "2"))])

    assert world.plugin.pre_filter(CycleState(), incoming(), gone) is None
    assert world.pre_filter(incoming()) == MORE_THAN_MAX


def made_room(world: World, wanted: PodInfo) -> Started:
    status, _ = world.preempt(wanted)
    assert status.is_success, status.message
    [started] = world.preemptions.started
    return started


def test_within_its_min_a_namespace_reclaims_borrowed_capacity() -> None:
    world = World(
        [quota("a", 2), quota("b", 2)],
        [running(f"b{number}", "b", priority=1000 + number) for number in range(4)],
    )

    assert made_room(world, incoming()) == Started("n", ["b/b0"])


def test_a_preemption_names_the_quota_of_its_pod() -> None:
    world = World([quota("a", 2), quota("b", 2)], [running(f"b{number}", "b") for number in range(4)])

    made_room(world, incoming())

    assert world.preemptions.quotas == ["a/q"]


def test_no_more_than_the_borrowed_amount_is_reclaimed() -> None:
    world = World(
        [quota("a", 3), quota("b", 2)], [running(f"b{number}", "b", "1500m") for number in range(2)]
    )
    status, _ = world.preempt(incoming(cpu="3"))

    assert not status.is_success
    assert world.preemptions.started == []


def test_beyond_its_min_a_namespace_preempts_lower_priorities_of_its_own_only() -> None:
    world = World(
        [quota("a", 1), quota("b", 0), quota("z", 3)],
        [
            running("low", "a"),
            running("equal", "a", priority=5),
            running("theirs", "b", priority=-1),
            running("free", "c", priority=-1),
        ],
    )

    assert made_room(world, incoming(priority=5)) == Started("n", ["a/low"])


def test_a_pod_without_a_quota_preempts_lower_priorities_without_one() -> None:
    world = World(
        [quota("b", 1)], [running("theirs", "b", "2"), running("free", "c"), running("high", "c", priority=9)]
    )

    assert made_room(world, incoming(priority=5)) == Started("n", ["c/free"])


@pytest.mark.parametrize(
    ("quotas", "elsewhere", "expected"),
    [
        pytest.param([quota("a", 0, 9), quota("b", 999)], "b", [0], id="its own namespace, beyond min"),
        pytest.param(
            [quota("a", 9), quota("b", 0), quota("c", 999)], "c", [1], id="who borrowed, within min"
        ),
        pytest.param([quota("b", 0)], "b", [0, 2], id="who has no quota, without one"),
    ],
)
def test_only_nodes_with_pods_that_may_be_victims_are_searched(
    quotas: Sequence[Mapping[str, Any]],
    elsewhere: str,
    expected: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    namespaces = ["a", "b", "c", *(elsewhere for _ in range(20))]
    pods = [running(f"r{row}", its, "4", on=f"n{row:02}") for row, its in enumerate(namespaces)]
    world = World(quotas, pods, nodes=[each.node_name for each in pods])
    searched: list[int] = []
    choice = CapacityScheduling.choice

    def noted(
        plugin: CapacityScheduling, state: CycleState, pod: PodInfo, snapshot: Snapshot, check: None
    ) -> Choice:
        choose = choice(plugin, state, pod, snapshot, check)

        def choose_on(row: int) -> Sequence[PodInfo] | Status:
            searched.append(row)
            return choose(row)

        return choose_on

    monkeypatch.setattr(CapacityScheduling, "choice", noted)
    world.preempt(incoming(cpu="4", priority=5))

    assert searched == expected


def test_the_nodes_of_a_namespace_follow_its_pods() -> None:
    first, second = running("r", "a", on="n"), running("s", "a", on="m")
    cache, usage = World(pods=[first], nodes=("n", "m")).cache, NamespaceUsage()
    for change, expected in (
        (lambda: None, {0}),
        (lambda: cache.add_pod(second), {0, 1}),
        (lambda: cache.remove_pod(first.uid), {1}),
        (lambda: cache.remove_pod(second.uid), set()),
    ):
        change()
        snapshot = cache.snapshot()
        assert snapshot.changes is not None
        usage.follow(snapshot, snapshot.changes, {})
        assert usage.rows_with["a"] == expected


def test_preemption_respects_max() -> None:
    world = World(
        [quota("a", 0, 3), quota("z", 9)],
        [running(f"r{number}", "a", on=on) for number, on in enumerate("nnm")],
        nodes=("n", "m"),
    )
    keeps, _ = world.preempt(incoming(cpu="3", priority=5))
    gives, state = world.preempt(incoming(priority=5))

    assert "2 global quota max exceeded" in keeps.message
    assert gives.is_success
    found = state.read(REPORT, PreemptionReport).candidates
    assert {row: len(victims) for row, (victims, _) in found.items()} == {0: 1, 1: 1}


def test_a_dry_run_does_not_change_the_attempt() -> None:
    world = World([quota("a", 2), quota("b", 2)], [running(f"b{number}", "b") for number in range(4)])
    status, state = world.preempt(incoming())

    assert status.is_success
    assert state.read("CapacityScheduling", Accounts).changed == {}


def test_returned_victims_are_compared_with_nominated_requests() -> None:
    world = World([quota("a", 0, 3), quota("z", 9)], [running("r", "a", priority=1), running("s", "a")])
    world.nominator.add(pod("n", namespace="a", cpu="1", priority=9), "elsewhere")

    assert made_room(world, incoming(cpu="2", priority=5)) == Started("n", ["a/r", "a/s"])


def test_budgets_are_respected_where_possible() -> None:
    world = World(
        [quota("a", 2), quota("b", 1), quota("z", 9)],
        [
            running("kept", "b", labels={"app": "db"}),
            *(running(f"b{number}", "b", priority=9) for number in range(3)),
        ],
    )
    world.budgets["b/db"] = {
        "metadata": {"name": "db", "namespace": "b"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }

    assert sorted(made_room(world, incoming(cpu="2")).victims) == ["b/b1", "b/b2"]


@pytest.mark.parametrize(
    ("quotas", "pods", "expected"),
    [
        pytest.param(
            [quota("a", 1), quota("b", 4)],
            [running("r", "b", "4")],
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
            id="no namespace has borrowed",
        ),
        pytest.param(
            [quota("a", 0, 1), quota("z", 9)],
            [running("r", "a", priority=9)],
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
            id="only of a higher priority",
        ),
        pytest.param(
            [quota("a", 0, 1), quota("z", 9)],
            [running("r", "a", "2", priority=9), running("s", "a")],
            "preemption: 0/1 nodes are available: 1 global quota max exceeded.",
            id="max",
        ),
    ],
)
def test_a_failed_preemption_has_the_message_of_upstream(
    quotas: Sequence[Mapping[str, Any]], pods: Sequence[PodInfo], expected: str
) -> None:
    status, _ = World(quotas, pods).preempt(incoming(priority=5))

    assert status.message == expected


LEAVING = {"deletionTimestamp": "2026-03-01T09:00:00Z"}
WAITS = "preemption: not eligible due to a terminating pod on the nominated node."


def leaving(each: PodInfo) -> PodInfo:
    made_of = pod_object(each.name, namespace=each.namespace, cpu="2", node="n", priority=each.priority)
    made_of["metadata"] |= LEAVING
    return decode_pod(msgspec.json.encode(made_of))


@pytest.mark.parametrize(
    ("quotas", "victim", "waits"),
    [
        pytest.param(
            [quota("a", 1), quota("b", 9)], running("v", "a"), True, id="lower, of its own, beyond min"
        ),
        pytest.param(
            [quota("a", 1), quota("b", 9)], running("v", "a", priority=5), False, id="equal, of its own"
        ),
        pytest.param(
            [quota("a", 9), quota("b", 1)],
            running("v", "b", priority=9),
            True,
            id="a namespace that has borrowed",
        ),
        pytest.param(
            [quota("a", 9), quota("b", 9)], running("v", "b"), False, id="a namespace that has not borrowed"
        ),
        pytest.param([], running("v", "c"), True, id="neither has a quota"),
        pytest.param([quota("a", 9)], running("v", "c"), False, id="only the preemptor has one"),
    ],
)
def test_a_pod_waits_only_for_its_own_victims(
    quotas: Sequence[Mapping[str, Any]], victim: PodInfo, *, waits: bool
) -> None:
    world = World(quotas, [leaving(victim), running("high", "c", "2", priority=99)])
    status, _ = world.preempt(incoming(cpu="2", priority=5, status={"nominatedNodeName": "n"}))

    assert (status.message == WAITS) is waits, status.message


def test_a_pod_rejected_by_an_earlier_plugin_does_not_preempt() -> None:
    world = World([quota("a", 1)])
    snapshot = world.cache.snapshot()
    answer = world.plugin.post_filter(CycleState(), incoming(), snapshot, Diagnosis.blank(snapshot.n_nodes))

    assert virtual_time.run(answer).status.message == (
        "preemption: not eligible due to failed to read from cycleState"
    )


@pytest.mark.parametrize(
    ("event", "requeues"),
    [
        (ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE), True),
        (ClusterEvent(EventResource.of(ELASTIC_QUOTAS), ActionType.ADD), True),
        (ClusterEvent(EventResource.of(ELASTIC_QUOTAS), ActionType.UPDATE), True),
        (ClusterEvent(EventResource.of(ELASTIC_QUOTAS), ActionType.DELETE), True),
        (ClusterEvent(EventResource.NODE, ActionType.ADD), False),
        (ClusterEvent(EventResource.ASSIGNED_POD, ActionType.ADD), False),
    ],
    ids=lambda value: value.label if isinstance(value, ClusterEvent) else "",
)
def test_deleted_pods_and_quotas_requeue_waiting_pods(event: ClusterEvent, *, requeues: bool) -> None:
    registered = [each for each in World().plugin.events() if each.event.covers(event)]

    assert bool(registered) is requeues


def test_only_a_change_of_an_active_quota_requeues_pods() -> None:
    older, younger = quota("a", 1, 1, name="z"), quota("a", 1, 1, created="2026-03-02T08:00:00Z")
    world = World(quotas=[older, younger])
    world.plugin.pre_filter(CycleState(), incoming(), world.cache.snapshot())
    [hint] = [each.hint for each in world.plugin.events() if each.hint is not None]

    def changed(made: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {**made, **fields}

    spec, status = {"max": {"cpu": "9"}}, {"used": {"cpu": "1"}}
    assert hint(incoming(), older, changed(older, spec=spec)) is QueueingHint.QUEUE
    assert hint(incoming(), older, changed(older, status=status)) is QueueingHint.SKIP
    assert hint(incoming(), younger, changed(younger, spec=spec)) is QueueingHint.SKIP
    assert hint(incoming(), younger, None) is QueueingHint.SKIP
    assert hint(incoming(), older, None) is QueueingHint.QUEUE
    assert hint(incoming(), None, quota("b", 1, 1)) is QueueingHint.QUEUE
    oldest = quota("a", 1, 1, name="y", created="2026-01-01T08:00:00Z")
    assert hint(incoming(), None, oldest) is QueueingHint.QUEUE


def test_the_use_of_each_quota_is_shown_with_what_it_borrowed_and_what_waits() -> None:
    it = World(
        quotas=[
            quota("a", 2, 4),
            quota("b", {"cpu": "1"}),
            quota("c", {"cpu": "x"}),
        ],
        pods=[pod("p", node="n", namespace="a", cpu="3"), pod("q", node="n", namespace="b", cpu="500m")],
    )
    waiting = [
        pod("w", namespace="b", cpu="2"),
        pod("v", namespace="b", cpu="1"),
        pod("u", namespace="z", cpu="1"),
    ]

    a, b, c = run_to_end(it.plugin.quota_usages([it.plugin], waiting))

    assert (a.key, a.used["cpu"], a.guaranteed["cpu"], a.borrowed["cpu"], a.limit["cpu"]) == (
        "a/q",
        3000,
        2000,
        1000,
        4000,
    )
    assert (a.pending, a.waiting, a.fair_share) == (0, {}, None)
    assert (b.key, b.borrowed, b.limit, b.pending, b.waiting["cpu"]) == ("b/q", {}, {}, 2, 3000)
    assert (c.key, c.used) == ("c/q", {})
    assert "spec.min.cpu" in c.fault


def seconds(number: float) -> Duration:
    return Duration(int(number * 1e9))


def started(name: str, ago: float, namespace: str = "b", **fields: Any) -> PodInfo:
    """A pod that started some seconds before the time of the fakes."""
    began = rfc3339(Fakes().clock.utc_now() - timedelta(seconds=ago))
    return running(name, namespace, status={"startTime": began}, **fields)


def test_a_namespace_reclaims_no_pod_within_its_minimum_run_time() -> None:
    args = ProtectionArgs(min_run_time=MinRunTime(quota_reclaim=seconds(600)))
    pods = [started(f"b{number}", 100.0 * number, priority=number) for number in range(4)]
    world = World([quota("a", 2), quota("b", 2)], pods, protection=args)
    status, state = world.preempt(incoming())

    assert f"1 {PROTECTED.message}" in status.message
    [protected] = state.read(REPORT, PreemptionReport).protected.values()
    assert (protected.pod, protected.by) == ("b/b3", "minRunTime.quotaReclaim of the profile")
    world.fakes.clock.advance(300)
    assert made_room(world, incoming()) == Started("n", ["b/b3"]), (
        "protected pods do not use up what is borrowed"
    )


def test_the_time_for_reclaims_does_not_protect_from_pods_of_the_same_namespace() -> None:
    args = ProtectionArgs(min_run_time=MinRunTime(quota_reclaim=seconds(600)))
    pods = [started(f"a{number}", 0.0, "a") for number in range(4)]
    world = World([quota("a", 1), quota("b", 3)], pods, protection=args)

    assert made_room(world, incoming(priority=5)).node == "n"


def test_the_annotation_of_an_elastic_quota_replaces_the_time_of_the_profile() -> None:
    pods = [started(f"b{number}", 60.0) for number in range(4)]
    annotated = quota("b", 2)
    annotated["metadata"]["annotations"] = {MIN_RUN_TIME: "2m"}
    world = World([quota("a", 2), annotated], pods, protection=ProtectionArgs())
    status, state = world.preempt(incoming())

    assert not status.is_success
    assert {each.by for each in state.read(REPORT, PreemptionReport).protected.values()} == {
        "ElasticQuota b/q"
    }
    world.fakes.clock.advance(60)
    assert made_room(world, incoming()).node == "n"


def test_a_group_does_not_preempt_its_own_members_of_lower_priority() -> None:
    group = PodGroup(GroupKey(POD_GROUPS, "a", "gang"), "uid", priority=10)
    placed = [running("member", "a"), running("other", "a")]
    placed[0]._group = group.key
    world = World([quota("a", 1, 4)], placed)
    units = [Unit((each,), each.priority) for each in placed]

    found = run_to_end(world.plugin.removable(units, group, [incoming()], world.cache.snapshot(), None))

    assert [unit.pods[0].name for unit in found] == ["other"]
