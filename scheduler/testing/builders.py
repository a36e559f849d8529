"""Pods and nodes for tests, as the API server sends them, and snapshots of small clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.engine.state.cache import Cache
from scheduler.objects.decode import decode_node, decode_pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Taint, Toleration
    from scheduler.snapshot import Snapshot

CREATED = "2026-03-01T08:00:00Z"


def pod(name: str, **fields: Any) -> PodInfo:
    """Return a decoded pod; the keywords are those of `pod_object`."""
    return decode_pod(msgspec.json.encode(pod_object(name, **fields)))


def node(name: str, **fields: Any) -> NodeObject:
    """Return a decoded node; the keywords are those of `node_object`."""
    return decode_node(msgspec.json.encode(node_object(name, **fields)))


def pod_object(
    name: str,
    *,
    namespace: str = "default",
    cpu: str | None = None,
    memory: str | None = None,
    requests: Mapping[str, Any] | None = None,
    node: str = "",
    priority: int = 0,
    tolerations: Iterable[Mapping[str, Any] | Toleration] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    gates: Iterable[str] = (),
    scheduler_name: str = "custom-scheduler",
    uid: str | None = None,
    status: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a v1.Pod with one container.

    Args:
        name: its name.
        namespace: its namespace.
        cpu: the container's request.
        memory: the container's request.
        requests: the container's requests of other resources, by name.
        node: its node; "" for a pending pod.
        priority: its priority.
        tolerations: its tolerations, as JSON or decoded.
        labels: its labels.
        annotations: its annotations.
        gates: names of scheduling gates.
        scheduler_name: its schedulerName.
        uid: its uid; made from namespace and name if not given.
        status: fields of its status beside the phase.
        more: other fields of its spec, in snake case or as in JSON; they replace the fields above.
    """
    asked = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {}), **(requests or {})}
    spec: dict[str, Any] = {
        "schedulerName": scheduler_name,
        "priority": priority,
        "preemptionPolicy": "PreemptLowerPriority",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": asked}}
        ],
        "tolerations": [msgspec.to_builtins(toleration) for toleration in tolerations],
        "schedulingGates": [{"name": gate} for gate in gates],
        **({"nodeName": node} if node else {}),
    }
    spec.update((_camel(field), value) for field, value in more.items())
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_metadata(name, uid or f"uid-of-{namespace}-{name}", labels, annotations),
            "namespace": namespace,
        },
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending", **(status or {})},
    }


def node_object(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: int | str = 110,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[str | Mapping[str, Any] | Taint] = (),
    unschedulable: bool = False,
    no_resize_preemption: Iterable[str] = (),
    allocatable: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a v1.Node that is ready.

    Args:
        name: its name, and its label kubernetes.io/hostname.
        cpu: allocatable cpu.
        memory: allocatable memory.
        pods: allocatable pods.
        labels: other labels.
        annotations: its annotations.
        taints: its taints, as JSON, decoded, or in kubectl's notation: `key=value:NoSchedule`, `key:NoExecute`.
        unschedulable: whether it is cordoned, without the taint for that.
        no_resize_preemption: who disables preemption for resizes on it.
        allocatable: other resources; these override the three above.
        more: other fields of its status, in snake case or as in JSON.
    """
    offered = {"cpu": cpu, "memory": memory, "pods": str(pods), **(allocatable or {})}
    spec: dict[str, Any] = {"taints": [_taint(taint) for taint in taints]}
    if unschedulable:
        spec["unschedulable"] = True
    if no_resize_preemption:
        spec["podPreemptionPolicy"] = {"disableResizePreemption": list(no_resize_preemption)}
    status = {
        "allocatable": offered,
        "capacity": dict(offered),
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    status.update((_camel(field), value) for field, value in more.items())
    all_labels = {"kubernetes.io/hostname": name, **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, f"uid-of-{name}", all_labels, annotations),
        "spec": spec,
        "status": status,
    }


def _metadata(
    name: str, uid: str, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None
) -> dict[str, Any]:
    return {
        "name": name,
        "uid": uid,
        "creationTimestamp": CREATED,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }


def _taint(taint: str | Mapping[str, Any] | Taint) -> Any:
    if not isinstance(taint, str):
        return msgspec.to_builtins(taint)
    rest, _, effect = taint.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def cache_of(nodes: Iterable[NodeObject | str], pods: Iterable[PodInfo] = ()) -> Cache:
    """Return a cache with nodes, in row order, and bound pods; a name stands for a node of that name."""
    cache = Cache()
    for each in nodes:
        cache.add_node(node(each) if isinstance(each, str) else each)
    for pod in pods:
        cache.add_pod(pod)
    return cache


def snapshot_of(*nodes: NodeObject | str, pods: Iterable[PodInfo] = ()) -> Snapshot:
    """Return a snapshot of nodes, in row order, with bound pods."""
    return cache_of(nodes, pods).snapshot()
