"""The demo's workload from a user's file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.default_scheduler import DEFAULT_SCHEDULER
from scheduler.tools.demo.demo_workload import PAUSE_SECONDS, why_it_waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.simulator.server import ApiServer

_WITH_REPLICAS = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})


class UserWorkload:
    """Objects whose pods should all run."""

    puzzle = ""

    def __init__(self, objects: Sequence[dict[str, Any]]) -> None:
        self._objects = objects
        self.scheduler_names = frozenset(
            spec.get("schedulerName") or DEFAULT_SCHEDULER for spec in map(_pod_spec, objects) if spec
        )
        self._lasting_pods = sum(_lasting_pods(obj) for obj in objects)

    async def apply(self, server: ApiServer) -> None:
        """Apply all objects.

        Raises:
            StatusError: the server rejects an object.
        """
        await asyncio.sleep(PAUSE_SECONDS)
        for obj in self._objects:
            server.store.apply(obj)

    def commands(self, program: str, daemon: str) -> list[str]:
        """Return commands that show the result of a pod."""
        first = "{.items[0].metadata.namespace}/{.items[0].metadata.name}"
        return [
            "kubectl get events",
            f"{program} explain --server {daemon} --pod $(kubectl get pods -A -o jsonpath='{first}')",
        ]

    def outstanding(self, pods: Mapping[str, PodInfo], nodes: Mapping[str, NodeObject]) -> list[str]:
        """Return the number of pods that do not exist yet, and the pods that do not run, with reasons."""
        to_come = self._lasting_pods - len(pods)
        missing = [f"{to_come} pods are not created yet"] if to_come > 0 else []
        for name, pod in pods.items():
            phase = pod.pod.status.phase
            if phase != "Running":
                missing.append(f"{name}: {why_it_waits(pod) or phase}")
        return missing


def _pod_spec(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of an object's pods; empty if it creates none."""
    spec: Mapping[str, Any] = obj.get("spec") or {}
    if obj["kind"] == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    return spec if obj["kind"] == "Pod" else (spec.get("template") or {}).get("spec") or {}


def _lasting_pods(obj: Mapping[str, Any]) -> int:
    """Return the number of an object's pods that do not end by themselves."""
    spec = obj.get("spec") or {}
    if obj["kind"] in _WITH_REPLICAS:
        return int(spec.get("replicas", 1))
    return int(obj["kind"] == "Pod" and spec.get("restartPolicy", "Always") == "Always")
