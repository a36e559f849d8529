"""The example with a custom resource: a daemon watches it, counts, and writes its status."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scheduler.tools.simulator.faults import streamed_lists
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.third_party.test_examples import PLUGINS

if TYPE_CHECKING:
    from pathlib import Path

CRDS, MAINTENANCES = "customresourcedefinitions.apiextensions.k8s.io", "maintenances.example.com"
SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": MAINTENANCES},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "maintenances", "singular": "maintenance", "kind": "Maintenance"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {"status": {}},
            }
        ],
    },
}
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: RackMaintenance}]}}
"""


def maintenance(name: str, rack: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Maintenance",
        "metadata": {"name": name},
        "spec": {"rack": rack},
    }


async def test_a_plugin_watches_its_resource_and_writes_its_status(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.server.faults.refuse(400, streamed_lists)  # the right to list is needed too
        it.server.store.create(CRDS, DEFINITION)
        await asyncio.sleep(0.1)
        it.add_nodes(*(node_object(f"n-{rack}", labels={"example.com/rack": rack}) for rack in "ab"))
        it.add_pods(pod_object("old", node_name="n-a"))
        async with it.daemon(
            CONFIGURATION, plugins={"RackMaintenance": PLUGINS["rack_maintenance"]}
        ) as daemon:
            it.server.store.create(MAINTENANCES, maintenance("disks", "a"))
            await it.until(
                lambda: it.server.store.get(MAINTENANCES, "disks").get("status", {}).get("pods") == 1
            )
            it.add_pods(*(pod_object(f"new-{number}") for number in range(3)))
            await it.until(lambda: all(it.node_of(f"new-{number}") == "n-b" for number in range(3)))
            text = daemon.metrics.text()[0].decode()

            it.server.store.create(MAINTENANCES, maintenance("power", "b"))
            it.add_pods(pod_object("last"))
            await it.until(lambda: it.server.store.get("pods", "last")["status"].get("conditions"))
            it.server.store.delete(MAINTENANCES, "power")
            await it.until(lambda: it.node_of("last") == "n-b")

    assert 'example_rack_maintenance_rejections_total{rack="a"} 3.0' in text
