"""Watch events keep a pod on a node in the queue as long as its resize is deferred.

Source of the cases: kube-scheduler v1.37 (fde22c3f), eventhandlers.go, addPod, updatePod, deletePod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.engine.queue import Place
from scheduler.engine.state.cache import PodState
from scheduler.objects.decode import decode_pod
from tests.support.builders import pod, pod_object
from tests.unit.engine.cycle.cluster import PROFILE, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.objects.pod import PodInfo

GROUP = {"schedulingGroup": {"podGroupName": "g"}}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}


def on_node(*, deferred: bool, **more: Any) -> PodInfo:
    return pod("web", node="n1", status=DEFERRED if deferred else {}, **more)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.profiles.swap({PROFILE: cluster.framework}, preempts_for_resizes=True)
    yield cluster
    assert cluster.cache.state_of(pod("web").uid) is not PodState.ASSUMED
    cluster.check()


def test_a_pod_with_a_deferred_resize_is_queued_and_counted(cluster: Cluster):
    cluster.pods.on_add(on_node(deferred=True))

    assert cluster.place_of("web") is Place.ACTIVE
    assert cluster.cache.state_of(pod("web").uid) is PodState.CONFIRMED


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(on_node(deferred=False), id="no resize"),
        pytest.param(on_node(deferred=True, scheduler_name="other"), id="a pod of another scheduler"),
        pytest.param(pod("web", node="n1", status={**DEFERRED, "phase": "Failed"}), id="an ended pod"),
    ],
)
def test_other_pods_on_nodes_are_not_queued(cluster: Cluster, other: PodInfo):
    cluster.pods.on_add(other)

    assert cluster.place_of("web") is Place.OUTSIDE


def test_without_the_gate_no_pod_on_a_node_is_queued(cluster: Cluster):
    cluster.profiles.swap({PROFILE: cluster.framework})
    cluster.pods.on_add(on_node(deferred=True))
    cluster.pods.on_update(on_node(deferred=False), on_node(deferred=True))
    cluster.pods.on_delete(on_node(deferred=True))

    assert cluster.place_of("web") is Place.OUTSIDE


def test_it_follows_the_condition(cluster: Cluster):
    cluster.pods.on_add(on_node(deferred=False))
    cluster.pods.on_update(on_node(deferred=False), on_node(deferred=True))
    assert cluster.place_of("web") is Place.ACTIVE

    cluster.pods.on_update(on_node(deferred=True), on_node(deferred=False))
    assert cluster.place_of("web") is Place.OUTSIDE


@pytest.mark.parametrize("is_in_flight", [False, True], ids=["waiting", "in flight"])
def test_its_newest_version_is_queued(cluster: Cluster, is_in_flight: bool):
    old, new = on_node(deferred=True, cpu="1"), on_node(deferred=True, cpu="2")
    cluster.pods.on_add(old)
    if is_in_flight:
        cluster.queue.pop()
    cluster.pods.on_update(old, new)

    assert cluster.queue.newest(new.uid) is new
    cluster.queue.done(new.uid)


@pytest.mark.parametrize("end", ["deleted", "ended", "terminating"])
def test_it_leaves_the_queue_when_it_goes(cluster: Cluster, end: str):
    old = on_node(deferred=True)
    cluster.pods.on_add(old)
    if end == "deleted":
        cluster.pods.on_delete(old)
    elif end == "ended":
        cluster.pods.on_update(old, pod("web", node="n1", status={**DEFERRED, "phase": "Succeeded"}))
    else:
        leaving = pod_object("web", node="n1", status=DEFERRED)
        leaving["metadata"]["deletionTimestamp"] = "2026-03-01T09:00:00Z"
        cluster.pods.on_update(old, decode_pod(msgspec.json.encode(leaving)))

    assert cluster.place_of("web") is Place.OUTSIDE


def test_a_pod_that_is_deferred_as_soon_as_it_is_bound_is_queued(cluster: Cluster):
    cluster.pods.on_add(pod("web"))
    cluster.pods.on_update(pod("web"), on_node(deferred=True))

    assert cluster.place_of("web") is Place.ACTIVE


def test_a_pod_that_a_restored_server_has_unbound_waits_for_a_node(cluster: Cluster):
    cluster.pods.on_add(on_node(deferred=True))
    cluster.pods.on_update(on_node(deferred=True), pod("web"))

    queued = cluster.queue.get(pod("web").uid)
    assert queued is not None
    assert queued.pod.node_name == ""


def test_it_is_no_pending_member_of_its_group(cluster: Cluster):
    waiting = on_node(deferred=True, **GROUP)
    assert waiting.group is not None
    cluster.pods.on_add(waiting)

    assert list(cluster.cache.groups.pending(waiting.group)) == []
    assert cluster.cache.groups.count(waiting.group) == 1


def test_the_handled_events_name_what_enters_and_leaves_the_queue(cluster: Cluster):
    cluster.pods.on_add(on_node(deferred=True))
    cluster.pods.on_update(on_node(deferred=True), on_node(deferred=True, cpu="1"))
    cluster.pods.on_update(on_node(deferred=True, cpu="1"), on_node(deferred=False, cpu="1"))

    assert cluster.counts.handled[1:] == [
        "UnschedulablePodAdd",
        "AssignedPodAdd",
        "AssignedPodUpdatePodScaleUp",
        "UnschedulablePodDelete",
        "AssignedPodUpdate",
    ]
