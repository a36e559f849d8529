"""NodeResourceTopologyMatch in a running daemon: objects change, placed pods count, waiting pods are tried again; time is virtual."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import yaml

from plugins.node_resource_topology.pod_fingerprint import fingerprint
from scheduler.testing.samples import node_topology
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.manifests import MANIFESTS
from tests.unit.plugins.node_resource_topology.numa_cluster import with_placement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

DEFINITION = yaml.safe_load((MANIFESTS / "crds" / "noderesourcetopologies.yaml").read_text())
PROFILE = yaml.safe_load((MANIFESTS / "examples" / "numa" / "scheduler.yaml").read_text())
CRDS, TOPOLOGIES = (
    "customresourcedefinitions.apiextensions.k8s.io",
    "noderesourcetopologies.topology.node.k8s.io",
)
UNALIGNED = "0/1 nodes are available: 1 cannot align container."


def exclusive(name: str, cpu: str, **fields: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    return pod_object(name, containers=[{"name": "main", "image": "x", "resources": resources}], **fields)


def topology(*cpus: str, pods: Collection[str] = ()) -> dict[str, Any]:
    included = fingerprint(("default", name) for name in pods)
    return node_topology(
        "n",
        *({"cpu": each, "memory": "16Gi"} for each in cpus),
        attributes={"nodeTopologyPodsFingerprint": included},
    )


@asynccontextmanager
async def numa_node(folder: Path, *cpus: str, **args: Any) -> AsyncIterator[Cluster]:
    """A cluster with one node of 32 cpus, and free cpus in its zones."""
    profile = yaml.safe_load(yaml.safe_dump(PROFILE))
    profile["profiles"][0]["pluginConfig"][0]["args"].update(args)
    async with cluster(folder, kubelet=True) as it:
        await it.define(DEFINITION)
        it.add_nodes(node_object("n", cpu="32", memory="64Gi"))
        it.server.store.create(TOPOLOGIES, topology(*cpus))
        async with it.daemon(yaml.safe_dump(profile)):
            yield it


def changed(it: Cluster, obj: dict[str, Any]) -> None:
    before = it.server.store.get(TOPOLOGIES, "n")
    metadata = {**before["metadata"], **obj["metadata"]}
    it.server.store.update(TOPOLOGIES, {**obj, "metadata": metadata})


def says(it: Cluster, name: str) -> str:
    return str(it.condition(name).get("message", ""))


async def test_a_waiting_pod_is_tried_again_when_the_object_changes(tmp_path: Path) -> None:
    async with numa_node(tmp_path, "4", "4") as it:
        it.add_pods(exclusive("a", "6"))
        await it.until(lambda: says(it, "a").startswith(UNALIGNED))
        await asyncio.sleep(60)
        assert not it.node_of("a")

        changed(it, topology("4", "8"))
        await it.until(lambda: it.node_of("a") == "n", seconds=60)


async def test_placed_pods_count_until_the_object_includes_them(tmp_path: Path) -> None:
    async with numa_node(tmp_path, "8", cacheResyncPeriodSeconds=5) as it:
        it.add_pods(exclusive("a", "5"))
        await it.until(lambda: it.node_of("a") == "n")
        it.add_pods(exclusive("b", "4"))
        await it.until(lambda: says(it, "b").startswith(UNALIGNED))

        changed(it, topology("8"))  # of the time before the pod
        await asyncio.sleep(60)
        assert not it.node_of("b")
        changed(it, topology("4", pods=("a",)))
        await it.until(lambda: it.node_of("b") == "n", seconds=60)


async def test_a_deleted_pod_counts_no_longer(tmp_path: Path) -> None:
    async with numa_node(tmp_path, "8", cacheResyncPeriodSeconds=5) as it:
        it.add_pods(exclusive("a", "5"))
        await it.until(lambda: it.node_of("a") == "n")
        it.add_pods(exclusive("b", "4"))
        await it.until(lambda: says(it, "b").startswith(UNALIGNED))

        it.server.store.delete("pods", "a", "default")
        await it.until(lambda: it.node_of("b") == "n", seconds=60)


async def test_a_node_with_pods_of_others_waits_for_its_object(tmp_path: Path) -> None:
    async with numa_node(tmp_path, "8", cacheResyncPeriodSeconds=5) as it:
        it.add_pods(pod_object("other", node="n", scheduler_name="default-scheduler"))
        it.add_pods(exclusive("a", "5"))
        await it.until(
            lambda: says(it, "a").startswith("0/1 nodes are available: 1 invalid node topology data.")
        )

        changed(it, topology("8", pods=("other",)))
        await it.until(lambda: it.node_of("a") == "n", seconds=60)


def full(zones: Mapping[str, int]) -> dict[str, Any]:
    """The object of a node with two zones of four cpus, none of them free; pod -> the zone that its container has."""
    obj = topology("4", "4", pods=zones.keys())
    for zone in obj["zones"]:
        for resource, available in zip(zone["resources"], ("0", "8Gi"), strict=True):
            resource["available"] = available
    return with_placement(obj, {("default", name, "main"): number for name, number in zones.items()})


async def test_preemption_evicts_the_pods_of_one_zone_and_no_others_afterwards(tmp_path: Path) -> None:
    async with numa_node(tmp_path, "4", "4", cacheResyncPeriodSeconds=5, preemptionMode="Enabled") as it:
        lower = {"a": 0, "b": 0, "c": 1, "d": 1}
        it.add_pods(*(exclusive(name, "2", node="n", priority=1 + zone) for name, zone in lower.items()))
        changed(it, full(lower))

        it.add_pods(exclusive("high", "4", priority=100))
        await it.until(lambda: it.node_of("high") == "n", seconds=120)
        await asyncio.sleep(60)
        assert {pod["metadata"]["name"] for pod in it.pods()} == {"c", "d", "high"}
