"""A dump of the cache and the queue as text, for debugging.

Source:
    kube-scheduler v1.36, backend/cache/debugger/dumper.go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from scheduler.engine.queue.pod_places import Place
from scheduler.engine.state.pod_states import PodState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.daemon.app.assembly import Parts
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_PODS_AT_A_TIME = 50
_OWN_FIELDS = {
    "cpu": "MilliCPU",
    "memory": "Memory",
    "ephemeral-storage": "EphemeralStorage",
    "pods": "AllowedPodNumber",
}


def nodes(parts: Parts) -> Iterator[dict[str, Any]]:
    """Yield the cached data of each node, including deleted nodes that still have pods."""
    table = parts.cache.table
    for name in [node.name for node in table.nodes]:
        row = table.row_of(name)
        if row is not None:
            yield {
                "name": name,
                "deleted": False,
                "requested": dict(table.requested_on(row)),
                "allocatable": dict(table.nodes[row].allocatable),
                **_pods_of(parts, name, table.pods_on(row).values()),
            }
    for name, pods in parts.cache.pods_of_unknown_nodes().items():
        yield {
            "name": name,
            "deleted": True,
            "requested": {},
            "allocatable": {},
            **_pods_of(parts, name, pods),
        }


def pending(parts: Parts) -> Iterator[dict[str, Any]]:
    """Yield each pod of the queue with its place."""
    for queued in list(parts.queue.pods()):
        place = parts.queue.place_of(queued.pod.uid)
        if place is not Place.OUTSIDE:
            yield {**_pod(queued.pod), "place": place.value, "attempts": queued.attempts}


def summary(parts: Parts) -> str:
    """Return the number of pods in the queue, in kube-scheduler's format; pods in flight are in none of its parts."""
    count = parts.queue.count
    waiting = count(Place.UNSCHEDULABLE) + count(Place.GATED)
    return f"activeQ:{count(Place.ACTIVE)}; backoffQ:{count(Place.BACKOFF)}; unschedulablePods:{waiting}"


async def log_dump(parts: Parts) -> None:
    """Log the dump: one line for each node, and one line for each batch of queued pods."""
    for number, node in enumerate(nodes(parts)):
        logger.info("Dump of cached NodeInfo", extra={"nodes": node_text(node)})
        if number % _PODS_AT_A_TIME == 0:
            await asyncio.sleep(0)
    lines = [pod_text(pod) for pod in pending(parts)]
    told = summary(parts)
    for start in range(0, max(len(lines), 1), _PODS_AT_A_TIME):
        pods = "".join(lines[start : start + _PODS_AT_A_TIME])
        logger.info("Dump of scheduling queue", extra={"summary": told, "pods": pods})
        await asyncio.sleep(0)


def node_text(node: Mapping[str, Any]) -> str:
    """Return a node of `nodes` in kube-scheduler's format."""
    text = (
        f"Node name: {node['name']}\nDeleted: {str(node['deleted']).lower()}\n"
        f"Requested Resources: {_resources(node['requested'])}\nAllocatable Resources:{_resources(node['allocatable'])}\n"
        f"Scheduled Pods(number: {len(node['pods'])}):\n{''.join(map(pod_text, node['pods']))}"
    )
    nominated = node["nominatedPods"]
    if nominated:
        text += f"Nominated Pods(number: {len(nominated)}):\n{''.join(map(pod_text, nominated))}"
    return text


def pod_text(pod: Mapping[str, Any]) -> str:
    """Return a pod in kube-scheduler's format, followed by this scheduler's own fields."""
    text = (
        f"name: {pod['name']}, namespace: {pod['namespace']}, uid: {pod['uid']}, phase: {pod['phase']}, "
        f"nominated node: {pod['nominatedNode']}"
    )
    more = "".join(f", {name}: {pod[name]}" for name in ("place", "attempts", "state") if name in pod)
    return f"{text}{more}\n"


def _pods_of(parts: Parts, node_name: str, pods: Any) -> dict[str, Any]:
    counted = [
        _pod(pod)
        if parts.cache.state_of(pod.uid) is PodState.CONFIRMED
        else {**_pod(pod), "state": "assumed"}
        for pod in pods
    ]
    nominated = [_pod(pod) for pod in parts.nominator.nominated_pods_for_node(node_name)]
    return {"pods": counted, "nominatedPods": nominated}


def _pod(pod: PodInfo) -> dict[str, Any]:
    status = pod.pod.status
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "phase": status.phase,
        "nominatedNode": status.nominated_node_name,
    }


def _resources(amounts: Mapping[str, int]) -> str:
    """Return amounts in the format of a Resource in Go."""
    own = " ".join(f"{go}:{amounts.get(name, 0)}" for name, go in _OWN_FIELDS.items())
    scalar = " ".join(f"{name}:{amounts[name]}" for name in sorted(amounts) if name not in _OWN_FIELDS)
    return f"&{{{own} ScalarResources:map[{scalar}]}}"
