"""What the demo asks the scheduler to place, and where each pod should end up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

SCHEDULER_NAME = "custom-scheduler"
REPLICAS = 20
NODES = 30


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


def nginx() -> dict[str, Any]:
    """Return a Deployment as everybody has one, but for its schedulerName."""
    labels = {"app": "nginx"}
    spec = _pod_spec("nginx:1.29", {"cpu": "1", "memory": "2Gi"})
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


def harder_pods() -> list[dict[str, Any]]:
    """Return one pod that fits nowhere, one that is gated, and one that tolerates a taint."""
    gpu = _pod_spec("trainer:2", {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"})
    gpu["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    gpu["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]
    gated = _pod_spec("report:7", {"cpu": "250m", "memory": "128Mi"})
    gated["schedulingGates"] = [{"name": "example.com/quota"}]
    return [
        _pod("too-big", _pod_spec("simulation:4", {"cpu": "500", "memory": "1Gi"})),
        _pod("gated", gated),
        _pod("gpu-trainer", gpu),
    ]


EXPECTATIONS = (
    Expectation(
        "too-big",
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
        "runs on a node whose taint it tolerates",
        lambda _, node: node is not None and any(taint.key == "dedicated" for taint in node.taints),
    ),
)


def outstanding(pods: Mapping[str, PodInfo], nodes: Mapping[str, NodeObject]) -> list[str]:
    """Return what is not yet as it should be, in words; empty when every pod is where it belongs.

    Args:
        pods: name -> pod.
        nodes: name -> node.
    """
    replicas = [pod for name, pod in pods.items() if name.startswith("nginx-")]
    running = sum(pod.node_name in nodes for pod in replicas)
    missing = [f"nginx: {running} of {REPLICAS} replicas on a node"] if running != REPLICAS else []
    for expected in EXPECTATIONS:
        pod = pods.get(expected.pod)
        if pod is None or not expected.is_met(pod, nodes.get(pod.node_name)):
            missing.append(f"{expected.pod}: {expected.told}")
    return missing


def why_it_waits(pod: PodInfo) -> str:
    """Return what the scheduler said of its last attempt; "" if it was not tried or is bound."""
    for condition in pod.pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason in {"Unschedulable", "SchedulerError"}:
            return condition.message
    return ""


def _pod(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_spec(image: str, requests: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": image, "resources": {"requests": requests}}
    return {"schedulerName": SCHEDULER_NAME, "containers": [container]}
