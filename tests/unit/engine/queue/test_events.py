"""Which events requeue which pods, and where the pods go."""

import logging

import pytest

from scheduler.engine.queue import Place
from scheduler.framework import ActionType, ClusterEvent, EventResource
from scheduler.framework.events import ASSIGNED_POD_DELETE, NODE_ADD, UNSCHEDULABLE_TIMEOUT
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import CSI_NODE_ADD, NODE_LABEL, NODE_TAINT, PVC_ADD, REGISTERED, Cluster

LARGE = node("n1", labels={"size": "9"})
SMALL = node("n2", labels={"size": "1"})


def test_an_event_that_helps_moves_a_pod_in_backoff_to_the_backoff_queue(cluster: Cluster):
    web = pod("web", labels={"size": "5"})
    cluster.reject(web, "Fit")

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 1
    assert cluster.queue.place_of(web.uid) is Place.BACKOFF
    assert cluster.counts.came_in["backoff", "NodeAdd"] == 1


def test_an_event_that_helps_moves_a_pod_after_its_backoff_to_the_active_queue(cluster: Cluster):
    web = pod("web", labels={"size": "5"})
    cluster.reject(web, "Fit")
    cluster.clock.advance(2)

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 1
    assert cluster.queue.place_of(web.uid) is Place.ACTIVE
    assert cluster.counts.came_in["active", "NodeAdd"] == 1


def test_an_event_that_does_not_help_leaves_the_pod(cluster: Cluster):
    web = pod("web", labels={"size": "5"})
    cluster.reject(web, "Fit")

    assert cluster.queue.move_all(NODE_ADD, None, SMALL) == 0
    assert cluster.queue.place_of(web.uid) is Place.UNSCHEDULABLE
    assert cluster.counts.hints == [("Fit", "NodeAdd", "QueueSkip")]


def test_only_hints_of_rejecting_plugins_are_called(cluster: Cluster):
    cluster.reject(pod("web"), "Taints")

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 0
    assert cluster.counts.hints == []


def test_one_positive_hint_of_several_is_enough(cluster: Cluster):
    cluster.reject(pod("web", labels={"size": "5"}), "Fit", "Anything", "Labels")

    assert cluster.queue.move_all(NODE_ADD, None, SMALL) == 1
    assert cluster.counts.hints == [("Fit", "NodeAdd", "QueueSkip"), ("Anything", "NodeAdd", "Queue")]


def test_a_pod_is_evaluated_once_for_several_plugins(cluster: Cluster):
    cluster.reject(pod("web"), "Taints", "Anything")

    assert cluster.queue.move_all(NODE_TAINT, SMALL, LARGE) == 1
    assert cluster.counts.hints == [("Taints", "NodeUpdateNodeTaint", "Queue")]


def test_a_plugin_without_a_hint_requeues_at_every_registered_event(cluster: Cluster):
    cluster.reject(pod("web"), "Taints")

    assert cluster.queue.move_all(NODE_TAINT, SMALL, SMALL) == 1


def test_a_failing_hint_requeues_and_is_logged(cluster: Cluster, caplog: pytest.LogCaptureFixture):
    cluster.reject(pod("web"), "Broken")

    with caplog.at_level(logging.ERROR):
        assert cluster.queue.move_all(NODE_LABEL, SMALL, LARGE) == 1

    assert cluster.counts.hints == [("Broken", "NodeUpdateNodeLabel", "Error")]
    record = caplog.records[0]
    assert (record.__dict__["plugin"], record.__dict__["pod"]) == ("Broken", "default/web")
    assert record.exc_info is not None
    assert "no idea" in str(record.exc_info[1])


def test_an_event_for_a_pending_plugin_moves_the_pod_to_the_active_queue(cluster: Cluster):
    web = pod("web")
    cluster.reject(web, "Taints", "Volumes", pending=["Volumes"])

    assert cluster.queue.move_all(PVC_ADD) == 1
    assert cluster.queue.place_of(web.uid) is Place.ACTIVE


def test_an_event_for_another_plugin_than_the_pending_one_backs_off(cluster: Cluster):
    web = pod("web")
    cluster.reject(web, "Taints", "Volumes", pending=["Volumes"])

    assert cluster.queue.move_all(NODE_TAINT) == 1
    assert cluster.queue.place_of(web.uid) is Place.BACKOFF


def test_the_hint_of_the_pending_plugin_is_called_first(cluster: Cluster):
    web = pod("web")
    cluster.reject(web, "Taints", "Anything", pending=["Anything"])

    cluster.queue.move_all(NODE_TAINT)

    assert cluster.queue.place_of(web.uid) is Place.ACTIVE
    assert [plugin for plugin, _, _ in cluster.counts.hints] == ["Anything"]


def test_a_wildcard_event_requeues_every_unschedulable_pod_without_hints(cluster: Cluster):
    for name in ("web", "db"):
        cluster.reject(pod(name), "Fit")

    assert cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT) == 2
    assert cluster.counts.hints == []


def test_a_wildcard_event_with_a_pod_requeues_that_pod_only(cluster: Cluster):
    web, db = pod("web"), pod("db")
    cluster.reject(web, "Fit")
    cluster.reject(db, "Fit")

    assert cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT, None, db) == 1
    assert cluster.queue.place_of(web.uid) is Place.UNSCHEDULABLE


def test_a_wildcard_event_with_another_object_requeues_no_pod(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")

    assert cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT, None, SMALL) == 0


def test_the_pre_check_excludes_pods_before_their_hints(cluster: Cluster):
    low, high = pod("low", priority=1), pod("high", priority=9)
    cluster.reject(low, "Labels")
    cluster.reject(high, "Labels")

    assert cluster.queue.move_all(ASSIGNED_POD_DELETE, low, None, lambda each: each.priority <= 5) == 1
    assert cluster.queue.place_of(high.uid) is Place.UNSCHEDULABLE
    assert len(cluster.counts.hints) == 1


def test_pods_use_the_registered_events_of_their_profile(cluster: Cluster):
    cluster.profiles["other"] = {"Fit": REGISTERED["Taints"]}
    web, db = pod("web"), pod("db", scheduler_name="other")
    cluster.reject(web, "Fit")
    cluster.reject(db, "Fit")

    assert cluster.queue.move_all(NODE_TAINT) == 1
    assert cluster.queue.place_of(web.uid) is Place.UNSCHEDULABLE
    assert cluster.queue.place_of(db.uid) is Place.BACKOFF


def test_a_reloaded_profile_uses_its_new_registered_events(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    assert cluster.queue.move_all(NODE_TAINT) == 0

    cluster.profiles["custom-scheduler"] = {"Fit": REGISTERED["Taints"]}

    assert cluster.queue.move_all(NODE_TAINT) == 1


def test_a_pod_of_a_removed_profile_waits_for_the_flush(cluster: Cluster):
    web = pod("web", scheduler_name="gone")
    cluster.reject(web, "Fit")

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 0
    assert cluster.advance_and_flush(300) == 1


@pytest.mark.parametrize(
    ("event", "woken"),
    [
        pytest.param(
            ClusterEvent(EventResource.NODE, ActionType.UPDATE), 1, id="only registrations for all updates"
        ),
        pytest.param(ClusterEvent(EventResource.POD_GROUP, ActionType.ADD), 1, id="an unnamed kind"),
    ],
)
def test_a_general_event_matches_only_registrations_for_all_of_it(
    cluster: Cluster, event: ClusterEvent, woken: int
):
    cluster.reject(pod("web"), "Taints")
    cluster.reject(pod("db"), "Anything")

    assert cluster.queue.move_all(event, SMALL, LARGE) == woken


def test_hints_are_called_for_unschedulable_pods_only(cluster: Cluster):
    cluster.fail(pod("backs-off"))
    cluster.queue.add(pod("active"))

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 0
    assert cluster.queue.move_all(CSI_NODE_ADD) == 0
    assert cluster.counts.hints == []


def test_an_event_without_registrations_calls_no_hint(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "events", None)
    monkeypatch.setattr(cluster.clock, "monotonic", None)

    assert cluster.queue.move_all(NODE_TAINT, None, node("n1")) == 0
