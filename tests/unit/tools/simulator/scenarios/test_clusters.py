"""Generated clusters: nodes, a storage class, and devices."""

from __future__ import annotations

from scheduler.tools.simulator.scenarios.clusters import (
    GPU,
    GPU_TAINT,
    SHAPES,
    furnish,
    heterogeneous,
    uniform,
)
from scheduler.tools.simulator.server import ApiServer
from tests.unit.tools.simulator.a_store import AStore


def labels(nodes: list[dict], label: str) -> set[str]:
    return {node["metadata"]["labels"][label] for node in nodes}


def test_a_mixed_cluster_has_all_shapes_in_several_zones():
    nodes = heterogeneous(50, seed=3)

    assert len({node["metadata"]["name"] for node in nodes}) == 50
    assert labels(nodes, "node.kubernetes.io/instance-type") == {shape.instance_type for shape in SHAPES}
    assert len(labels(nodes, "topology.kubernetes.io/zone")) == 3


def test_gpu_nodes_are_tainted_and_one_other_node_is_cordoned():
    nodes = heterogeneous(50, seed=3)
    with_gpus = [node for node in nodes if GPU in node["status"]["allocatable"]]
    cordoned = [node for node in nodes if node["spec"].get("unschedulable")]

    assert with_gpus
    assert all(node["spec"]["taints"] == [GPU_TAINT] for node in with_gpus)
    assert len(cordoned) == 1
    assert cordoned[0] not in with_gpus


def test_a_seed_determines_the_cluster():
    assert heterogeneous(20, seed=1) == heterogeneous(20, seed=1)
    assert heterogeneous(20, seed=1) != heterogeneous(20, seed=2)


def test_small_clusters_are_possible():
    assert [len(heterogeneous(count)) for count in (0, 1, 2)] == [0, 1, 2]
    assert not heterogeneous(1)[0]["spec"].get("unschedulable")


def test_the_nodes_of_a_uniform_cluster_are_equal():
    nodes = uniform(10, cpu="8", memory="32Gi", pods=20)

    assert {str(node["status"]["allocatable"]) for node in nodes} == {
        str({"cpu": "8", "memory": "32Gi", "pods": "20"})
    }


def test_a_server_accepts_every_generated_node(store: AStore):
    for node in [*heterogeneous(30)]:
        store.create("nodes", node)

    assert len(store.list("nodes")) == 30


def test_a_generated_cluster_has_a_storage_class_and_the_devices_of_its_nodes():
    server, nodes = ApiServer(), heterogeneous(20, seed=7)
    for node in nodes:
        server.store.create("nodes", node)
    furnish(server, nodes)

    with_gpus = sorted(one["metadata"]["name"] for one in nodes if GPU in one["status"]["capacity"])
    slices = server.store.list("resourceslices")
    assert with_gpus
    assert sorted(one["spec"]["nodeName"] for one in slices) == with_gpus
    assert all(len(one["spec"]["devices"]) == 4 for one in slices)
    assert len(server.store.list("csinodes")) == 20
    server.store.create(
        "persistentvolumeclaims",
        {
            "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    assert server.store.get("persistentvolumeclaims", "c")["spec"]["storageClassName"] == "standard"
