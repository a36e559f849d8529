"""Which events requeue which pods, and where the pods go."""

import logging

import pytest

from scheduler.engine.queue import Place
from scheduler.framework import ActionType, ClusterEvent, EventResource
from scheduler.framework.changes import ASSIGNED_POD_DELETE, NODE_ADD, UNSCHEDULABLE_TIMEOUT
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import CSI_NODE_ADD, NODE_LABEL, NODE_TAINT, PVC_ADD, REGISTERED, Cluster

LARGE = node("n1", labels={"size": "9"})
SMALL = node("n2", labels={"size": "1"})


def test_an_event_that_helps_takes_a_pod_to_backoff_while_it_backs_off(cluster: Cluster):
    web = pod("web", labels={"size": "5"})
    cluster.reject(web, "Fit")

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 1
    assert cluster.queue.place_of(web.uid) is Place.BACKOFF
    assert cluster.counts.came_in["backoff", "NodeAdd"] == 1


def test_an_event_that_helps_takes_a_pod_to_active_when_its_backoff_is_over(cluster: Cluster):
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


def test_only_plugins_that_rejected_the_pod_are_asked(cluster: Cluster):
    cluster.reject(pod("web"), "Taints")

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 0
    assert cluster.counts.hints == []


def test_one_helping_hint_of_several_is_enough(cluster: Cluster):
    cluster.reject(pod("web", labels={"size": "5"}), "Fit", "Anything", "Labels")

    assert cluster.queue.move_all(NODE_ADD, None, SMALL) == 1
    assert cluster.counts.hints == [("Fit", "NodeAdd", "QueueSkip"), ("Anything", "NodeAdd", "Queue")]


def test_a_pod_is_asked_about_once_though_several_plugins_wait(cluster: Cluster):
    cluster.reject(pod("web"), "Taints", "Anything")

    assert cluster.queue.move_all(NODE_TAINT, SMALL, LARGE) == 1
    assert cluster.counts.hints == [("Taints", "NodeUpdateNodeTaint", "Queue")]


def test_a_plugin_without_a_hint_helps_with_every_event_it_registered_for(cluster: Cluster):
    cluster.reject(pod("web"), "Taints")

    assert cluster.queue.move_all(NODE_TAINT, SMALL, SMALL) == 1


def test_a_failing_hint_counts_as_help_and_is_logged(cluster: Cluster, caplog: pytest.LogCaptureFixture):
    cluster.reject(pod("web"), "Broken")

    with caplog.at_level(logging.ERROR):
        assert cluster.queue.move_all(NODE_LABEL, SMALL, LARGE) == 1

    assert cluster.counts.hints == [("Broken", "NodeUpdateNodeLabel", "Error")]
    record = caplog.records[0]
    assert (record.__dict__["plugin"], record.__dict__["pod"]) == ("Broken", "default/web")
    assert record.exc_info is not None
    assert "no idea" in str(record.exc_info[1])


def test_what_a_pending_plugin_waited_for_takes_the_pod_to_active_at_once(cluster: Cluster):
    web = pod("web")
    cluster.reject(web, "Taints", "Volumes", pending=["Volumes"])

    assert cluster.queue.move_all(PVC_ADD) == 1
    assert cluster.queue.place_of(web.uid) is Place.ACTIVE


def test_help_for_another_plugin_than_the_pending_one_still_backs_off(cluster: Cluster):
    web = pod("web")
    cluster.reject(web, "Taints", "Volumes", pending=["Volumes"])

    assert cluster.queue.move_all(NODE_TAINT) == 1
    assert cluster.queue.place_of(web.uid) is Place.BACKOFF


def test_the_pending_plugin_is_asked_first(cluster: Cluster):
    web = pod("web")
    cluster.reject(web, "Taints", "Anything", pending=["Anything"])

    cluster.queue.move_all(NODE_TAINT)

    assert cluster.queue.place_of(web.uid) is Place.ACTIVE
    assert [plugin for plugin, _, _ in cluster.counts.hints] == ["Anything"]


def test_a_wildcard_event_wakes_every_unschedulable_pod_without_asking(cluster: Cluster):
    for name in ("web", "db"):
        cluster.reject(pod(name), "Fit")

    assert cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT) == 2
    assert cluster.counts.hints == []


def test_a_wildcard_event_with_a_pod_wakes_that_pod_only(cluster: Cluster):
    web, db = pod("web"), pod("db")
    cluster.reject(web, "Fit")
    cluster.reject(db, "Fit")

    assert cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT, None, db) == 1
    assert cluster.queue.place_of(web.uid) is Place.UNSCHEDULABLE


def test_a_wildcard_event_with_another_object_wakes_nobody(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")

    assert cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT, None, SMALL) == 0


def test_the_pre_check_leaves_pods_out_unasked(cluster: Cluster):
    low, high = pod("low", priority=1), pod("high", priority=9)
    cluster.reject(low, "Labels")
    cluster.reject(high, "Labels")

    assert cluster.queue.move_all(ASSIGNED_POD_DELETE, low, None, lambda each: each.priority <= 5) == 1
    assert cluster.queue.place_of(high.uid) is Place.UNSCHEDULABLE
    assert len(cluster.counts.hints) == 1


def test_pods_of_a_profile_hear_what_that_profile_registered(cluster: Cluster):
    cluster.profiles["other"] = {"Fit": REGISTERED["Taints"]}
    web, db = pod("web"), pod("db", scheduler_name="other")
    cluster.reject(web, "Fit")
    cluster.reject(db, "Fit")

    assert cluster.queue.move_all(NODE_TAINT) == 1
    assert cluster.queue.place_of(web.uid) is Place.UNSCHEDULABLE
    assert cluster.queue.place_of(db.uid) is Place.BACKOFF


def test_a_reloaded_profile_is_heard_from_then_on(cluster: Cluster):
    cluster.reject(pod("web"), "Fit")
    assert cluster.queue.move_all(NODE_TAINT) == 0

    cluster.profiles["custom-scheduler"] = {"Fit": REGISTERED["Taints"]}

    assert cluster.queue.move_all(NODE_TAINT) == 1


def test_a_pod_whose_profile_is_gone_waits_for_the_flush(cluster: Cluster):
    web = pod("web", scheduler_name="gone")
    cluster.reject(web, "Fit")

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 0
    assert cluster.advance_and_flush(300) == 1


@pytest.mark.parametrize(
    ("event", "woken"),
    [
        pytest.param(
            ClusterEvent(EventResource.NODE, ActionType.UPDATE), 1, id="only those who take all updates"
        ),
        pytest.param(ClusterEvent(EventResource.POD_GROUP, ActionType.ADD), 1, id="a kind nobody named"),
    ],
)
def test_a_general_event_reaches_only_those_who_registered_for_all_of_it(
    cluster: Cluster, event: ClusterEvent, woken: int
):
    cluster.reject(pod("web"), "Taints")
    cluster.reject(pod("db"), "Anything")

    assert cluster.queue.move_all(event, SMALL, LARGE) == woken


def test_pods_not_among_the_unschedulable_are_not_asked_about(cluster: Cluster):
    cluster.fail(pod("backs-off"))
    cluster.queue.add(pod("active"))

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == 0
    assert cluster.queue.move_all(CSI_NODE_ADD) == 0
    assert cluster.counts.hints == []


def test_an_event_that_nobody_waits_for_asks_nobody(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "events", None)
    monkeypatch.setattr(cluster.clock, "monotonic", None)

    assert cluster.queue.move_all(NODE_TAINT, None, node("n1")) == 0
