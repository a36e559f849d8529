"""What the demo places unless told otherwise, and where each pod should end up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.demo.workload import PAUSE_SECONDS, why_it_waits
from scheduler.simulator.scenarios.clusters import ready_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.simulator.server import ApiServer

SCHEDULER_NAME = "custom-scheduler"
REPLICAS = 20
ZONE = "topology.kubernetes.io/zone"
TOO_BIG = "too-big"
URGENT = "urgent"
DATABASE = "database"
STORAGE_ZONE = "eu-west-1d"
BATCH = ("gpu-batch-0", "gpu-batch-1")
"""As many as there are GPU nodes, each with all GPUs of one."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Where a pod should end up.

    Attributes:
        pod: its name.
        told: for people.
        is_met: says so of the pod and the node it is on, if any.
    """

    pod: str
    told: str
    is_met: Callable[[PodInfo, NodeObject | None], bool]


class Tour:
    """Replicas that spread, a pod that fits nowhere, one that is gated, one that sends another away, and one with a volume."""

    puzzle = TOO_BIG
    scheduler_names = frozenset({SCHEDULER_NAME})

    async def apply(self, server: ApiServer) -> None:
        """Apply all of it, the pod that sends another away once there is somebody to send."""
        await asyncio.sleep(PAUSE_SECONDS)
        server.store.apply(nginx())
        for pod in harder_pods():
            await asyncio.sleep(PAUSE_SECONDS)
            server.store.apply(pod)
        for obj in database():
            server.store.apply(obj)
        while not all(server.store.get("pods", name)["spec"].get("nodeName") for name in BATCH):  # noqa: ASYNC110
            await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)
        server.store.apply(urgent_class())
        server.store.apply(trainer())
        await asyncio.sleep(PAUSE_SECONDS)
        server.store.create("nodes", storage_node())

    def commands(self, program: str, daemon: str) -> list[str]:
        """Return how to ask why a pod waits, node by node and in one event, and how to let others run."""
        return [
            f"{program} explain --server {daemon} --pod {TOO_BIG}",
            f"kubectl describe pod {TOO_BIG}",
            "kubectl scale deployment nginx --replicas=40",
            """kubectl patch pod gated --type=json -p '[{"op": "remove", "path": "/spec/schedulingGates"}]'""",
        ]

    def outstanding(self, pods: Mapping[str, PodInfo], nodes: Mapping[str, NodeObject]) -> list[str]:
        """Return what is not yet as it should be."""
        replicas = [pod for name, pod in pods.items() if name.startswith("nginx-")]
        running = sum(pod.node_name in nodes for pod in replicas)
        missing = [f"nginx: {running} of {REPLICAS} replicas on a node"] if running != REPLICAS else []
        for expected in EXPECTATIONS:
            pod = pods.get(expected.pod)
            if pod is None or not expected.is_met(pod, nodes.get(pod.node_name)):
                missing.append(f"{expected.pod}: {expected.told}")
        remaining = sum(name in pods for name in BATCH)
        if remaining != len(BATCH) - 1:
            missing.append(
                f"{BATCH[0]} and the like: {remaining} of {len(BATCH)} run, and one is to leave for gpu-trainer"
            )
        return missing


def nginx() -> dict[str, Any]:
    """Return a Deployment as everybody has one, spread evenly over zones, but for its schedulerName."""
    labels = {"app": "nginx"}
    spec = _pod_spec("nginx:1.29", {"cpu": "1", "memory": "2Gi"})
    spec["topologySpreadConstraints"] = [
        {
            "topologyKey": ZONE,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "nginx", "namespace": "default", "labels": labels},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def urgent_class() -> dict[str, Any]:
    """Return the PriorityClass of who may send others away."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": URGENT},
        "value": 1000,
    }


def harder_pods() -> list[dict[str, Any]]:
    """Return one pod that fits nowhere, one that is gated, and two that tolerate a taint and take all GPUs there are."""
    gated = _pod_spec("report:7", {"cpu": "250m", "memory": "128Mi"})
    gated["schedulingGates"] = [{"name": "example.com/quota"}]
    return [
        _pod(TOO_BIG, _pod_spec("simulation:4", {"cpu": "500", "memory": "1Gi"})),
        _pod("gated", gated),
        *(_pod(name, _gpu_spec("embeddings:3", gpus=4)) for name in BATCH),
    ]


def trainer() -> dict[str, Any]:
    """Return a pod for which, when all GPUs are taken, somebody less urgent has to leave."""
    return _pod("gpu-trainer", _gpu_spec("trainer:2", gpus=1) | {"priorityClassName": URGENT})


def database() -> list[dict[str, Any]]:
    """Return a pod, its claim, and the volume of the claim in a zone that has no nodes yet."""
    in_zone = {"key": ZONE, "operator": "In", "values": [STORAGE_ZONE]}
    size, modes, reference = (
        {"storage": "10Gi"},
        ["ReadWriteOnce"],
        {"namespace": "default", "name": DATABASE},
    )
    volume_spec = {
        "capacity": size,
        "accessModes": modes,
        "claimRef": reference,
        "csi": {"driver": "csi.example.com", "volumeHandle": DATABASE},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}},
    }
    claim_spec = {
        "accessModes": modes,
        "resources": {"requests": size},
        "storageClassName": "",
        "volumeName": DATABASE,
    }
    pod_spec = _pod_spec("postgres:18", {"cpu": "500m", "memory": "1Gi"})
    pod_spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": DATABASE}}]
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": DATABASE}, "spec": volume_spec},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": reference, "spec": claim_spec},
        _pod(DATABASE, pod_spec),
    ]


def storage_node() -> dict[str, Any]:
    """Return the first node of the zone where the volume is."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return ready_node("node-0030", STORAGE_ZONE, {}, {}, amounts, amounts)


EXPECTATIONS = (
    Expectation(
        TOO_BIG,
        "waits: no node has 500 cpus",
        lambda pod, _: not pod.node_name and "Insufficient cpu" in why_it_waits(pod),
    ),
    Expectation(
        "gated",
        "waits for its scheduling gate, untried",
        lambda pod, _: not pod.node_name and not why_it_waits(pod),
    ),
    Expectation(
        "gpu-trainer",
        "runs on a node whose taint it tolerates, where another left for it",
        lambda _, node: node is not None and any(taint.key == "dedicated" for taint in node.taints),
    ),
    Expectation(
        DATABASE,
        "waits for a node in the zone of its volume, and runs when one comes",
        lambda _, node: node is not None and node.labels.get(ZONE) == STORAGE_ZONE,
    ),
)


def _pod(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_spec(image: str, requests: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": image, "resources": {"requests": requests}}
    return {"schedulerName": SCHEDULER_NAME, "containers": [container]}


def _gpu_spec(image: str, *, gpus: int) -> dict[str, Any]:
    spec = _pod_spec(image, {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": str(gpus)})
    spec["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": str(gpus)}
    spec["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]
    return spec
