"""Nominations of other schedulers are respected by priority, from their watch event until their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from plugins.node_resources.fit import NodeResourcesFit
from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.queue import Place
from scheduler.objects.pod import PodInfo
from tests.support.builders import node, pod
from tests.unit.engine.cycle.cluster import Cluster, pod_on, terminating
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def theirs(node_name: str = "n1", **fields: Any) -> PodInfo:
    """A pending pod of another scheduler, nominated to a node."""
    status = {"nominatedNodeName": node_name} if node_name else {}
    return pod("theirs", **{"cpu": "2", "priority": 5, "scheduler_name": "other", "status": status, **fields})


UID = theirs().uid


def going() -> PodInfo:
    """The other scheduler's pod, being deleted."""
    return PodInfo(msgspec.structs.replace(theirs().pod, metadata=terminating("theirs").pod.metadata))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Return a cluster of one node with two CPUs."""
    cluster = Cluster(made(NodeResourcesFit), nodes=())
    cluster.nodes.on_add(node("n1", cpu="2"))
    yield cluster
    cluster.check()


def rejected(cluster: Cluster, priority: int = 0) -> bool:
    """Try a pod of this scheduler that requests one CPU; return whether it is rejected."""
    cluster.api.create(pod("ours", cpu="1", priority=priority))
    queued = cluster.pop()
    choice = run_now(cluster.schedule_one(queued))
    return choice is None


def deliver(cluster: Cluster, *versions: PodInfo) -> None:
    for version in versions:
        (cluster.api.update if version.key in cluster.api.pods else cluster.api.create)(version)


@pytest.mark.parametrize(
    ("priority", "waits"), [(4, True), (5, True), (6, False)], ids=["less", "equal", "more important"]
)
def test_a_pod_of_ours_leaves_nominated_capacity_unless_its_priority_is_higher(
    cluster: Cluster, priority: int, waits: bool
):
    deliver(cluster, theirs())

    assert rejected(cluster, priority) is waits


def test_a_nomination_counts_from_its_update(cluster: Cluster):
    deliver(cluster, theirs(""), theirs("n1"))

    assert rejected(cluster)


@pytest.mark.parametrize(
    "versions",
    [
        [theirs("")],
        [theirs("n1"), theirs("")],
        [theirs("n1"), theirs("n2")],
        [theirs(gates=["example.com/wait"])],
        [theirs("n1"), theirs("n1", status={"nominatedNodeName": "n1", "phase": "Failed"})],
    ],
    ids=["no field", "taken back", "elsewhere", "gated", "ended"],
)
def test_without_a_nomination_nothing_is_counted(cluster: Cluster, versions: list[PodInfo]):
    deliver(cluster, *versions)

    assert not rejected(cluster)


def test_a_terminating_pod_keeps_no_nominated_capacity(cluster: Cluster):
    deliver(cluster, theirs(), going())

    assert cluster.nominator.node_of(UID) == ""


def test_a_bound_pod_is_counted_once_and_no_longer_nominated(cluster: Cluster):
    half = theirs(cpu="1")
    deliver(cluster, half, pod_on(half, "n1"))

    assert cluster.nominator.node_of(UID) == ""
    assert not rejected(cluster)  # one CPU is kept for the other pod, one is free


def test_a_nominated_pod_of_another_scheduler_is_never_queued(cluster: Cluster):
    deliver(cluster, theirs(), theirs("n2"))

    assert cluster.place_of("theirs") is Place.OUTSIDE


def test_a_recreated_pod_does_not_inherit_the_nomination(cluster: Cluster):
    deliver(cluster, theirs(), theirs("", uid="another"))

    assert cluster.nominator.nominated_nodes == frozenset()


def end_by_deletion(cluster: Cluster) -> None:
    cluster.api.delete("default/theirs")


def end_by_update(cluster: Cluster) -> None:
    cluster.api.update(theirs(""))


@pytest.mark.parametrize("end", [end_by_deletion, end_by_update], ids=["deleted", "taken back"])
def test_the_end_of_a_nomination_requeues_pods_that_wait_for_its_capacity(
    cluster: Cluster, end: Callable[[Cluster], None]
):
    deliver(cluster, theirs())
    assert rejected(cluster)
    assert cluster.place_of("ours") is Place.UNSCHEDULABLE

    end(cluster)

    assert cluster.place_of("ours") is Place.BACKOFF
    assert cluster.nominator.node_of(UID) == ""
