"""Pods that PreEnqueue gates."""

import logging

import pytest

from scheduler.engine.queue import Place
from scheduler.framework import Code, Status
from scheduler.framework.events import NODE_ADD, UNSCHEDULABLE_TIMEOUT
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import CSI_NODE_ADD, NODE_TAINT, PROFILE, PVC_ADD, Cluster

WEB = "uid-of-default-web"


def held(cluster: Cluster) -> None:
    """Add a pod that Hold keeps gated."""
    cluster.held.add(WEB)
    cluster.queue.add(pod("web"))
    assert cluster.queue.place_of(WEB) is Place.GATED


def test_a_gated_pod_is_not_tried_and_counts_as_gated(cluster: Cluster):
    held(cluster)

    assert cluster.queue.pop() is None
    assert (cluster.queue.count(Place.GATED), cluster.queue.count(Place.UNSCHEDULABLE)) == (1, 0)
    assert cluster.counts.came_in["unschedulable", "UnschedulablePodAdd"] == 1
    assert cluster.queue.rejections == {("Hold", PROFILE): 1}


def test_a_gated_pod_has_no_time_of_a_first_attempt(cluster: Cluster):
    held(cluster)
    cluster.held.clear()
    cluster.clock.advance(60)
    cluster.queue.move_all(CSI_NODE_ADD)
    queued = cluster.pop()

    assert (queued.timestamp, queued.initial_attempt_timestamp) == (1000.0, 1060.0)


def test_an_event_of_the_gating_plugin_admits_the_pod_if_preenqueue_passes(cluster: Cluster):
    held(cluster)
    assert cluster.queue.move_all(CSI_NODE_ADD) == 0
    assert cluster.queue.place_of(WEB) is Place.GATED

    cluster.held.clear()

    assert cluster.queue.move_all(CSI_NODE_ADD) == 1
    assert cluster.queue.place_of(WEB) is Place.ACTIVE


def test_events_of_other_plugins_do_not_call_preenqueue(cluster: Cluster):
    held(cluster)
    cluster.queue.move_all(NODE_ADD, None, node("n1"))
    cluster.queue.move_all(NODE_TAINT)
    cluster.queue.move_all(UNSCHEDULABLE_TIMEOUT)

    assert cluster.asked["web"] == 1


def test_a_rejection_by_another_plugin_changes_the_awaited_events(cluster: Cluster):
    held(cluster)
    cluster.held.clear()
    cluster.under_curfew.add(WEB)
    cluster.queue.move_all(CSI_NODE_ADD)
    assert cluster.queue.history(WEB)[-1].why.endswith("gated by Curfew: too late")

    cluster.under_curfew.clear()

    assert cluster.queue.move_all(NODE_TAINT) == 1


def test_removing_the_last_gate_admits_the_pod(cluster: Cluster):
    old, new = pod("web", gates=["a"]), pod("web")
    cluster.queue.add(old)
    assert cluster.queue.place_of(WEB) is Place.GATED

    cluster.update(old, new)

    assert cluster.queue.place_of(WEB) is Place.ACTIVE
    assert cluster.counts.came_in["active", "UnschedulablePodUpdatePodSchedulingGatesEliminated"] == 1


def test_removing_one_gate_of_two_calls_no_preenqueue(cluster: Cluster):
    old, new = pod("web", gates=["a", "b"]), pod("web", gates=["b"])
    cluster.queue.add(old)
    cluster.update(old, new)

    assert cluster.queue.place_of(WEB) is Place.GATED
    assert cluster.asked["web"] == 1


def test_preenqueue_is_called_again_on_the_way_from_unschedulable(cluster: Cluster):
    cluster.reject(pod("web"), "Taints")
    cluster.held.add(WEB)

    assert cluster.queue.move_all(NODE_TAINT) == 0
    assert cluster.queue.place_of(WEB) is Place.GATED
    assert (cluster.queue.count(Place.GATED), cluster.queue.count(Place.UNSCHEDULABLE)) == (1, 0)


def test_preenqueue_is_called_again_after_a_failed_attempt(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.held.add(WEB)

    assert cluster.queue.add_unschedulable(queued, is_error=True) is Place.GATED
    cluster.held.clear()
    assert cluster.queue.move_all(CSI_NODE_ADD) == 1
    assert cluster.queue.place_of(WEB) is Place.BACKOFF


def test_preenqueue_is_not_called_between_backoff_and_active(cluster: Cluster):
    cluster.fail(pod("web"))
    asked = cluster.asked["web"]
    cluster.held.add(WEB)
    cluster.advance_and_flush(2)

    assert cluster.queue.place_of(WEB) is Place.ACTIVE
    assert cluster.asked["web"] == asked


def test_an_unschedulable_pod_is_not_gated_while_it_waits(cluster: Cluster):
    cluster.queue.add(pod("web"))
    queued = cluster.pop()
    cluster.held.add(WEB)

    assert cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"]) is Place.UNSCHEDULABLE


def test_a_pod_gated_after_an_attempt_reacts_to_its_gating_plugin_alone(cluster: Cluster):
    cluster.reject(pod("web"), "Taints")
    cluster.held.add(WEB)
    cluster.queue.move_all(NODE_TAINT)
    asked = cluster.asked["web"]
    cluster.queue.move_all(NODE_TAINT)
    cluster.queue.move_all(PVC_ADD)

    assert cluster.asked["web"] == asked


def test_activation_calls_preenqueue(cluster: Cluster):
    held(cluster)
    cluster.queue.activate([WEB])
    assert cluster.queue.place_of(WEB) is Place.GATED
    assert cluster.queue.history(WEB)[-1].why == "ForceActivate; gated by Hold: held"

    cluster.held.clear()
    cluster.queue.activate([WEB])

    assert cluster.queue.place_of(WEB) is Place.ACTIVE


def test_a_plugin_that_fails_at_preenqueue_keeps_the_pod_gated_and_is_logged(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    failure = Status(Code.ERROR, ("no answer",), plugin="Hold")
    monkeypatch.setattr(cluster, "run_pre_enqueue", lambda _pod: failure)
    with caplog.at_level(logging.ERROR):
        cluster.queue.add(pod("web"))

    assert cluster.queue.count(Place.GATED) == 1
    assert caplog.records[0].__dict__["error"] == "no answer"


def test_a_rejection_without_a_plugin_raises(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "run_pre_enqueue", lambda _pod: Status.unschedulable("no"))
    with pytest.raises(AssertionError, match="default/web"):
        cluster.queue.add(pod("web"))
