"""Groups in the queue: which pods wait for other pods of their group, and what the pods of one entity share.

The cases of entities follow the tables of kube-scheduler v1.37, backend/queue/scheduling_queue_test.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.queue import Place
from scheduler.framework.events import NODE_ADD
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import CSI_NODE_ADD, NODE_TAINT, Cluster

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

GATE = ["example.com/later"]
RETRIED = {Place.ACTIVE, Place.BACKOFF}


def member(name: str, **fields: Any) -> PodInfo:
    return pod(name, schedulingGroup={"podGroupName": "g"}, **fields)


@pytest.fixture
def entities(cluster: Cluster) -> Cluster:
    """A queue in which groups wait as one entity."""
    cluster.has_entities = True
    return cluster


def uid(name: str) -> str:
    return f"uid-of-default-{name}"


def place(cluster: Cluster, name: str) -> Place:
    return cluster.queue.place_of(uid(name))


def names(popped: list[Any]) -> list[str]:
    return sorted(queued.pod.name for queued in popped)


def added(cluster: Cluster, *members: str) -> None:
    for name in members:
        cluster.queue.add(member(name))


def rejected(cluster: Cluster, *members: str, by: str = "Fit", **result: Any) -> None:
    """Add a group, and let its first attempt fail."""
    added(cluster, *members)
    for queued in cluster.pop_group():
        cluster.queue.add_unschedulable(queued, unschedulable_plugins=[by] if by else [], **result)
    cluster.end_group()


# Of all groups.


@pytest.mark.parametrize("has_entities", [False, True], ids=["1.36", "1.37"])
def test_a_pod_that_arrives_while_its_group_is_tried_waits_for_the_end(cluster: Cluster, has_entities: bool):
    cluster.has_entities = has_entities
    added(cluster, "a")
    (tried,) = cluster.pop_group()
    added(cluster, "b")
    assert place(cluster, "b") is Place.GATED
    assert cluster.queue.pop() is None

    cluster.queue.done(tried.pod.uid)
    cluster.end_group(is_placed=True)
    assert names(cluster.pop_group()) == ["b"]


@pytest.mark.parametrize("has_entities", [False, True], ids=["1.36", "1.37"])
def test_a_member_that_comes_back_stays_in_flight_until_the_end(cluster: Cluster, has_entities: bool):
    cluster.has_entities = has_entities
    added(cluster, "a", "b")
    first, second = cluster.pop_group()
    assert cluster.queue.add_unschedulable(first, unschedulable_plugins=["Fit"]) is Place.IN_FLIGHT
    cluster.queue.move_all(NODE_ADD, None, node("large", labels={"size": "9"}))
    cluster.queue.add_unschedulable(second, unschedulable_plugins=["Taints"])
    assert cluster.queue.count(Place.IN_FLIGHT) == 2

    cluster.end_group()
    assert place(cluster, "a") is Place.BACKOFF, "the node was added during the attempt"
    assert place(cluster, "b") is (Place.BACKOFF if has_entities else Place.UNSCHEDULABLE)


def test_a_member_that_was_deleted_after_it_came_back_leaves_at_the_end(entities: Cluster):
    added(entities, "a", "b")
    for queued in entities.pop_group():
        entities.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    entities.queue.delete(member("a"))
    entities.end_group()

    assert place(entities, "a") is Place.OUTSIDE
    assert place(entities, "b") is Place.UNSCHEDULABLE


def test_a_member_that_joined_another_group_does_not_wait_for_the_end(cluster: Cluster):
    added(cluster, "a", "b")
    first, _ = cluster.pop_group()
    other = pod(first.pod.name, schedulingGroup={"podGroupName": "h"})
    cluster.update(first.pod, other)

    assert cluster.queue.add_unschedulable(first, is_error=True) is Place.BACKOFF


def test_a_member_whose_quarantine_ends_while_its_group_is_tried_waits_for_the_end(cluster: Cluster):
    added(cluster, "a")
    for queued in cluster.pop_group():
        cluster.queue.add_unschedulable(queued, is_error=True, quarantine_seconds=60)
    cluster.end_group()
    added(cluster, "b")
    assert names(cluster.pop_group()) == ["b"]
    cluster.advance_and_flush(62)
    assert place(cluster, "a") is Place.ACTIVE

    assert cluster.pop_group() == []
    assert place(cluster, "a") is Place.GATED
    cluster.end_group()
    assert names(cluster.pop_group()) == ["a"]
    assert cluster.queue.get(uid("a")).attempts == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("has_entities", [False, True], ids=["1.36", "1.37"])
@pytest.mark.parametrize(("is_activated", "then"), [(False, Place.BACKOFF), (True, Place.ACTIVE)])
def test_a_member_whose_binding_fails_while_others_are_tried_backs_off_unless_activated(
    cluster: Cluster, has_entities: bool, is_activated: bool, then: Place
):
    cluster.has_entities = has_entities
    added(cluster, "a")
    (bound,) = cluster.pop_group()
    cluster.end_group(is_placed=True)
    added(cluster, "b")
    (tried,) = cluster.pop_group()
    assert cluster.queue.add_unschedulable(bound, is_error=True) is Place.GATED
    cluster.queue.activate([uid("a")] if is_activated else [])
    cluster.queue.done(tried.pod.uid)
    cluster.end_group(is_placed=True)

    assert place(cluster, "a") is then


# Of entities.


def test_members_share_the_backoff_of_their_group(entities: Cluster):
    rejected(entities, "a", "b")
    entities.clock.advance(0.5)
    added(entities, "late")
    entities.queue.move_all(NODE_ADD, None, node("large", labels={"size": "9"}))
    assert {place(entities, name) for name in ("a", "b", "late")} == {Place.BACKOFF}
    assert entities.queue.pop() is None

    entities.advance_and_flush(2)
    assert names(entities.pop_group()) == ["a", "b", "late"]


@pytest.mark.parametrize(
    ("before", "expected"), [("active", Place.ACTIVE), ("backoff", Place.BACKOFF)], ids=str
)
def test_a_pod_joins_its_group_where_it_waits(entities: Cluster, before: str, expected: Place):
    if before == "active":
        added(entities, "a")
    else:
        rejected(entities, "a", by="")
    added(entities, "b")
    assert place(entities, "a") is place(entities, "b") is expected


def test_a_pod_that_joins_a_waiting_group_requeues_it_after_the_backoff(entities: Cluster):
    rejected(entities, "a", "b")
    assert place(entities, "a") is Place.UNSCHEDULABLE
    entities.clock.advance(5)
    added(entities, "late")

    assert names(entities.pop_group()) == ["a", "b", "late"]


def test_the_group_is_tried_in_the_order_of_its_oldest_pod(entities: Cluster):
    added(entities, "a")
    entities.clock.advance(1)
    entities.queue.add(pod("alone"))
    entities.clock.advance(1)
    added(entities, "b")
    assert [entities.queue.get(uid(name)).timestamp for name in "ab"] == [1000.0, 1000.0]  # type: ignore[union-attr]
    assert names(entities.pop_group()) == ["a", "b"]


def test_members_are_tried_in_arrival_order_whichever_was_popped_first(entities: Cluster):
    entities.held.add(uid("a"))
    added(entities, "a", "b", "c")
    entities.held.clear()
    entities.clock.advance(1)
    entities.queue.move_all(CSI_NODE_ADD)
    assert place(entities, "a") is Place.ACTIVE
    entities.clock.advance(1)
    assert [queued.pod.name for queued in entities.pop_group()] == ["a", "b", "c"]

    entities.held.add(uid("z"))
    for name in "yz":
        entities.queue.add(pod(name, schedulingGroup={"podGroupName": "h"}))
    entities.held.clear()
    entities.queue.move_all(CSI_NODE_ADD)
    assert [queued.pod.name for queued in entities.pop_group()] == ["y", "z"]


def test_a_rejected_attempt_counts_once_for_the_group_with_its_new_pods(entities: Cluster):
    for count in (1, 2, 3):
        added(entities, f"pod-{count}")
        entities.advance_and_flush(60)
        tried = entities.pop_group()
        for queued in tried:
            entities.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
        entities.end_group()
        assert len(tried) == count
        assert {(each.unschedulable_count, each.consecutive_errors_count) for each in tried} == {(count, 0)}
        assert {each.timestamp for each in tried} == {entities.clock.now}


def test_an_attempt_is_an_error_if_one_member_has_no_rejecting_plugin(entities: Cluster):
    rejected(entities, "a", "b")
    entities.advance_and_flush(60)
    entities.queue.activate([uid("a")])
    first, second = entities.pop_group()
    entities.queue.add_unschedulable(first, unschedulable_plugins=["Fit"])
    entities.queue.add_unschedulable(second, is_error=True)
    entities.end_group()

    counts = {(each.unschedulable_count, each.consecutive_errors_count) for each in (first, second)}
    assert counts == {(1, 1)}
    assert place(entities, "a") is place(entities, "b") is Place.BACKOFF

    entities.advance_and_flush(60)
    for queued in entities.pop_group():
        entities.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    entities.end_group()
    assert (first.unschedulable_count, first.consecutive_errors_count) == (2, 0)


def test_a_pod_that_arrives_during_an_attempt_is_no_error(entities: Cluster):
    added(entities, "a")
    (queued,) = entities.pop_group()
    added(entities, "late")
    entities.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    entities.end_group()

    late = entities.queue.get(uid("late"))
    assert late is not None
    assert (late.unschedulable_count, late.consecutive_errors_count) == (1, 0)
    assert place(entities, "a") is place(entities, "late") is Place.BACKOFF


def test_pods_left_over_by_a_placed_group_are_tried_at_once_in_their_turn(entities: Cluster):
    rejected(entities, "a", "b")
    entities.clock.advance(2)
    entities.queue.activate([uid("a")])
    first, second = entities.pop_group()
    entities.clock.advance(1)
    entities.queue.add(pod("alone"))
    entities.queue.add_unschedulable(second, unschedulable_plugins=["Fit"])
    entities.end_group(is_placed=True)

    assert second.timestamp == 1000.0
    assert (second.unschedulable_count, second.consecutive_errors_count) == (1, 0)
    assert entities.pop() is second
    entities.queue.done(first.pod.uid)


def test_pods_that_arrive_while_all_others_are_placed_keep_their_own_turn(entities: Cluster):
    added(entities, "a")
    entities.pop_group()
    entities.clock.advance(1)
    entities.queue.add(pod("alone"))
    entities.clock.advance(1)
    added(entities, "late")
    entities.end_group(is_placed=True)

    assert entities.pop().pod.name == "alone"
    assert names(entities.pop_group()) == ["late"]


def test_an_event_that_helps_one_member_requeues_the_group(entities: Cluster):
    added(entities, "a", "b", "c")
    plugins = iter(["Fit", "Taints", "Volumes"])
    for queued in entities.pop_group():
        entities.queue.add_unschedulable(queued, unschedulable_plugins=[next(plugins)])
    entities.end_group()
    entities.clock.advance(5)
    assert entities.queue.move_all(NODE_TAINT) == 1

    assert names(entities.pop_group()) == ["a", "b", "c"]


def test_a_member_whose_binding_failed_joins_its_waiting_group(entities: Cluster):
    added(entities, "a", "b")
    first, second = entities.pop_group()
    entities.queue.add_unschedulable(second, unschedulable_plugins=["Fit"])
    entities.end_group()  # the other one is being bound
    entities.clock.advance(0.5)
    assert entities.queue.add_unschedulable(first, is_error=True) is Place.BACKOFF

    assert (first.timestamp, first.consecutive_errors_count) == (1000.0, 0)
    entities.advance_and_flush(1.5)
    assert names(entities.pop_group()) == ["a", "b"]


# One gated pod gates its group.


def test_a_gated_pod_gates_the_group_that_it_joins(entities: Cluster):
    added(entities, "a")
    entities.queue.add(member("gated", gates=GATE))
    added(entities, "b")

    assert entities.pop_group() == []
    assert {place(entities, name) for name in ("a", "b", "gated")} == {Place.GATED}
    assert entities.queue.get(uid("a")).attempts == 0  # type: ignore[union-attr]
    assert entities.queue.pop() is None


def test_a_group_is_tried_when_its_last_gated_pod_is_admitted(entities: Cluster):
    for name in ("one", "two"):
        entities.queue.add(member(name, gates=GATE))
    added(entities, "a")
    entities.update(member("one", gates=GATE), member("one"))
    assert place(entities, "one") is Place.GATED
    assert entities.queue.pop() is None

    entities.update(member("two", gates=GATE), member("two"))
    assert names(entities.pop_group()) == ["a", "one", "two"]


def test_a_group_is_tried_when_its_last_gated_pod_is_deleted(entities: Cluster):
    for name in ("one", "two"):
        entities.queue.add(member(name, gates=GATE))
    added(entities, "a", "b")
    entities.queue.delete(member("one"))
    assert entities.queue.pop() is None
    entities.queue.delete(member("two"))
    assert names(entities.pop_group()) == ["a", "b"]


def test_a_group_is_tried_when_its_gated_pod_is_purged(entities: Cluster):
    entities.queue.add(member("one", gates=GATE))
    added(entities, "a")
    entities.queue.purge(uid("one"), "a test")
    assert names(entities.pop_group()) == ["a"]


def test_an_event_for_the_gating_plugin_admits_the_whole_group(entities: Cluster):
    entities.held.update({uid("a"), uid("b")})
    added(entities, "a", "b", "c")
    entities.held.clear()
    entities.queue.move_all(CSI_NODE_ADD)
    assert names(entities.pop_group()) == ["a", "b", "c"]


def test_an_event_does_not_requeue_a_pod_that_waits_for_a_gated_one(entities: Cluster):
    rejected(entities, "a")
    entities.queue.add(member("gated", gates=GATE))
    entities.clock.advance(5)
    entities.queue.move_all(NODE_ADD, None, node("large", labels={"size": "9"}))
    assert place(entities, "a") is Place.GATED
    assert entities.queue.rejections["PodGroup", "custom-scheduler"] == 0

    entities.update(member("gated", gates=GATE), member("gated"))
    assert names(entities.pop_group()) == ["a", "gated"]


def test_pods_wait_for_a_gated_pod_that_arrived_during_the_attempt(entities: Cluster):
    added(entities, "a")
    (queued,) = entities.pop_group()
    entities.queue.add(member("gated", gates=GATE))
    entities.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    entities.end_group(is_placed=True)
    assert place(entities, "a") is Place.GATED

    entities.update(member("gated", gates=GATE), member("gated"))
    assert entities.queue.get(uid("gated")).timestamp == queued.timestamp  # type: ignore[union-attr]
    assert names(entities.pop_group()) == ["a", "gated"]


def test_before_1_37_the_others_are_tried_without_a_gated_pod(cluster: Cluster):
    cluster.queue.add(member("gated", gates=GATE))
    added(cluster, "a", "b")
    assert names(cluster.pop_group()) == ["a", "b"]
