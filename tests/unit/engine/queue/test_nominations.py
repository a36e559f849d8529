"""Which pods the queue nominates, and when it removes the nomination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.builders import pod

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from tests.unit.engine.queue.cluster import Cluster

WEB = "uid-of-default-web"


def web(node: str = "", **fields: object) -> PodInfo:
    """Return a pending pod whose status nominates a node."""
    return pod("web", status={"nominatedNodeName": node}, **fields)


def test_the_queue_nominates_a_new_pod_by_its_status(cluster: Cluster):
    cluster.queue.add(web("n1"))

    assert cluster.nominator.node_of(WEB) == "n1"


def test_the_queue_nominates_no_gated_new_pod(cluster: Cluster):
    cluster.queue.add(web("n1", gates=["a"]))

    assert cluster.nominator.node_of(WEB) == ""


def test_the_queue_nominates_the_newest_version_of_a_queued_pod(cluster: Cluster):
    old, new = web(), web(labels={"a": "b"})
    cluster.queue.add(old)
    cluster.pop()
    cluster.update(old, new)
    cluster.queue.nominate(WEB, "n1")

    assert cluster.nominator.nominated_pods_for_node("n1") == (new,)


def test_the_queue_nominates_no_unknown_pod(cluster: Cluster):
    cluster.queue.nominate(WEB, "n1")

    assert cluster.nominator.node_of(WEB) == ""


def test_the_queue_nominates_no_pod_deleted_while_in_flight(cluster: Cluster):
    cluster.queue.add(web())
    cluster.pop()
    cluster.queue.delete(web())
    cluster.queue.nominate(WEB, "n1")

    assert cluster.nominator.node_of(WEB) == ""


def test_a_deleted_pod_is_no_longer_nominated(cluster: Cluster):
    cluster.queue.add(web("n1"))
    cluster.queue.delete(web("n1"))

    assert cluster.nominator.nominated_nodes == frozenset()


def test_the_queue_keeps_nominations_up_to_date_with_updates(cluster: Cluster):
    cluster.queue.add(web("n1"))
    cluster.update(web("n1"), web("n2"))

    assert cluster.nominator.node_of(WEB) == "n2"
