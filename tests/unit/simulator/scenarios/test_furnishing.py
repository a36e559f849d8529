"""Objects of a generated cluster beside its nodes."""

from __future__ import annotations

from scheduler.simulator.scenarios.clusters import GPU, furnish, heterogeneous
from scheduler.simulator.server import ApiServer


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
