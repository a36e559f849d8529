"""Simulates the ReplicaSet controller: creates and deletes pods until the number is right.

Source:
    kube-controller-manager v1.36, pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating
from scheduler.simulator.controllers.workloads import WorkloadController
from scheduler.simulator.kinds.pods import is_active, is_ready

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object

_BURST: Final = 100
"""Number of pods that one run creates; the event loop has other work between runs."""


class ReplicaSetController(WorkloadController):
    """Creates and deletes the pods of ReplicaSets, and counts them."""

    resources = ("replicasets.apps", "pods")

    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        pods = list(filter(is_active, owned.values()))
        if not is_terminating(workload):
            missing = workload["spec"].get("replicas", 0) - len(pods)
            metadata = {"generateName": f"{workload['metadata']['name']}-"}
            for _ in range(min(missing, _BURST)):
                if not self.create_pod(workload, metadata):
                    break
            for pod in sorted(pods, key=_least_missed)[: max(0, -missing)]:
                self.delete_pod(pod)
        ready = sum(map(is_ready, pods))
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": workload["metadata"].get("generation", 0),
        }
        self.store.change(workload, {"status": status}, "status")


def _least_missed(pod: Object) -> tuple[bool, bool, bool, str]:
    """Sort key for deletion: pods without a node, then not running, then not ready; then by name."""
    return (
        bool(pod["spec"].get("nodeName")),
        pod["status"].get("phase") == "Running",
        is_ready(pod),
        pod["metadata"]["name"],
    )
