"""Kubernetes' pod groups for tests with a daemon: their objects, and what the API server has of them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster

POD_GROUPS = "podgroups.scheduling.k8s.io"
RACK = "topology.kubernetes.io/rack"


@asynccontextmanager
async def running(
    folder: Path, *nodes: Mapping[str, Any], configuration: str = "", kubelet: bool = False, **options: Any
) -> AsyncIterator[tuple[Cluster, Daemon]]:
    """Run a daemon on a cluster with these nodes; the options are those of `Cluster.daemon`."""
    async with cluster(folder, kubelet=kubelet) as it, it.daemon(configuration, **options) as daemon:
        it.add_nodes(*nodes)
        yield it, daemon


def pod_group(name: str, min_count: int = 0, **spec: Any) -> dict[str, Any]:
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def members(group: str, count: int, **fields: Any) -> list[dict[str, Any]]:
    return [member(group, f"{group}-{number}", **fields) for number in range(count)]


def member(group: str, name: str, **fields: Any) -> dict[str, Any]:
    pod = pod_object(name, **{"cpu": "1", **fields})
    pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pod


def add_group(it: Cluster, name: str, min_count: int = 0, *, priority: int = 0, **spec: Any) -> None:
    """Create a PodGroup; it is basic without `min_count`."""
    if priority:
        spec["priorityClassName"] = it.priority_class(priority)
    it.server.store.create(POD_GROUPS, pod_group(name, min_count, **spec))


def add_gang(it: Cluster, name: str, count: int, min_count: int | None = None, **fields: Any) -> None:
    """Create a gang, by default of all its pods and of their priority; `fields` are those of a pod."""
    add_group(it, name, count if min_count is None else min_count, priority=fields.get("priority", 0))
    it.add_pods(*members(name, count, **fields))


async def fill(it: Cluster, count: int, **fields: Any) -> None:
    """Create pods that are placed at once: low-0, low-1, ..."""
    it.add_pods(*(pod_object(f"low-{number}", **{"cpu": "1", **fields}) for number in range(count)))
    await it.until(lambda: {f"low-{number}" for number in range(count)} <= placed(it))


def placed(it: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in it.pods() if pod["spec"].get("nodeName")}


def told(it: Cluster, name: str) -> str:
    conditions = it.pod(name).get("status", {}).get("conditions", ())
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


def condition(it: Cluster, group: str) -> tuple[str, str, str]:
    found = it.server.store.get(POD_GROUPS, group, "default").get("status", {}).get("conditions", ())
    return next(((each["status"], each["reason"], each.get("message", "")) for each in found), ("", "", ""))


def racks(**cpus: str) -> list[dict[str, Any]]:
    """Nodes, one for each rack: its name -> its cpus."""
    return [node_object(name, cpu=cpu, labels={RACK: name}) for name, cpu in cpus.items()]


def in_one_rack(name: str, min_count: int) -> dict[str, Any]:
    return pod_group(name, min_count, schedulingConstraints={"topology": [{"key": RACK}]})
