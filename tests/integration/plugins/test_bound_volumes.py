"""Pods with bound volumes: zones, limits of nodes, and claims for one pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.testing.samples import DRIVER, claim, csi_node, mounted, volume
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

ZONE = "topology.kubernetes.io/zone"
PLURALS = {
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "CSINode": "csinodes.storage.k8s.io",
}


def put(it: Cluster, *objects: dict[str, Any]) -> None:
    for each in objects:
        it.server.store.create(PLURALS[each["kind"]], each)


async def test_a_pod_goes_where_its_volume_is_once_its_claim_is_there(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(*(node_object(f"in-{zone}", labels={ZONE: zone}) for zone in "abc"))
        it.add_pods(pod_object("web", volumes=mounted("data")))
        await it.until(lambda: it.condition("web"))
        expected = '0/3 nodes are available: persistentvolumeclaim "data" not found. not found'
        assert it.condition("web")["message"] == expected

        put(it, volume("in-b", labels={ZONE: "b"}), claim("data", "in-b"))

        await it.until(lambda: it.node_of("web") == "in-b")


async def test_a_pod_waits_until_another_one_frees_capacity_for_its_volume(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        put(it, volume("x"), claim("x", "x"), volume("y"), claim("y", "y"), csi_node("n1", {DRIVER: 1}))
        it.add_nodes(node_object("n1"))
        it.add_pods(pod_object("first", volumes=mounted("x")))
        await it.until(lambda: it.node_of("first") == "n1")
        it.add_pods(pod_object("second", volumes=mounted("y")))
        await it.until(lambda: it.condition("second"))
        assert "1 node(s) exceed max volume count" in it.condition("second")["message"]

        it.server.store.delete("pods", "first", grace_period_seconds=0)

        await it.until(lambda: it.node_of("second") == "n1")


async def test_a_pod_of_higher_priority_takes_a_claim_for_one_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        put(it, volume("x"), claim("x", "x", modes=["ReadWriteOncePod"]))
        it.add_nodes(node_object("n1"), node_object("n2"))
        it.add_pods(pod_object("first", volumes=mounted("x")))
        await it.until(lambda: it.node_of("first"))
        where = it.node_of("first")

        it.add_pods(pod_object("urgent", priority=100, volumes=mounted("x")))

        await it.until(lambda: it.node_of("urgent"))
        assert it.node_of("urgent") == where
        assert [each["metadata"]["name"] for each in it.pods()] == ["urgent"]
        await it.until(lambda: it.notes("first", "Preempted"))
