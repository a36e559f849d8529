"""A cluster with Queues for tests with a daemon: their definition, the example, and teams with a queue each."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster

EXAMPLE = MANIFESTS / "examples" / "fair-queues"
DEFINITION = yaml.safe_load((MANIFESTS / "crds" / "queues.yaml").read_text())
CRDS, QUEUES = "customresourcedefinitions.apiextensions.k8s.io", "queues.custom-scheduler.io"


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "custom-scheduler.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"namespaces": [name], **spec},
    }


@asynccontextmanager
async def teams(
    folder: Path, *queues: dict[str, Any], nodes: int = 3, longest_wait_seconds: int = 60
) -> AsyncIterator[Cluster]:
    """A cluster with queues, each of a namespace, and nodes of 4 cpus."""
    async with teams_and_daemon(
        folder, *queues, nodes=nodes, longest_wait_seconds=longest_wait_seconds
    ) as found:
        yield found[0]


@asynccontextmanager
async def teams_and_daemon(
    folder: Path, *queues: dict[str, Any], nodes: int = 3, longest_wait_seconds: int = 60
) -> AsyncIterator[tuple[Cluster, Daemon]]:
    """The same, and the daemon that serves it."""
    async with cluster(folder, kubelet=True) as it:
        await it.define(DEFINITION)
        for each in queues:
            for namespace in each["spec"]["namespaces"]:
                it.server.store.create("namespaces", {"metadata": {"name": namespace}})
            it.server.store.create(QUEUES, each)
        it.add_nodes(*(node_object(f"n{number}", cpu="4") for number in range(nodes)))
        text = (EXAMPLE / "scheduler.yaml").read_text()
        assert "longestWaitSeconds: 60" in text
        text = text.replace("longestWaitSeconds: 60", f"longestWaitSeconds: {longest_wait_seconds}")
        async with it.daemon(text) as daemon:
            await it.until(lambda: daemon.has_synced)
            yield it, daemon


def placed(it: Cluster, namespace: str) -> set[str]:
    """The pods of a namespace that are on a node and stay there."""
    return {
        pod["metadata"]["name"]
        for pod in it.pods()
        if pod["metadata"]["namespace"] == namespace
        and pod["spec"].get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
    }


def told(it: Cluster, namespace: str) -> set[str]:
    """What the pods of a namespace that wait were told."""
    return {
        str(condition.get("message", ""))
        for pod in it.pods()
        if pod["metadata"]["namespace"] == namespace
        for condition in pod.get("status", {}).get("conditions", ())
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }


def several(namespace: str, count: int, *, first: int = 0, cpu: str = "1", **fields: Any) -> list[Any]:
    return [
        pod_object(f"{namespace}{first + number}", namespace=namespace, cpu=cpu, **fields)
        for number in range(count)
    ]
