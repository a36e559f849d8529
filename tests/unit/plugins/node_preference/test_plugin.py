"""NodePreference: which nodes it rejects and prefers, what requeues a pod, and how it explains a rejection."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plugins.node_preference.plugin import MAXIMUM, MINIMUM, NodePreference
from plugins.node_preference.preferences import ANNOTATION
from scheduler.framework import SKIP, Code, CycleState, EventResource, QueueingHint, Reason, Status
from scheduler.testing.contract import CHECKS, PluginSubject
from tests.support.builders import node, pod
from tests.unit.plugins.node_preference.worlds import NODES, ON_DEMAND, SPOT, WEB, World, owned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.objects.pod import PodInfo

AT_MOST_30 = {**SPOT, "maxReplicas": "30%"}
AT_LEAST_2 = {**ON_DEMAND, "minReplicas": 2}
FULL = "node(s) were in node set spot, which has 3 of at most 3 pods"
KEPT = "node(s) were outside of the node sets for the remaining pods: on-demand has 0 of at least 2"
OF_PROFILE = {"preferences": [{"podSelector": {"matchLabels": WEB}, "sets": [AT_MOST_30, ON_DEMAND]}]}


def rejected(world: World, each: PodInfo | None = None) -> dict[str, str]:
    """Return node -> reason; empty if PreFilter skips the pod."""
    each = each or world.pod()
    state, snapshot = CycleState(), world.table.snapshot()
    answer = world.plugin.pre_filter(state, each, snapshot)
    if answer is SKIP:
        return {}
    assert answer is None, answer
    outcomes = world.plugin.filter(state, each, snapshot, snapshot.all_rows)
    return {
        snapshot.name_of(row): outcomes.of(row).reasons[0]
        for row in range(snapshot.n_nodes)
        if outcomes.of(row).code is not Code.SUCCESS
    }


def scores(world: World, each: PodInfo | None = None) -> dict[str, int] | None:
    """Return node -> score; None if PreScore skips the pod."""
    each = each or world.pod()
    state, snapshot = CycleState(), world.table.snapshot()
    if world.plugin.pre_score(state, each, snapshot, snapshot.all_rows) is SKIP:
        return None
    found = world.plugin.score(state, each, snapshot, snapshot.all_rows)
    return {snapshot.name_of(row): int(found[row]) for row in range(snapshot.n_nodes)}


class TestFilter:
    def test_a_set_that_has_its_maximum_is_rejected(self):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1")
        assert rejected(world) == {}
        world.run("s2")
        assert rejected(world) == {"s1": FULL, "s2": FULL}

    def test_nodes_outside_of_sets_that_need_the_remaining_replicas_are_rejected(self):
        world = World(SPOT, AT_LEAST_2)
        world.run(*["s1"] * 4, *["x"] * 3)
        assert rejected(world) == {}
        world.run("s2")
        assert rejected(world) == dict.fromkeys(("s1", "s2", "x"), KEPT)

    def test_both_limits_count_for_the_same_pod(self):
        world = World(AT_MOST_30, AT_LEAST_2)
        world.run(*["s1"] * 3, *["x"] * 5)
        assert rejected(world) == {"s1": FULL, "s2": FULL, "x": KEPT}

    def test_the_reasons_have_codes_and_only_a_maximum_of_0_is_unresolvable(self):
        world = World({**SPOT, "maxReplicas": 0}, {**ON_DEMAND, "minReplicas": 10}, {"maxReplicas": 3})
        state, snapshot = CycleState(), world.table.snapshot()
        world.plugin.pre_filter(state, world.pod(), snapshot)
        outcomes = world.plugin.filter(state, world.pod(), snapshot, snapshot.all_rows)
        found = {}
        for name in ("s1", "x"):
            outcome = outcomes.of(world.rows[name])
            reason = outcome.reasons[0]
            assert isinstance(reason, Reason)
            found[name] = outcome.code, reason.code

        assert found == {
            "s1": (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, MAXIMUM),
            "x": (Code.UNSCHEDULABLE, MINIMUM),
        }

    def test_the_first_matching_set_counts(self):
        world = World({**SPOT, "maxReplicas": 1}, {"name": "rest", "maxReplicas": 1})
        world.run("s1")
        assert set(rejected(world)) == {"s1", "s2"}
        world.run("x")
        assert set(rejected(world)) == set(NODES)

    @pytest.mark.parametrize(
        "fields",
        [
            pytest.param({"labels": {"app": "db"}}, id="with other labels"),
            pytest.param({"namespace": "other"}, id="of another namespace"),
            pytest.param({"metadata": {"deletion_timestamp": "2026-03-01T09:00:00Z"}}, id="that are deleted"),
        ],
    )
    def test_pods_that_do_not_count(self, fields: dict[str, Any]):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1", "s1", **fields)
        assert rejected(world) == {}

    def test_with_schedule_anyway_no_node_is_rejected(self):
        world = World(AT_MOST_30, ON_DEMAND, whenUnsatisfiable="ScheduleAnyway")
        world.run("s1", "s1", "s1")
        assert rejected(world) == {}

    def test_a_changed_node_is_in_another_set(self):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1", "s1")
        assert set(rejected(world)) == {"s1", "s2"}
        world.table.update_node(node("s2", labels={"capacity": "on-demand"}))
        assert set(rejected(world)) == {"s1"}

    def test_an_added_node_is_in_a_set(self):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1", "s1")
        assert len(rejected(world)) == 2
        world.table.add_node(node("s3", labels={"capacity": "spot"}))
        assert set(rejected(world)) == {"s1", "s2", "s3"}

    def test_a_removed_node_is_in_no_set(self):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1", "s1")
        assert set(rejected(world)) == {"s1", "s2"}
        world.table.remove_node("x")
        assert set(rejected(world)) == {"s1", "s2"}

    def test_an_invalid_annotation_rejects_the_pod_with_its_error(self):
        world = World(AT_MOST_30)
        world.control('{"sets": []}', replicas=10)
        answer = world.plugin.pre_filter(CycleState(), world.pod(), world.table.snapshot())

        assert isinstance(answer, Status)
        assert answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        expected = (
            "annotation custom-scheduler.io/node-preference of ReplicaSet web-1: "
            "sets: 1 to 16 sets are expected, was 0"
        )
        assert answer.message == expected
        assert [cause.code for cause in answer.by("NodePreference").causes] == ["InvalidNodePreference"]


class TestControllers:
    @pytest.mark.parametrize(
        ("kind", "spec", "most"),
        [
            pytest.param("ReplicaSet", {"replicas": 10}, 3, id="a ReplicaSet"),
            pytest.param("StatefulSet", {"replicas": 7}, 2, id="a StatefulSet"),
            pytest.param("Job", {"parallelism": 10}, 3, id="a Job"),
            pytest.param("Job", {"parallelism": 10, "completions": 4}, 1, id="a Job of fewer completions"),
        ],
    )
    def test_the_replicas_of_each_kind(self, kind: str, spec: dict[str, Any], most: int):
        world = World(AT_MOST_30, ON_DEMAND, kind=kind, spec=spec)
        for _ in range(most):
            assert rejected(world) == {}
            world.run("s1")
        assert set(rejected(world)) == {"s1", "s2"}

    def test_the_replicas_are_those_of_now(self):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1", "s1")
        assert rejected(world)
        obj = world.table.watch_kind("apps/v1/replicasets")["default/web-1"]
        world.control(next(iter(obj["metadata"]["annotations"].values())), replicas=20)
        assert rejected(world) == {}

    def test_other_controllers_have_no_limits_but_the_order_of_the_profile(self):
        world = World(args=OF_PROFILE, kind="CloneSet")
        world.run("s1", "s1", "s1")
        assert rejected(world) == {}
        assert scores(world) == {"s1": 100, "s2": 100, "d1": 50, "d2": 50, "x": 0}

    @pytest.mark.parametrize(
        "selector", [None, {}, {"matchExpressions": [{"key": "a", "operator": "Like"}]}, "app=web"]
    )
    def test_a_controller_whose_selector_is_invalid_has_no_limits(self, selector: Any):
        world = World(AT_MOST_30, spec={"replicas": 1, "selector": selector})
        assert rejected(world) == {}
        assert scores(world) is None


class TestAnnotationOfThePod:
    @pytest.mark.parametrize("kind", ["ReplicaSet", "CloneSet"])
    def test_it_replaces_those_of_its_controller_and_of_the_profile(self, kind: str):
        world = World(ON_DEMAND, args=OF_PROFILE, kind=kind)
        own = annotated(world, json.dumps({"sets": [{"matchLabels": {"capacity": "other"}}]}))
        assert scores(world, own) == {"s1": 0, "s2": 0, "d1": 0, "d2": 0, "x": 100}

    def test_its_limits_are_of_the_replicas_of_the_controller(self):
        world = World(args=OF_PROFILE)
        world.run("s1", "s1", "s1")
        own = annotated(world, json.dumps({"sets": [{**SPOT, "maxReplicas": "40%"}]}))
        assert rejected(world, own) == {}
        world.run("s1")
        assert set(rejected(world, own)) == {"s1", "s2"}

    def test_an_error_in_it_rejects_the_pod_and_names_the_field(self):
        world = World(AT_MOST_30)
        own = annotated(world, json.dumps({"sets": [SPOT, {"maxReplicas": "x"}]}))
        answer = world.plugin.pre_filter(CycleState(), own, world.table.snapshot())

        assert isinstance(answer, Status)
        assert answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert answer.message == (
            "annotation custom-scheduler.io/node-preference of the pod: sets[1].maxReplicas: a number of replicas from 0, "
            'or a percentage from 0% to 100%, is expected, was "x"'
        )
        assert [cause.code for cause in answer.by("NodePreference").causes] == ["InvalidNodePreference"]

    def test_without_read_annotations_it_does_not_count(self):
        world = World(args={**OF_PROFILE, "readAnnotations": False})
        assert scores(world, annotated(world, "invalid")) == scores(world)


def annotated(world: World, text: str) -> PodInfo:
    """Return a pod of the controller with an annotation of its own."""
    return world.pod(metadata={"annotations": {ANNOTATION: text}})


class TestPreferencesOfTheProfile:
    def test_the_first_preference_that_selects_a_pod_applies_to_it(self):
        preferences = [
            {"podSelector": {"matchLabels": {"app": "db"}}, "sets": [ON_DEMAND]},
            {"podSelector": {"matchLabels": WEB}, "sets": [SPOT, ON_DEMAND]},
            {"sets": [{"matchLabels": {"capacity": "other"}}]},
        ]
        world = World(args={"preferences": preferences})
        best = {}
        for app in ("db", "web", "cache"):
            found = scores(world, pod("p", labels={"app": app}))
            assert found is not None
            best[app] = max(found, key=found.__getitem__)

        assert best == {"db": "d1", "web": "s1", "cache": "x"}

    def test_limits_count_the_pods_of_each_controller(self):
        world = World(args=OF_PROFILE)
        world.run("s1", "s1", "s1")
        assert set(rejected(world)) == {"s1", "s2"}
        assert rejected(world, owned(pod("p", labels=WEB), name="web-2")) == {}

    def test_an_annotation_replaces_the_preference_of_the_profile(self):
        world = World({**SPOT, "maxReplicas": 4}, args=OF_PROFILE)
        world.run("s1", "s1", "s1")
        assert rejected(world) == {}

    def test_without_read_annotations_the_preference_of_the_profile_applies(self):
        world = World({**SPOT, "maxReplicas": 4}, args={**OF_PROFILE, "readAnnotations": False})
        world.run("s1", "s1", "s1")
        assert set(rejected(world)) == {"s1", "s2"}


class TestScore:
    def test_the_sets_are_preferred_in_their_order(self):
        world = World(SPOT, ON_DEMAND)
        assert scores(world) == {"s1": 100, "s2": 100, "d1": 50, "d2": 50, "x": 0}

    def test_a_node_alone_has_the_score_that_it_has_among_all(self):
        for action in ("DoNotSchedule", "ScheduleAnyway"):
            world = World(AT_MOST_30, AT_LEAST_2, whenUnsatisfiable=action)
            world.run("s1", "s1", "s1")
            snapshot = world.table.snapshot()
            alone = {
                name: world.plugin.score_node(CycleState(), world.pod(), snapshot.node_info(row))
                for name, row in world.rows.items()
            }
            assert alone == scores(world)

    def test_a_pod_without_a_preference_is_skipped(self):
        assert scores(World()) is None

    def test_sets_whose_limits_are_not_met_follow_all_others_with_schedule_anyway(self):
        world = World(AT_MOST_30, AT_LEAST_2, whenUnsatisfiable="ScheduleAnyway")
        assert scores(world) == {"s1": 100, "s2": 100, "d1": 80, "d2": 80, "x": 60}
        world.run("s1", "s1", "s1")
        assert scores(world) == {"s1": 40, "s2": 40, "d1": 80, "d2": 80, "x": 60}
        world.run(*["x"] * 5)
        assert scores(world) == {"s1": 40, "s2": 40, "d1": 80, "d2": 80, "x": 0}


class TestSignature:
    def test_pods_whose_sets_have_no_limits_share_results(self):
        world = World(SPOT, ON_DEMAND)
        assert world.plugin.signature(world.pod("a")) == world.plugin.signature(world.pod("b"))
        assert world.plugin.signature(world.pod("a")) is not None
        assert world.plugin.signature(pod("c")) == (None,)

    @pytest.mark.parametrize("action", ["DoNotSchedule", "ScheduleAnyway"])
    def test_pods_with_limits_share_none_because_they_depend_on_all_nodes(self, action: str):
        world = World(AT_MOST_30, whenUnsatisfiable=action)
        assert world.plugin.signature(world.pod()) is None

    def test_a_changed_annotation_is_another_signature(self):
        world = World(SPOT, ON_DEMAND)
        before = world.plugin.signature(world.pod())
        world.control('{"sets": [{"matchLabels": {"capacity": "on-demand"}}]}', replicas=10)
        assert world.plugin.signature(world.pod()) != before


class TestDryRun:
    """Preemption adds and removes pods; each row is evaluated by its own pods."""

    def verdicts(
        self, world: World, removed: Mapping[str, int], added: Mapping[str, int] | None = None
    ) -> set[str]:
        """Return the rejected nodes after pods were removed from nodes and added to them."""
        state, snapshot, each = CycleState(), world.table.snapshot(), world.pod()
        world.plugin.pre_filter(state, each, snapshot)
        trial = state.clone()
        for sign, changes in ((-1, removed), (1, added or {})):
            pods = [
                (world.rows[name], world.pod(f"other-{name}-{number}", node=name))
                for name, count in changes.items()
                for number in range(count)
            ]
            change = world.plugin.add_pods if sign > 0 else world.plugin.remove_pods
            change(trial, each, pods, snapshot)
        found = world.plugin.filter(trial, each, snapshot, snapshot.all_rows).index
        again = world.plugin.filter(state, each, snapshot, snapshot.all_rows).index
        assert {*np.flatnonzero(again).tolist()} == {world.rows[name] for name in rejected(world)}
        return {snapshot.name_of(row) for row in np.flatnonzero(found).tolist()}

    def test_a_removed_pod_makes_room_on_its_node_only(self):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1", "s2")
        assert self.verdicts(world, {}) == {"s1", "s2"}
        assert self.verdicts(world, {"s1": 1}) == {"s2"}
        assert self.verdicts(world, {"s1": 1}, {"s1": 1}) == {"s1", "s2"}

    def test_an_added_pod_counts_on_its_node_only(self):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1")
        assert self.verdicts(world, {}, {"s2": 1}) == {"s2"}

    def test_a_removed_pod_leaves_a_replica_for_a_minimum(self):
        world = World(SPOT, AT_LEAST_2)
        world.run(*["s1"] * 8)
        assert self.verdicts(world, {"s1": 1}) == {"s2", "x"}

    def test_pods_of_others_change_nothing(self):
        world = World(AT_MOST_30, ON_DEMAND)
        world.run("s1", "s1", "s1")
        state, snapshot, each = CycleState(), world.table.snapshot(), world.pod()
        world.plugin.pre_filter(state, each, snapshot)
        world.plugin.remove_pods(state, each, [(world.rows["s1"], pod("db", node="s1"))], snapshot)
        index = world.plugin.filter(state, each, snapshot, snapshot.all_rows).index
        assert np.count_nonzero(index) == 2


def hint(world: World, resource: EventResource, each: PodInfo, old: Any, new: Any) -> bool:
    """Return whether an event requeues a pod, by the hint and by the keys beside it."""
    (registered,) = [its for its in world.plugin.events() if its.event.resource is resource]
    assert registered.hint is not None
    helps = registered.hint(each, old, new) is QueueingHint.QUEUE
    if registered.event_keys is not None and registered.waits_for_keys is not None:
        brought, awaited = registered.event_keys(old, new), registered.waits_for_keys(each)
        assert brought is not None
        assert awaited is not None
        assert not helps or {*brought} & {*awaited}, "the keys exclude no event that helps"
    return helps


class TestHints:
    def test_a_deleted_pod_of_the_controller_requeues(self):
        world = World(AT_MOST_30)
        (placed,) = world.run("s1")
        leaving = world.pod("p-1", node="s1", metadata={"deletion_timestamp": "2026-03-01T09:00:00Z"})
        for gone in (placed, leaving):
            assert hint(world, EventResource.ASSIGNED_POD, world.pod(), gone, None)
        assert not hint(world, EventResource.ASSIGNED_POD, world.pod(), pod("db", node="s1"), None)
        elsewhere = pod("web", namespace="other", labels=WEB, node="s1")
        assert not hint(world, EventResource.ASSIGNED_POD, world.pod(), elsewhere, None)

    def test_a_deleted_pod_requeues_no_pod_with_an_invalid_annotation(self):
        world = World(AT_MOST_30)
        (gone,) = world.run("s1")
        assert not hint(world, EventResource.ASSIGNED_POD, annotated(world, "{}"), gone, None)

    def test_a_pod_that_loses_the_labels_of_the_controller_requeues(self):
        world = World(AT_MOST_30)
        old, new = world.pod("a", node="s1"), world.pod("a", node="s1", labels={})
        assert hint(world, EventResource.ASSIGNED_POD, world.pod(), old, new)
        assert not hint(world, EventResource.ASSIGNED_POD, world.pod(), new, old)
        assert not hint(world, EventResource.ASSIGNED_POD, world.pod(), old, old)

    def test_an_added_node_requeues_unless_its_set_takes_no_pods(self):
        world = World({**SPOT, "maxReplicas": 0}, ON_DEMAND)
        added = {name: node(name, labels={"capacity": name}) for name in ("spot", "on-demand", "other")}
        helping = {
            name for name, new in added.items() if hint(world, EventResource.NODE, world.pod(), None, new)
        }
        assert helping == {"on-demand", "other"}

    def test_a_node_requeues_when_it_is_in_another_set(self):
        world = World(AT_MOST_30, ON_DEMAND)
        old = node("n", labels={"capacity": "spot"})
        same = node("n", labels={"capacity": "spot", "disk": "ssd"})
        other = node("n", labels={"capacity": "on-demand"})
        assert not hint(world, EventResource.NODE, world.pod(), old, same)
        assert hint(world, EventResource.NODE, world.pod(), old, other)

    def test_a_changed_controller_requeues_its_own_pods(self):
        world = World(AT_MOST_30)
        resource = EventResource.of("apps/v1/replicasets")
        old = world.table.watch_kind("apps/v1/replicasets")["default/web-1"]
        scaled = {**old, "spec": {**old["spec"], "replicas": 20}}
        counted = {**old, "status": {"replicas": 3}}
        annotated = {**old, "metadata": {**old["metadata"], "annotations": {}}}
        other = {**scaled, "metadata": {**old["metadata"], "name": "web-2"}}

        assert hint(world, resource, world.pod(), None, old)
        assert hint(world, resource, world.pod(), old, scaled)
        assert hint(world, resource, world.pod(), old, annotated)
        assert not hint(world, resource, world.pod(), old, counted)
        assert not hint(world, resource, world.pod(), old, other)
        assert not hint(world, resource, pod("bare"), old, scaled)

    def test_a_changed_annotation_requeues_its_own_pod(self):
        world, resource = World(AT_MOST_30), EventResource.UNSCHEDULABLE_POD
        old, new, other = world.pod(), annotated(world, "{}"), world.pod("other")
        assert hint(world, resource, old, old, new)
        assert not hint(world, resource, old, old, world.pod(labels={**WEB, "a": "b"}))
        assert not hint(world, resource, other, old, new)

    def test_pods_of_one_controller_share_a_key(self):
        world = World(AT_MOST_30)
        for registered in world.plugin.events():
            assert registered.pod_key is not None
            assert registered.pod_key(world.pod("a")) == registered.pod_key(world.pod("b"))
            other = owned(pod("c", labels=WEB), name="web-2")
            assert registered.pod_key(world.pod("a")) != registered.pod_key(other)


class TestExplanations:
    def why(self, world: World, name: str) -> Any:
        snapshot = world.table.snapshot()
        return world.plugin.why(world.pod(), snapshot, snapshot.node_info(world.rows[name]))

    def test_a_rejected_node_has_the_set_and_its_counts(self):
        world = World(AT_MOST_30, AT_LEAST_2)
        world.run(*["s1"] * 3, *["x"] * 5)

        assert self.why(world, "s2") == [
            "node set spot has 3 of at most 3 pods (maxReplicas 30% of 10 replicas of ReplicaSet web-1)"
        ]
        assert self.why(world, "x") == [
            "other node sets need the remaining pods of ReplicaSet web-1 (10 replicas): on-demand has 0 of at least 2"
        ]
        assert self.why(world, "d1") == []

    def test_a_pod_without_limits_has_no_details(self):
        assert self.why(World(SPOT), "s1") is None

    def test_all_nodes_together_have_a_summary_of_the_sets(self):
        world = World(AT_MOST_30, AT_LEAST_2)
        world.run(*["s1"] * 3, "d1", *["x"] * 5)
        snapshot = world.table.snapshot()
        found = world.plugin.why_nodes(world.pod(), snapshot, snapshot.all_rows)

        assert found is not None
        assert found.summary == (
            "pods of ReplicaSet web-1 (10 replicas): spot 3 (at most 3), on-demand 1 (at least 2), other nodes 5"
        )

    @pytest.mark.parametrize(
        ("rows", "text"),
        [
            pytest.param(
                ("s1", "x"), "node set spot allowed 4 pods or more (now 3)", id="the preferred set is full"
            ),
            pytest.param(
                ("x",), "minReplicas of node set on-demand were 2 lower", id="another set needs pods"
            ),
            pytest.param(("d1",), None, id="the set takes a pod"),
        ],
    )
    def test_the_remedy_names_the_limit(self, rows: tuple[str, ...], text: str | None):
        world = World(AT_MOST_30, AT_LEAST_2)
        world.run(*["s1"] * 3, *["x"] * 6)
        snapshot = world.table.snapshot()
        found = world.plugin.why_nodes(world.pod(), snapshot, snapshot.all_rows)
        assert found is not None
        (remedy,) = found.remedies
        change = remedy.change(np.array([world.rows[name] for name in rows], dtype=np.intp))

        assert remedy.without == NodePreference.name
        assert (change and change.text) == text


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_with_limits(check: Callable[[PluginSubject], None]):
    world = World(AT_MOST_30, AT_LEAST_2, whenUnsatisfiable="ScheduleAnyway")
    world.run(*["s1"] * 3, *["x"] * 5)
    check(PluginSubject(world.plugin, world.table, [world.pod(), pod("bare")]))


def test_one_by_one_the_pods_fill_the_sets_in_their_order():
    """Ten replicas: three on spot, then on-demand."""
    world = World(AT_MOST_30, AT_LEAST_2)
    placed: list[str] = []
    for _ in range(10):
        found, refused = scores(world), rejected(world)
        assert found is not None
        best = max((name for name in found if name not in refused), key=found.__getitem__)
        world.run(best)
        placed.append(NODES[best])

    assert Counter(placed) == {"spot": 3, "on-demand": 7}
    assert placed[:3] == ["spot"] * 3


def test_it_reads_controllers_and_writes_nothing_by_default():
    needs = World(AT_MOST_30).plugin.needs
    assert needs.kinds == {"apps/v1/replicasets", "apps/v1/statefulsets", "batch/v1/jobs"}
    assert not needs.rights


@pytest.mark.parametrize("reads", [True, False])
def test_annotations_of_pods_on_nodes_are_kept_if_they_are_read(reads: bool):
    assert World(args={"readAnnotations": reads}).plugin.needs.bound_pod_annotations is reads
