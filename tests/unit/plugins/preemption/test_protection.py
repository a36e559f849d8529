"""Protection of pods from preemption: which pods are protected, from which cause, until when and by what."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from plugins.node_resources.fit import NodeResourcesFit
from plugins.preemption.candidates import Results
from plugins.preemption.default_preemption import DefaultPreemption, DefaultPreemptionArgs
from plugins.preemption.disruption_budgets import BUDGETS
from plugins.preemption.protection import (
    MIN_RUN_TIME,
    PRIORITY_CLASSES,
    PROTECTED,
    Cause,
    EvictionsPerHour,
    MinRunTime,
    ProtectionArgs,
    _parsed,
    min_run_times,
)
from plugins.quotas.capacity_scheduling import CapacitySchedulingArgs
from plugins.quotas.fair_queues import FairQueuesArgs
from scheduler.clock import rfc3339
from scheduler.configuration.profile_plugins import decode_args
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.engine.cycle.shared import Profiles
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.state.cache import Cache
from scheduler.errors import ConfigurationError
from scheduler.framework import Diagnosis, PodGroup
from scheduler.framework.preemption import REPORT, PreemptionReport, Protected, RecentEvictions
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.loop_work import run_to_end
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from scheduler.objects.wording import Duration
from scheduler.testing import Fakes
from scheduler.testing.fakes import FakeFeatures
from tests.support import virtual_time
from tests.support.builders import node, pod
from tests.support.scripted_plugins import framework_of
from tests.support.snapshots import snapshot_of
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugins.preemption.protection import ProtectionCheck
    from scheduler.framework import Status
    from scheduler.objects.pod import PodInfo

MINIMUM_PRIORITY = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
TOLERATION_SECONDS = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"


def minutes(number: float) -> Duration:
    return Duration.parse(f"{number}m")


class Noted(NoPreemptions):
    """Records preemptions, and counts them as evictions."""

    def __init__(self, fakes: Fakes) -> None:
        self.recent = RecentEvictions()
        self.victims: list[list[str]] = []
        self._clock = fakes.clock

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None:
        self.victims.append([victim.name for victim in victims])
        self.recent.note(victims, self._clock.monotonic())


@dataclass
class World:
    """A cluster of nodes with two cpus, and DefaultPreemption beside NodeResourcesFit."""

    protection: ProtectionArgs | None
    classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # name -> annotations
    nodes: Sequence[str] = ("n",)
    version: str = ""
    fakes: Fakes = field(default_factory=Fakes)
    cache: Cache = field(default_factory=Cache)

    def __post_init__(self) -> None:
        self.preemptions = Noted(self.fakes)
        self.cache.table.watch_kind(BUDGETS)
        self.objects = self.cache.table.watch_kind(PRIORITY_CLASSES)
        for name, given in self.classes.items():
            self.objects[name] = {"metadata": {"name": name, "annotations": dict(given)}, "value": 1}
        for name in self.nodes:
            self.cache.add_node(node(name, cpu="2"))
        self.dry_run = DryRun()
        self.plugin = DefaultPreemption(
            args=DefaultPreemptionArgs(protection=self.protection),
            dry_run=self.dry_run,
            review=ExtenderReview(Profiles()),
            preemptions=self.preemptions,
            work=WithoutSlices(),
            members=self.cache.groups,
            groups=self.fakes.pod_groups,
            features=FakeFeatures(self.version),
            clock=self.fakes.clock,
            queued=self.fakes.queued,
            metrics=self.fakes.metrics,
        )
        self.filtering = self.dry_run.filtering = framework_of(made(NodeResourcesFit), self.plugin).filtering

    def ago(self, seconds: float) -> dict[str, str]:
        """The status of a pod that started some seconds before now."""
        return {"startTime": rfc3339(self.fakes.clock.utc_now() - timedelta(seconds=seconds))}

    def run(
        self, name: str, *, ran: float | None = 0.0, on: str = "n", cpu: str = "2", **fields: Any
    ) -> PodInfo:
        """Add a pod that has run for some seconds; None if its kubelet has not reported its start."""
        status = {} if ran is None else self.ago(ran)
        placed = pod(name, node=on, cpu=cpu, status=status, **fields)
        self.cache.add_pod(placed)
        return placed

    def attempt(self, incoming: PodInfo | None = None) -> tuple[Status, AttemptState]:
        """Try a pod that fits nowhere; by default one of priority 5."""
        incoming = incoming or pod("p", cpu="2", priority=5)
        snapshot, state = self.cache.snapshot(), AttemptState()
        diagnosis = Diagnosis.blank(snapshot.n_nodes)
        self.filtering.run_pre_filter(state, incoming, snapshot, diagnosis)
        feasible = self.filtering.find_feasible(
            state, incoming, snapshot, diagnosis, rows=snapshot.all_rows, nominated={}
        )
        assert not feasible.size, "it fits"
        result = virtual_time.run(self.plugin.post_filter(state, incoming, snapshot, diagnosis))
        return result.status, state

    def succeeds(self, incoming: PodInfo | None = None) -> bool:
        return self.attempt(incoming)[0].is_success

    def check(self, priority: int = 5) -> ProtectionCheck:
        found = self.plugin._check(priority, self.cache.snapshot())
        assert found is not None
        return found

    def left(self, protected: Protected | None) -> float:
        """The seconds until a protection ends."""
        assert protected is not None
        return protected.until - self.fakes.clock.utc_now().timestamp()


def profile() -> ProtectionArgs:
    return ProtectionArgs(min_run_time=MinRunTime(preemption=minutes(10)))


def test_without_settings_a_pod_is_preempted_at_once() -> None:
    world = World(None)
    world.run("victim", ran=0)

    assert world.succeeds()
    assert world.plugin.needs == DefaultPreemption.needs
    assert world.fakes.queued.times == {}


def test_a_pod_is_not_preempted_before_its_minimum_run_time() -> None:
    world = World(profile())
    world.run("victim", ran=60)
    status, state = world.attempt()

    assert not status.is_success
    assert f"1 {PROTECTED.message}" in status.message
    [protected] = state.read(REPORT, PreemptionReport).protected.values()
    assert (protected.pod, protected.by) == ("default/victim", "minRunTime.preemption of the profile")
    assert world.left(protected) == 540.0


def test_after_its_minimum_run_time_a_pod_is_preempted() -> None:
    world = World(profile())
    world.run("victim", ran=600)

    assert world.succeeds()
    assert world.preemptions.victims == [["victim"]]


def test_the_preemptor_is_tried_again_when_the_first_protection_ends() -> None:
    world = World(profile(), nodes=("n", "m"))
    world.run("one", ran=60, on="n")
    world.run("two", ran=200, on="m")
    world.fakes.queued.put(preemptor := pod("p", cpu="2", priority=5))

    assert not world.succeeds(preemptor)
    assert world.fakes.queued.times == {preemptor.uid: 400.0}
    world.fakes.clock.advance(400)
    assert world.succeeds(preemptor)
    assert world.preemptions.victims == [["two"]]


def test_results_that_pods_share_end_with_the_protection_they_depend_on() -> None:
    """The node does not change, so only the end of the protection can make the shared result invalid."""
    world = World(profile())
    world.run("victim", ran=60)

    assert not world.succeeds(pod("first", cpu="2", priority=5))
    world.fakes.clock.advance(539)
    assert not world.succeeds(pod("second", cpu="2", priority=5))
    world.fakes.clock.advance(1)
    assert world.succeeds(pod("third", cpu="2", priority=5))


def test_a_result_is_forgotten_when_the_protection_on_its_node_ends() -> None:
    snapshot, results = snapshot_of("a", "b"), Results()
    results.follow(snapshot)
    results.put({0: PROTECTED, 1: PROTECTED}, {0: Protected("default/a", 10.0, "", "")})

    results.follow(snapshot, now=9.0)
    assert set(results.by_row) == {0, 1}
    results.follow(snapshot, now=10.0)
    assert set(results.by_row) == {1}
    assert results.protected == {}


def test_the_ends_of_protections_are_kept_for_each_node_only_once() -> None:
    snapshot, results = snapshot_of("a"), Results()
    results.follow(snapshot)
    for number in range(1000):
        results.put({0: PROTECTED}, {0: Protected("default/a", 10.0 + number, "", "")})

    assert len(results._ends) < 100
    results.follow(snapshot, now=1009.0)
    assert results.by_row == {}


def test_the_victims_among_unprotected_pods_are_those_of_kube_scheduler() -> None:
    world = World(profile(), nodes=("n", "m"))
    for name, ran, priority in (("a", 60, 0), ("b", 700, 1)):
        world.run(name, ran=ran, on="n", cpu="1", priority=priority)
    world.run("c", ran=700, on="m", priority=2)
    status, state = world.attempt(pod("p", cpu="1", priority=5))

    assert status.is_success
    assert world.preemptions.victims == [["b"]], "the lowest priority of those that are not protected"
    assert [each.pod for each in state.read(REPORT, PreemptionReport).protected.values()] == ["default/a"]


def test_a_pod_without_a_start_is_protected_as_one_that_begins_now() -> None:
    world = World(profile())
    placed = world.run("victim", ran=None)

    assert world.left(world.check().protection_of((placed,), Cause.PREEMPTION)) == 600.0


def test_a_terminating_pod_is_not_protected() -> None:
    world = World(profile())
    leaving = msgspec.structs.replace(
        (placed := world.run("victim")).pod,
        metadata=msgspec.structs.replace(placed.pod.metadata, deletion_timestamp="2026-03-01T08:00:00Z"),
    )

    assert world.check().protection_of((type(placed)(leaving),), Cause.PREEMPTION) is None


@pytest.mark.parametrize(
    ("annotations", "seconds", "by"),
    [
        pytest.param({}, 600.0, "minRunTime.preemption of the profile", id="none"),
        pytest.param({MIN_RUN_TIME: "1h"}, 3600.0, "PriorityClass batch", id="longer"),
        pytest.param({MIN_RUN_TIME: "1m"}, 60.0, "PriorityClass batch", id="shorter"),
        pytest.param(
            {MIN_RUN_TIME: "1h", Cause.PREEMPTION.annotation: "2m"},
            120.0,
            "PriorityClass batch",
            id="for the cause",
        ),
        pytest.param(
            {Cause.QUOTA_RECLAIM.annotation: "2m"},
            600.0,
            "minRunTime.preemption of the profile",
            id="another cause",
        ),
        pytest.param({MIN_RUN_TIME: "soon"}, 600.0, "minRunTime.preemption of the profile", id="invalid"),
    ],
)
def test_the_annotation_of_a_priority_class_replaces_the_time_of_the_profile(
    annotations: dict[str, str], seconds: float, by: str
) -> None:
    world = World(profile(), {"batch": annotations})
    found = world.check().protection_of((world.run("v", priority_class_name="batch"),), Cause.PREEMPTION)

    assert (world.left(found), found and found.by) == (seconds, by)


def test_a_priority_class_without_a_minimum_run_time_exempts_its_pods() -> None:
    world = World(profile(), {"spot": {MIN_RUN_TIME: "0s"}})
    world.run("victim", priority_class_name="spot")

    assert world.succeeds()


def test_a_changed_priority_class_counts_in_the_next_attempt() -> None:
    world = World(profile(), {"batch": {}})
    world.run("victim", priority_class_name="batch")

    assert not world.succeeds()
    assert not world.succeeds(), "from now on pods of its kind share results"
    world.objects["batch"] = {"metadata": {"name": "batch", "annotations": {MIN_RUN_TIME: "0s"}}, "value": 1}
    assert world.succeeds()


def test_an_invalid_annotation_of_a_priority_class_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(profile(), {"batch": {MIN_RUN_TIME: "soon"}})
    world.run("victim", priority_class_name="batch")
    with caplog.at_level(logging.WARNING):
        world.attempt()
        world.attempt(pod("q", cpu="2", priority=6))

    assert [record.message for record in caplog.records] == ["Annotation is invalid and is ignored"]


@pytest.mark.parametrize(
    ("most", "own", "seconds"),
    [
        pytest.param(0, "1h", 600.0, id="no maximum is set"),
        pytest.param(30, "20m", 1200.0, id="below the maximum"),
        pytest.param(30, "1h", 1800.0, id="above the maximum"),
        pytest.param(30, "1m", 600.0, id="shorter than the time of the profile"),
        pytest.param(30, "soon", 600.0, id="invalid"),
    ],
)
def test_a_pod_lengthens_its_own_time_up_to_the_maximum_of_the_profile(
    most: float, own: str, seconds: float
) -> None:
    args = ProtectionArgs(
        min_run_time=MinRunTime(preemption=minutes(10)),
        max_pod_min_run_time=MinRunTime(preemption=minutes(most)),
    )
    world = World(args)
    placed = world.run("victim", annotations={MIN_RUN_TIME: own})

    assert world.left(world.check().protection_of((placed,), Cause.PREEMPTION)) == seconds
    assert world.plugin.needs.bound_pod_annotations is (most > 0)


@pytest.mark.parametrize(
    ("annotations", "ran", "priority", "is_protected"),
    [
        pytest.param({MINIMUM_PRIORITY: "100", TOLERATION_SECONDS: "60"}, 59, 99, True, id="within the time"),
        pytest.param({MINIMUM_PRIORITY: "100", TOLERATION_SECONDS: "60"}, 60, 99, False, id="after the time"),
        pytest.param(
            {MINIMUM_PRIORITY: "100", TOLERATION_SECONDS: "60"}, 59, 100, False, id="a higher priority"
        ),
        pytest.param({MINIMUM_PRIORITY: "100", TOLERATION_SECONDS: "-1"}, 10**6, 99, True, id="without end"),
        pytest.param({MINIMUM_PRIORITY: "100"}, 0, 99, False, id="no time"),
        pytest.param({TOLERATION_SECONDS: "60"}, 0, 99, False, id="no priority: one more than the value"),
        pytest.param({TOLERATION_SECONDS: "60"}, 0, 1, True, id="no priority: the value"),
        pytest.param({MINIMUM_PRIORITY: "1e3", TOLERATION_SECONDS: "60"}, 0, 9, False, id="invalid"),
        pytest.param(
            {MINIMUM_PRIORITY: "1_000", TOLERATION_SECONDS: "60"}, 0, 9, False, id="not an integer of Go"
        ),
        pytest.param({MINIMUM_PRIORITY: "9999999999", TOLERATION_SECONDS: "60"}, 0, 9, False, id="too large"),
    ],
)
def test_tolerations_of_preemption_are_those_of_scheduler_plugins(
    annotations: dict[str, str], ran: float, priority: int, is_protected: bool
) -> None:
    world = World(ProtectionArgs(), {"batch": annotations})
    placed = world.run("victim", ran=ran, priority=1, priority_class_name="batch")

    assert world.check(priority).protects((placed,), Cause.PREEMPTION) is is_protected
    assert not world.check(priority).protects((placed,), Cause.QUOTA_RECLAIM)


def test_a_toleration_without_end_sets_no_time_for_the_next_attempt() -> None:
    world = World(ProtectionArgs(), {"batch": {MINIMUM_PRIORITY: "100", TOLERATION_SECONDS: "-1"}})
    world.run("victim", priority=1, priority_class_name="batch")
    status, state = world.attempt()

    assert not status.is_success
    assert [each.until for each in state.read(REPORT, PreemptionReport).protected.values()] == [inf]
    assert world.fakes.queued.times == {}


def test_the_priority_that_would_help_is_above_what_the_victims_tolerate() -> None:
    world = World(ProtectionArgs(), {"batch": {MINIMUM_PRIORITY: "100", TOLERATION_SECONDS: "-1"}})
    world.run("victim", priority=1, priority_class_name="batch")
    snapshot, state, preemptor = world.cache.snapshot(), AttemptState(), pod("p", cpu="2", priority=5)
    diagnosis = Diagnosis.blank(1)
    world.filtering.run_pre_filter(state, preemptor, snapshot, diagnosis)
    world.filtering.find_feasible(state, preemptor, snapshot, diagnosis, rows=snapshot.all_rows, nominated={})
    change = world.plugin.remedy(state, preemptor, snapshot, diagnosis)

    assert change is not None
    assert change.text.startswith("its priority were 100 or more (now 5)")


def grouped(world: World, *ran: float, classes: Sequence[str] = ("", "")) -> list[PodInfo]:
    """Add the pods of a group that leaves as a whole, each on its node."""
    key = GroupKey(POD_GROUPS, "default", "g")
    world.fakes.pod_groups.groups[key] = PodGroup(key, "uid", leaves_whole=True)
    return [
        world.run(
            f"g-{place}",
            ran=each,
            on=node_name,
            priority_class_name=its_class,
            scheduling_group={"podGroupName": "g"},
        )
        for place, (each, node_name, its_class) in enumerate(zip(ran, world.nodes, classes, strict=True))
    ]


def test_a_group_that_leaves_as_a_whole_runs_since_its_first_pod_started() -> None:
    """Else a tenant could lengthen the protection of a group by replacing one pod after another."""
    world = World(profile(), nodes=("n", "m"))
    members = grouped(world, 700, 10)
    check = world.check()

    assert check.protects((members[1],), Cause.PREEMPTION)
    assert not check.protects(members, Cause.PREEMPTION)


def test_a_group_is_protected_as_long_as_its_longest_protected_pod() -> None:
    world = World(profile(), {"batch": {MIN_RUN_TIME: "1h"}})
    one, two = world.run("one", ran=700), world.run("two", ran=700, priority_class_name="batch")
    found = world.check().protection_of((one, two), Cause.PREEMPTION)

    assert (world.left(found), found and found.by) == (2900.0, "PriorityClass batch")


def test_no_pod_of_a_protected_group_is_preempted_for_a_single_pod() -> None:
    world = World(profile(), {"long": {MIN_RUN_TIME: "20m"}}, nodes=("n", "m"), version="1.37")
    grouped(world, 700, 650, classes=("", "long"))

    assert not world.succeeds()
    world.fakes.clock.advance(500)
    assert world.succeeds()
    assert [sorted(names) for names in world.preemptions.victims] == [["g-0", "g-1"]]


def test_a_group_preempts_no_protected_units() -> None:
    world = World(profile())
    world.run("young", ran=0, cpu="1")
    world.run("old", ran=700, cpu="1")
    key, members = GroupKey(POD_GROUPS, "default", "h"), [pod("h-0", cpu="2", priority=5)]
    snapshot = world.cache.snapshot()
    units = run_to_end(world.plugin._units.of(snapshot))
    found = run_to_end(world.plugin.removable(units, PodGroup(key, "uid"), members, snapshot, world.check()))

    assert [unit.pods[0].name for unit in found] == ["old"]


# The limits of evictions.


def limited(**limits: int) -> ProtectionArgs:
    return ProtectionArgs(evictions_per_hour=EvictionsPerHour(**limits))


def owned(name: str) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": name,
            "uid": f"uid-{name}",
            "controller": True,
        }
    ]


def of_controller(each: PodInfo, name: str) -> PodInfo:
    metadata = msgspec.convert(
        {**msgspec.to_builtins(each.pod.metadata), "ownerReferences": owned(name)}, type(each.pod.metadata)
    )
    return type(each)(msgspec.structs.replace(each.pod, metadata=metadata))


def evict(world: World, *pods: PodInfo) -> None:
    world.preemptions.recent.note(pods, world.fakes.clock.monotonic())
    for each in pods:
        world.cache.remove_pod(each.uid)


def test_a_pod_of_one_name_is_preempted_no_more_often_than_the_limit() -> None:
    world = World(limited(pod=1))
    evict(world, world.run("web-0"))
    world.fakes.clock.advance(60)
    world.run("web-0")
    status, state = world.attempt()

    assert not status.is_success
    [protected] = state.read(REPORT, PreemptionReport).protected.values()
    assert (world.left(protected), protected.by) == (3540.0, "evictionsPerHour.pod of the profile")
    world.fakes.clock.advance(3540)
    assert world.succeeds()


def test_pods_of_one_controller_are_preempted_no_more_often_than_the_limit() -> None:
    world = World(limited(controller=2))
    first, second, third = (of_controller(world.run(f"a-{each}", cpu="1m"), "a") for each in range(3))
    other = of_controller(world.run("b", cpu="1m"), "b")
    evict(world, first, second)
    check = world.check()

    assert check.protects((third,), Cause.PREEMPTION)
    assert not check.protects((other,), Cause.PREEMPTION)


def test_pods_without_a_controller_have_no_common_limit() -> None:
    world = World(limited(controller=1))
    one, two = world.run("one", cpu="1m"), world.run("two", cpu="1m")
    evict(world, one)

    assert not world.check().protects((two,), Cause.PREEMPTION)


def test_victims_that_exceed_the_limit_together_are_not_preempted() -> None:
    world = World(limited(total=1), nodes=("n", "m"))
    world.run("one", on="n", cpu="1")
    world.run("two", on="n", cpu="1")
    world.run("alone", on="m", priority=4)

    assert world.succeeds()
    assert world.preemptions.victims == [["alone"]], "two victims of a lower priority would be too many"


def test_a_preemption_ends_the_results_that_pods_share_if_there_is_a_limit() -> None:
    world = World(limited(total=2), nodes=("n", "m"))
    world.run("one", on="n")
    world.run("two", on="m")

    assert world.succeeds(pod("first", cpu="2", priority=5))
    assert world.succeeds(pod("second", cpu="2", priority=5)), "from now on pods of its kind share results"
    assert not world.succeeds(pod("third", cpu="2", priority=5))


def test_evictions_count_for_an_hour_and_the_oldest_are_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recent = RecentEvictions()
    recent.note([pod("a"), pod("b")], 100.0)
    recent.note([pod("c")], 200.0)

    assert recent.allowed_at(RecentEvictions.IN_ALL, 4, 1, 300.0) == 0.0
    assert recent.allowed_at(RecentEvictions.IN_ALL, 3, 1, 300.0) == 3700.0
    assert recent.allowed_at(RecentEvictions.IN_ALL, 2, 2, 300.0) == 3800.0
    assert recent.allowed_at(RecentEvictions.IN_ALL, 2, 3, 300.0) == inf
    assert recent.allowed_at(RecentEvictions.IN_ALL, 3, 1, 3700.0) == 0.0
    assert [key for _, key, _ in recent.kept()] == ["default/c"]
    monkeypatch.setattr("scheduler.framework.preemption.MOST_EVICTIONS", 2)
    recent.note([pod("d"), pod("e")], 3700.0)
    assert [key for _, key, _ in recent.kept()] == ["default/d", "default/e"]
    assert recent.allowed_at(RecentEvictions.by_pod(pod("c")), 1, 1, 3700.0) == 0.0


# The delay.


def test_a_pod_does_not_preempt_before_the_delay_after_its_first_attempt() -> None:
    world = World(ProtectionArgs(delay=minutes(1)))
    world.run("victim", ran=700)
    preemptor = pod("p", cpu="2", priority=5)
    world.fakes.queued.put(preemptor, since=world.fakes.clock.monotonic())
    world.fakes.clock.advance(20)
    status, _ = world.attempt(preemptor)

    assert status.message == (
        "preemption: not eligible until 1m0s after the first attempt, since a node may be added."
    )
    assert world.fakes.queued.times == {preemptor.uid: 60.0}
    world.fakes.clock.advance(40)
    assert world.succeeds(preemptor)


def test_a_pod_that_preemption_cannot_help_does_not_wait_for_the_delay() -> None:
    world = World(ProtectionArgs(delay=minutes(1)))
    world.run("victim", ran=700)
    preemptor = pod("p", cpu="2000", priority=5)
    world.fakes.queued.put(preemptor, since=world.fakes.clock.monotonic())
    status, _ = world.attempt(preemptor)

    assert "Preemption is not helpful for scheduling" in status.message
    assert (world.fakes.queued.times, world.fakes.metrics.calls) == ({}, [])


def test_a_resize_does_not_wait_for_a_node() -> None:
    world = World(ProtectionArgs(delay=minutes(1)))
    world.run("victim", ran=700)
    preemptor = pod("p", cpu="2", priority=5, node="n")
    world.fakes.queued.put(preemptor)

    assert world.plugin._protection is not None
    assert world.plugin._protection.why_wait((preemptor,)) != ""
    assert "not eligible" not in world.attempt(preemptor)[0].message


def test_attempts_that_protection_ended_are_counted_by_its_kind() -> None:
    world = World(profile())
    world.run("victim")
    world.attempt()

    assert world.fakes.metrics.calls == [
        ("custom_scheduler_preemptions_prevented_total", ("min_run_time",), 1.0)
    ]


# Explanations and settings.


def test_a_pod_on_a_node_is_explained_for_each_cause() -> None:
    world = World(profile())
    placed = world.run("victim", ran=60)
    found = world.plugin.protections(placed, world.cache.snapshot())

    assert list(found) == ["preemption by priority"]
    assert world.left(found["preemption by priority"]) == 540.0
    assert World(None).plugin.protections(placed, world.cache.snapshot()) == {}


@pytest.mark.parametrize(
    ("args", "protection", "expected"),
    [
        pytest.param(DefaultPreemptionArgs, {"minRunTime": {"preemption": "-1s"}}, "protection.minRunTime.preemption: at least 0s is expected, was -1s", id="a negative time"),
        pytest.param(DefaultPreemptionArgs, {"minRunTime": {"quotaReclaim": "1s"}}, "protection.minRunTime.quotaReclaim: this plugin does not preempt for this cause", id="no quotas"),
        pytest.param(CapacitySchedulingArgs, {"maxPodMinRunTime": {"fairShareReclaim": "1s"}}, "protection.maxPodMinRunTime.fairShareReclaim: this plugin does not preempt for this cause", id="no queues"),
        pytest.param(FairQueuesArgs, {"delay": "-1m"}, "protection.delay: at least 0s is expected, was -1m0s", id="a negative delay"),
        pytest.param(FairQueuesArgs, {"evictionsPerHour": {"controller": 0}}, "protection.evictionsPerHour.controller: 1 to 10000 is expected, was 0", id="no eviction"),
        pytest.param(FairQueuesArgs, {"minRunTimes": {}}, 'protection.minRunTimes: unknown field, did you mean "minRunTime"?', id="an unknown field"),
        pytest.param(FairQueuesArgs, {"evictionsPerHour": {"total": 10_001}}, "protection.evictionsPerHour.total: 1 to 10000 is expected, was 10001", id="too many evictions"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_errors(
    args: type[Any], protection: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        decode_args(args, {"protection": protection}, plugin="Mine", path="args")

    assert [str(fault) for fault in refused.value.errors] == [f"args.{expected}"]


def test_annotations_without_a_duration_set_no_time() -> None:
    assert min_run_times({MIN_RUN_TIME: "-5m"}) == dict.fromkeys(Cause, 0.0)
    assert min_run_times({MIN_RUN_TIME: "10"}) == {}
    assert min_run_times({}) == {}


def test_the_kind_of_priority_classes_is_watched_only_with_protection() -> None:
    assert PRIORITY_CLASSES not in World(None).plugin.needs.kinds
    assert PRIORITY_CLASSES in World(ProtectionArgs()).plugin.needs.kinds


def test_long_texts_of_annotations_are_not_kept() -> None:
    before = _parsed.cache_info().currsize

    assert min_run_times({MIN_RUN_TIME: "1" * 101}) == {}
    assert _parsed.cache_info().currsize == before


def test_the_clocks_of_the_queue_and_of_the_pods_may_differ_by_a_rounding_error() -> None:
    """A pod that is tried again at the end of a protection must not wait for another backoff."""
    world = World(profile())
    world.run("victim", ran=0)
    world.fakes.clock.advance(600 - 1e-4)

    assert world.succeeds()
