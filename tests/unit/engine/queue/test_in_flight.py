"""The effect of events on a pod in flight."""

import pytest

from scheduler.engine.queue import Place
from scheduler.engine.queue.in_flight import InFlight
from scheduler.framework.events import ASSIGNED_POD_ADD, NODE_ADD, UNSCHEDULABLE_TIMEOUT
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import CSI_NODE_ADD, NODE_TAINT, PVC_ADD, Cluster

LARGE = node("n1", labels={"size": "9"})
SMALL = node("n2", labels={"size": "1"})


def test_an_event_during_the_attempt_that_helps_moves_the_pod_to_backoff(cluster: Cluster):
    web = pod("web", labels={"size": "5"})
    cluster.queue.add(web)
    queued = cluster.pop()
    cluster.queue.move_all(NODE_ADD, None, SMALL)
    cluster.queue.move_all(NODE_ADD, None, LARGE)

    assert cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"]) is Place.BACKOFF
    assert cluster.queue.history(web.uid)[-1].why == "rejected by Fit; NodeAdd happened meanwhile"
    assert [result for _, _, result in cluster.counts.hints] == ["QueueSkip", "Queue"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_event_outside_the_attempt_does_not_count(cluster: Cluster, when: str):
    cluster.queue.add(pod("other"))
    other = cluster.pop()  # keeps events alive
    cluster.queue.add(pod("web"))
    if when == "before":
        cluster.queue.move_all(NODE_TAINT)
    queued = cluster.pop()

    assert cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Taints"]) is Place.UNSCHEDULABLE
    cluster.queue.done(other.pod.uid)


def test_a_pending_plugin_with_its_event_during_the_attempt_skips_backoff(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.queue.move_all(NODE_TAINT)
    cluster.queue.move_all(PVC_ADD)

    place = cluster.queue.add_unschedulable(
        queued, unschedulable_plugins=["Taints", "Volumes"], pending_plugins=["Volumes"]
    )

    assert place is Place.ACTIVE
    assert cluster.queue.history(queued.pod.uid)[-1].why.endswith(
        "PersistentVolumeClaimAdd happened meanwhile"
    )


def test_an_error_ignores_events_during_the_attempt(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.queue.move_all(NODE_TAINT)

    assert cluster.queue.add_unschedulable(queued, is_error=True) is Place.BACKOFF
    assert cluster.counts.hints == []


def test_a_wildcard_event_during_the_attempt_counts_for_every_pod(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT)

    assert cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"]) is Place.BACKOFF


def test_a_pod_returns_in_its_newest_version_and_its_update_may_help_it(cluster: Cluster):
    old, new = pod("web"), pod("web", labels={"a": "b"})
    cluster.queue.add(old)
    queued = cluster.pop()
    cluster.update(old, new)
    assert queued.pod is old  # the attempt goes on with what it began with

    assert cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Labels"]) is Place.BACKOFF
    assert queued.pod is new


def test_an_update_of_one_pod_is_not_used_for_another(cluster: Cluster):
    old, new = pod("web"), pod("web", labels={"a": "b"})
    cluster.queue.add(old)
    cluster.queue.add(pod("db"))
    web, db = cluster.pop(), cluster.pop()
    cluster.update(old, new)

    assert cluster.queue.add_unschedulable(db, unschedulable_plugins=["Anything"]) is Place.UNSCHEDULABLE
    assert cluster.queue.add_unschedulable(web, unschedulable_plugins=["Anything"]) is Place.BACKOFF


def test_an_activation_during_the_attempt_counts_for_that_pod(cluster: Cluster):
    cluster.queue.add(pod("web"))
    cluster.queue.add(pod("db"))
    web, db = cluster.pop(), cluster.pop()
    cluster.queue.activate([web.pod.uid])

    assert cluster.queue.add_unschedulable(web, unschedulable_plugins=["Fit"]) is Place.BACKOFF
    assert cluster.queue.add_unschedulable(db, unschedulable_plugins=["Fit"]) is Place.UNSCHEDULABLE


def test_events_are_counted_by_label_with_the_pods(cluster: Cluster):
    old, new = pod("web"), pod("web", labels={"a": "b"})
    cluster.queue.add(old)
    queued = cluster.pop()
    for _ in range(2):
        cluster.queue.move_all(NODE_ADD, None, SMALL)
    cluster.update(old, new)
    assert cluster.queue.in_flight_events == {
        "NodeAdd": 2,
        "UnschedulablePodUpdatePodLabel": 1,
        "PodPopped": 1,
    }

    cluster.queue.done(queued.pod.uid)
    assert cluster.queue.in_flight_events == {}


def test_nothing_is_recorded_without_pods_in_flight(cluster: Cluster):
    cluster.queue.add(pod("web"))
    cluster.queue.move_all(NODE_TAINT)
    cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT)

    assert cluster.queue.in_flight_events == {}


def test_an_event_without_registered_plugins_of_pods_in_flight_is_not_recorded(cluster: Cluster):
    cluster.profiles["quiet"] = {}
    cluster.queue.add(pod("web", scheduler_name="quiet"))
    cluster.pop()
    cluster.queue.move_all(CSI_NODE_ADD)

    assert cluster.queue.in_flight_events == {"PodPopped": 1}


def test_a_wildcard_event_is_recorded_though_no_plugin_registered_for_it(cluster: Cluster):
    cluster.profiles["quiet"] = {}
    cluster.queue.add(pod("web", scheduler_name="quiet"))
    queued = cluster.pop()
    cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT)

    assert cluster.queue.in_flight_events == {"UnschedulableTimeout": 1, "PodPopped": 1}
    assert cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"]) is Place.BACKOFF


def test_events_are_dropped_when_the_oldest_pod_that_needs_them_is_done():
    in_flight = InFlight()
    pods = [pod(name) for name in "abc"]
    for each in pods:
        in_flight.begin(each)
        in_flight.record(ASSIGNED_POD_ADD, None, each)

    in_flight.end(pods[1].uid)
    assert in_flight.counts() == {"AssignedPodAdd": 3, "PodPopped": 2}
    in_flight.end(pods[0].uid)
    assert in_flight.counts() == {"AssignedPodAdd": 1, "PodPopped": 1}
    assert [recorded.new for recorded in in_flight.events_since(pods[2].uid)] == [pods[2]]
    in_flight.end(pods[2].uid)
    assert in_flight.counts() == {}
    in_flight.check()


def test_no_event_is_recorded_for_an_attempt_that_ignores_events(cluster: Cluster):
    old, new = pod("web"), pod("web", labels={"a": "b"})
    cluster.queue.add(old)
    web = cluster.pop()
    cluster.queue.move_all(NODE_ADD, None, LARGE)
    cluster.queue.ignore_events(web.pod.uid)
    cluster.queue.ignore_events(web.pod.uid)
    cluster.queue.move_all(NODE_ADD, None, LARGE)
    cluster.update(old, new)
    cluster.queue.activate([web.pod.uid])

    assert cluster.queue.in_flight_events == {}
    assert cluster.queue.place_of(web.pod.uid) is Place.IN_FLIGHT
    assert cluster.queue.count(Place.IN_FLIGHT) == 1


def test_an_attempt_that_ends_in_an_error_returns_in_its_newest_version(cluster: Cluster):
    old, new = pod("web"), pod("web", labels={"a": "b"})
    cluster.queue.add(old)
    web = cluster.pop()
    cluster.queue.ignore_events(web.pod.uid)
    cluster.update(old, new)

    assert cluster.queue.add_unschedulable(web, is_error=True) is Place.BACKOFF
    assert web.pod is new


def test_a_pod_deleted_during_an_attempt_that_ignores_events_is_gone_at_its_end(cluster: Cluster):
    cluster.queue.add(pod("web"))
    web = cluster.pop()
    cluster.queue.ignore_events(web.pod.uid)
    cluster.queue.delete(web.pod)

    assert cluster.queue.add_unschedulable(web, is_error=True) is Place.OUTSIDE


def test_events_are_recorded_for_pods_that_need_them_though_another_ignores_them(cluster: Cluster):
    for name in ("first", "second"):
        cluster.queue.add(pod(name, labels={"size": "5"}))
    first, second = cluster.pop(), cluster.pop()
    cluster.queue.ignore_events(first.pod.uid)
    cluster.queue.move_all(NODE_ADD, None, LARGE)
    assert cluster.queue.in_flight_events == {"NodeAdd": 1, "PodPopped": 1}

    assert cluster.queue.add_unschedulable(first, unschedulable_plugins=["Fit"]) is Place.UNSCHEDULABLE
    assert cluster.queue.add_unschedulable(second, unschedulable_plugins=["Fit"]) is Place.BACKOFF


def test_only_pods_in_flight_can_ignore_events(cluster: Cluster):
    cluster.queue.add(pod("web"))
    cluster.queue.ignore_events(pod("web").uid)
    cluster.queue.ignore_events("nobody")

    assert cluster.queue.count(Place.ACTIVE) == 1


def test_an_event_without_pods_in_flight_raises():
    with pytest.raises(AssertionError, match="for nobody"):
        InFlight().record(NODE_ADD, None, SMALL)
