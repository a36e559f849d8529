"""The effect of an update, an activation or the passing of time on a waiting pod."""

import pytest

from scheduler.engine.queue import Place
from scheduler.framework.events import NODE_ADD
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import NODE_TAINT, Cluster

WEB = "uid-of-default-web"


def test_an_update_of_an_unknown_pod_adds_it(cluster: Cluster):
    cluster.update(pod("web"), pod("web", labels={"a": "b"}))

    assert cluster.queue.place_of(WEB) is Place.ACTIVE
    assert cluster.counts.came_in["active", "UnschedulablePodUpdate"] == 1


def test_an_active_pod_is_ordered_by_its_new_version(cluster: Cluster):
    old = pod("web", priority=1)
    cluster.queue.add(old)
    cluster.queue.add(pod("db", priority=5))
    cluster.update(old, pod("web", priority=9))

    assert cluster.pop_names() == ["web", "db"]


def test_an_update_keeps_the_position_of_a_pod(cluster: Cluster):
    old = pod("web")
    cluster.queue.add(old)
    cluster.queue.add(pod("db"))
    cluster.update(old, pod("web", labels={"a": "b"}))

    assert cluster.pop_names() == ["web", "db"]


def test_a_pod_in_backoff_stays_there_in_its_new_version(cluster: Cluster):
    old, new = pod("web"), pod("web", labels={"a": "b"})
    cluster.fail(old)
    cluster.update(old, new)
    assert cluster.queue.place_of(WEB) is Place.BACKOFF

    cluster.advance_and_flush(2)

    assert cluster.pop().pod is new


def test_an_update_requeues_a_pod_if_a_rejecting_plugin_agrees(cluster: Cluster):
    old, new = pod("web"), pod("web", labels={"a": "b"})
    cluster.reject(old, "Labels")
    cluster.clock.advance(2)
    cluster.update(old, new)

    assert cluster.pop().pod is new
    assert cluster.counts.came_in["active", "UnschedulablePodUpdatePodLabel"] == 1


def test_an_update_moves_a_pod_in_backoff_to_the_backoff_queue(cluster: Cluster):
    old = pod("web")
    cluster.reject(old, "Labels")
    cluster.update(old, pod("web", labels={"a": "b"}))

    assert cluster.queue.place_of(WEB) is Place.BACKOFF


def test_an_update_that_helps_no_plugin_only_replaces_the_pod(cluster: Cluster):
    old, new = pod("web"), pod("web", labels={"a": "b"})
    cluster.reject(old, "Fit")
    cluster.update(old, new)

    assert cluster.queue.place_of(WEB) is Place.UNSCHEDULABLE
    queued = cluster.queue.get(WEB)
    assert queued is not None
    assert queued.pod is new


def test_an_update_of_one_pod_does_not_requeue_another(cluster: Cluster):
    old = pod("web")
    cluster.reject(old, "Fit")
    cluster.reject(pod("db"), "Anything")
    cluster.update(old, pod("web", labels={"a": "b"}))

    assert cluster.queue.count(Place.UNSCHEDULABLE) == 2


@pytest.mark.parametrize("place", ["backoff", "unschedulable"])
def test_activation_moves_a_waiting_pod_to_active_without_backoff(cluster: Cluster, place: str):
    if place == "backoff":
        cluster.fail(pod("web"))
    else:
        cluster.reject(pod("web"), "Fit")
    cluster.queue.activate([WEB])

    assert cluster.queue.place_of(WEB) is Place.ACTIVE
    assert cluster.counts.came_in["active", "ForceActivate"] == 1


def test_activation_ignores_active_and_unknown_pods(cluster: Cluster):
    cluster.queue.add(pod("web"))
    cluster.queue.activate([WEB, "unknown"])

    assert cluster.queue.count(Place.ACTIVE) == 1
    assert len(cluster.queue.history(WEB)) == 1


def test_a_pod_is_retried_after_five_minutes_without_events(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    assert cluster.queue.next_deadline(cluster.clock.now) == 1300.0

    assert cluster.advance_and_flush(299.9) == 0
    cluster.clock.now = 1300.0
    assert cluster.queue.flush(1300.0) == 1
    queued = cluster.pop()
    assert queued.was_flushed_from_unschedulable
    assert cluster.counts.came_in["active", "UnschedulableTimeout"] == 1

    cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    assert not queued.was_flushed_from_unschedulable


def test_a_pod_is_tried_again_at_the_time_a_plugin_asked_for(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.queue.try_at(WEB, 1060.0)
    cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    assert cluster.queue.next_deadline(1000.0) == 1060.0

    assert cluster.advance_and_flush(59.9) == 0
    assert cluster.advance_and_flush(0.1) == 1
    queued = cluster.pop()
    assert not queued.was_flushed_from_unschedulable, "no event was missed"
    assert queued.try_at == 0.0


def test_a_time_after_the_longest_wait_does_not_lengthen_it(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.queue.try_at(WEB, 9000.0)
    cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])

    assert cluster.queue.next_deadline(1000.0) == 1300.0
    assert cluster.advance_and_flush(300.0) == 1
    assert cluster.pop().was_flushed_from_unschedulable


def test_only_a_pod_in_flight_gets_a_time(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    cluster.queue.try_at(WEB, 1060.0)
    cluster.queue.try_at("unknown", 1060.0)

    assert cluster.queue.next_deadline(1000.0) == 1300.0


def test_a_time_in_the_past_does_not_requeue_a_gated_pod_again_and_again(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.queue.try_at(WEB, 1060.0)
    cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    cluster.under_curfew.add(WEB)
    cluster.advance_and_flush(60.0)

    assert cluster.queue.place_of(WEB) is Place.GATED
    assert cluster.queue.next_deadline(cluster.clock.now) == 1360.0


def test_a_pod_requeued_by_an_event_does_not_count_as_flushed(cluster: Cluster):
    cluster.reject(pod("web"), "Taints")
    cluster.clock.advance(10)
    cluster.queue.move_all(NODE_TAINT)

    assert not cluster.pop().was_flushed_from_unschedulable


def test_a_flushed_pod_in_backoff_goes_to_the_backoff_queue():
    cluster = Cluster(initial_backoff_seconds=500.0, max_backoff_seconds=500.0)
    cluster.reject(pod("web"), "Fit")
    cluster.advance_and_flush(300)

    assert cluster.queue.place_of(WEB) is Place.BACKOFF
    assert cluster.queue.next_deadline(cluster.clock.now) == 1501.0
    cluster.queue.check()


def test_a_gated_pod_is_not_flushed(cluster: Cluster):
    cluster.queue.add(pod("web", gates=["a"]))

    assert cluster.queue.next_deadline(cluster.clock.now) is None
    assert cluster.advance_and_flush(1000) == 0


def test_a_gated_pod_is_evaluated_again_every_five_minutes(
    cluster: Cluster,
):
    cluster.under_curfew.add(WEB)
    cluster.queue.add(pod("web"))
    assert cluster.advance_and_flush(300) == 0
    assert cluster.asked["web"] == 2
    assert cluster.queue.next_deadline(cluster.clock.now) == 1600.0

    cluster.under_curfew.clear()

    assert cluster.advance_and_flush(300) == 1
    assert cluster.pop().was_flushed_from_unschedulable


def test_a_flush_is_not_an_event_for_pods_in_flight(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    cluster.queue.add(pod("db"))
    queued = cluster.pop()
    cluster.advance_and_flush(300)

    assert cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"]) is Place.UNSCHEDULABLE


def test_the_next_deadline_is_the_earliest_of_all(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    cluster.clock.advance(299.5)
    cluster.fail(pod("db"))
    assert cluster.queue.next_deadline(cluster.clock.now) == 1300.0

    cluster.queue.delete(pod("web"))
    assert cluster.queue.next_deadline(cluster.clock.now) == 1301.0


def test_a_pod_requeued_in_time_leaves_no_deadline_behind(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    cluster.clock.advance(10)
    cluster.queue.move_all(NODE_ADD, None, node("n1"))

    assert cluster.queue.next_deadline(cluster.clock.now) is None
