"""Which pod is tried next, and the state after an attempt."""

import pytest

from scheduler.engine.queue import Place
from scheduler.framework.events import NODE_ADD
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import PROFILE, Cluster


def test_the_highest_priority_is_tried_first_and_equals_in_order_of_arrival(cluster: Cluster):
    for name, priority in [("low", 0), ("first", 5), ("second", 5), ("high", 9)]:
        cluster.queue.add(pod(name, priority=priority))
        cluster.clock.advance(0.1)

    assert cluster.pop_names() == ["high", "first", "second", "low"]


def test_pods_added_at_the_same_time_are_tried_in_order_of_arrival(cluster: Cluster):
    for name in ("c", "a", "b"):
        cluster.queue.add(pod(name))

    assert cluster.pop_names() == ["c", "a", "b"]


def test_an_empty_queue_pops_nothing(cluster: Cluster):
    assert cluster.queue.pop() is None


def test_adding_a_pod_twice_keeps_one_entry_of_the_newest_version(cluster: Cluster):
    cluster.queue.add(pod("web", labels={"version": "1"}))
    cluster.queue.add(pod("web", labels={"version": "2"}))

    assert cluster.queue.count(Place.ACTIVE) == 1
    assert cluster.pop().pod.labels == {"version": "2"}


def test_popping_counts_the_attempt_and_records_the_time_of_the_first_one(cluster: Cluster):
    cluster.queue.add(pod("web"))
    cluster.clock.advance(3)
    queued = cluster.pop()

    assert (queued.attempts, queued.timestamp, queued.initial_attempt_timestamp) == (1, 1000.0, 1000.0)


def test_a_second_attempt_keeps_the_first_time_and_renews_the_order(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    cluster.clock.advance(60)
    cluster.queue.activate(["uid-of-default-web"])
    queued = cluster.pop()

    assert (queued.attempts, queued.timestamp, queued.initial_attempt_timestamp) == (2, 1000.0, 1000.0)
    cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    assert queued.timestamp == 1060.0


def test_a_rejected_pod_waits_as_unschedulable(cluster: Cluster):
    assert cluster.reject(pod("web"), "Fit", "Taints") is Place.UNSCHEDULABLE
    assert cluster.queue.count(Place.UNSCHEDULABLE) == 1
    assert cluster.queue.pop() is None
    assert cluster.queue.history("uid-of-default-web")[-1].why == "rejected by Fit, Taints"


def test_a_pod_that_failed_with_an_error_backs_off_for_any_plugins(cluster: Cluster):
    cluster.queue.add(pod("web"))
    place = cluster.queue.add_unschedulable(
        cluster.pop(), unschedulable_plugins=["Fit"], pending_plugins=["Volumes"], is_error=True
    )

    assert place is Place.BACKOFF
    queued = cluster.queue.get("uid-of-default-web")
    assert queued is not None
    assert not queued.unschedulable_plugins
    assert not queued.pending_plugins
    assert (queued.consecutive_errors_count, queued.unschedulable_count) == (1, 0)


def test_a_rejection_without_a_plugin_is_treated_as_an_error(cluster: Cluster):
    assert cluster.reject(pod("web")) is Place.BACKOFF


def test_a_rejection_resets_the_count_of_errors(cluster: Cluster):
    cluster.fail(pod("web"))
    cluster.queue.activate(["uid-of-default-web"])
    queued = cluster.pop()
    cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])

    assert (queued.consecutive_errors_count, queued.unschedulable_count) == (0, 1)


def test_an_error_keeps_the_count_of_rejections(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    cluster.queue.activate(["uid-of-default-web"])
    queued = cluster.pop()
    cluster.queue.add_unschedulable(queued, is_error=True)

    assert (queued.consecutive_errors_count, queued.unschedulable_count) == (1, 1)


def test_done_removes_a_pod_and_a_second_done_changes_nothing(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    for _ in range(2):
        cluster.queue.done(queued.pod.uid)

    assert cluster.queue.place_of(queued.pod.uid) is Place.OUTSIDE
    assert cluster.queue.count(Place.IN_FLIGHT) == 0


def test_done_does_not_affect_a_pod_that_returned(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    cluster.queue.done("uid-of-default-web")

    assert cluster.queue.place_of("uid-of-default-web") is Place.UNSCHEDULABLE


def test_returning_twice_raises_with_the_history(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])

    with pytest.raises(AssertionError, match=r"came back without being in flight\n(.*\n)*.*rejected by Fit"):
        cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])


def test_returning_after_done_raises(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.queue.done(queued.pod.uid)

    with pytest.raises(AssertionError, match="without being in flight"):
        cluster.queue.add_unschedulable(queued, is_error=True)


@pytest.mark.parametrize("place", ["active", "backoff", "unschedulable", "gated"])
def test_a_deleted_pod_leaves_any_place_of_the_queue(cluster: Cluster, place: str):
    web = pod("web", gates=["wait"] if place == "gated" else [])
    if place == "backoff":
        cluster.fail(web)
    elif place == "unschedulable":
        cluster.reject(web, "Fit")
    else:
        cluster.queue.add(web)
    assert cluster.queue.place_of(web.uid).value == place

    cluster.queue.delete(web)

    assert cluster.queue.place_of(web.uid) is Place.OUTSIDE
    assert cluster.queue.get(web.uid) is None
    assert cluster.queue.pop() is None
    assert cluster.queue.next_deadline(cluster.clock.now) is None


def test_deleting_an_unknown_pod_does_nothing(cluster: Cluster):
    cluster.queue.delete(pod("web"))

    assert cluster.queue.history("uid-of-default-web") == ()


def test_a_pod_deleted_while_in_flight_does_not_return(cluster: Cluster):
    web = pod("web")
    cluster.queue.add(web)
    queued = cluster.pop()
    cluster.queue.delete(web)
    assert cluster.queue.place_of(web.uid) is Place.IN_FLIGHT

    assert cluster.queue.add_unschedulable(queued, is_error=True) is Place.OUTSIDE
    assert cluster.queue.pop() is None


def test_a_recreated_pod_starts_with_new_counts(cluster: Cluster):
    old, new = pod("web", uid="one"), pod("web", uid="two")
    cluster.reject(old, "Fit")
    cluster.update(old, new)

    assert cluster.queue.place_of("one") is Place.OUTSIDE
    assert cluster.pop().attempts == 1


def test_waiting_pods_are_counted_per_rejecting_plugin_until_they_are_tried(cluster: Cluster):
    cluster.reject(pod("web"), "Fit", "Taints")
    cluster.reject(pod("db"), "Fit")
    assert cluster.queue.rejections == {("Fit", PROFILE): 2, ("Taints", PROFILE): 1}

    cluster.queue.activate(["uid-of-default-web"])
    assert cluster.queue.rejections[("Fit", PROFILE)] == 2
    cluster.pop()
    cluster.queue.delete(pod("db"))

    assert cluster.queue.rejections == {("Fit", PROFILE): 0, ("Taints", PROFILE): 0}


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["in backoffQ", "in activeQ"])
def test_a_rejected_pod_that_is_deleted_while_it_waits_to_be_tried_is_not_counted(seconds: float):
    cluster = Cluster(initial_backoff_seconds=5.0)
    each = pod("web")
    cluster.reject(each, "Fit")
    cluster.queue.move_all(NODE_ADD, None, node("n"))
    cluster.advance_and_flush(seconds)
    assert cluster.queue.place_of(each.uid) is (Place.ACTIVE if seconds else Place.BACKOFF)
    assert cluster.queue.rejections == {("Fit", PROFILE): 1}

    cluster.queue.delete(each)

    assert cluster.queue.rejections == {("Fit", PROFILE): 0}


def test_pods_are_shown_with_their_place_and_the_reason(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    cluster.queue.add(pod("db", gates=["wait"]))
    cluster.queue.add(pod("job"))
    cluster.pop()
    cluster.queue.add(pod("cron"))

    last_moves = [(each.pod.name, cluster.queue.history(each.pod.uid)[-1]) for each in cluster.queue.pods()]
    assert [(name, last.end.value, last.at, last.why) for name, last in last_moves] == [
        ("web", "unschedulable", 1000.0, "rejected by Fit"),
        ("db", "gated", 1000.0, "UnschedulablePodAdd; gated by Gates: waiting for scheduling gates"),
        ("job", "in flight", 1000.0, "popped"),
        ("cron", "active", 1000.0, "UnschedulablePodAdd"),
    ]
