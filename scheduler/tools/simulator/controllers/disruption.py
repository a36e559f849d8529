"""Simulates the disruption controller: updates the status of PodDisruptionBudgets.

Source:
    kube-controller-manager v1.36, pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.apimachinery.objects import controller_of, is_terminating, key_of
from scheduler.tools.simulator.controllers.controller import QueueController
from scheduler.tools.simulator.kinds.workloads import conditions, count, covers, needs_scale
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object

_BUDGETS: Final = "poddisruptionbudgets.policy"
_SCALED: Final = {
    "Deployment": "deployments.apps",
    "ReplicaSet": "replicasets.apps",
    "StatefulSet": "statefulsets.apps",
    "ReplicationController": "replicationcontrollers",
}

_DISRUPTED_SECONDS: Final = 120.0
"""Time after an eviction in which the pod must begin to terminate; then it counts again."""


class DisruptionController(QueueController[Store]):
    """Counts the pods of budgets."""

    resources = (_BUDGETS, "pods", *_SCALED.values())

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        self.enqueue(obj["metadata"]["namespace"])

    def reconcile(self, key: str) -> None:
        """Count the pods of a namespace's budgets."""
        budgets = self.store.list(_BUDGETS, namespace=key)
        pods = self.store.list("pods", namespace=key) if budgets else []
        for budget in budgets:
            self._report(budget, [pod for pod in pods if covers(budget, pod)])

    def _report(self, budget: Object, pods: Sequence[Object]) -> None:
        status = budget.get("status", {})
        still = self._still_disrupted(budget, pods)
        left = {name: value for name, value in status.items() if name != "disruptedPods"}
        counted = budget | {"status": left | ({"disruptedPods": still} if still else {})}
        found = count(counted, pods, self._scale(pods) if needs_scale(budget) else 0)
        generation = budget["metadata"].get("generation", 0)
        allowed = found.disruptions_allowed
        now = self.store.timestamp()
        new = counted["status"] | {
            "observedGeneration": generation,
            "disruptionsAllowed": allowed,
            "currentHealthy": found.current_healthy,
            "desiredHealthy": found.desired_healthy,
            "expectedPods": found.expected_pods,
            "conditions": conditions(budget, allowed, now),
        }
        if new != status:
            self.store.update(_BUDGETS, counted | {"status": new}, subresource="status")

    def _still_disrupted(self, budget: Object, pods: Iterable[Object]) -> Object:
        """Return the evicted pods that do not terminate yet, and check again when their time is over."""
        disrupted = budget.get("status", {}).get("disruptedPods", {})
        present = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
        now = datetime.fromisoformat(self.store.timestamp())
        still = {}
        for name, moment in disrupted.items():
            left = _DISRUPTED_SECONDS - (now - datetime.fromisoformat(moment)).total_seconds()
            if name in present and left > 0:
                still[name] = moment
                self.later(left, self.look_again, budget["metadata"]["namespace"])
        return still

    def _scale(self, pods: Iterable[Object]) -> int:
        """Return the total number of replicas of the pods' controllers; pods without one do not count."""
        wanted: dict[str, int] = {}  # uid -> replicas
        for pod in pods:
            owner = self._scaled_owner(pod)
            if owner is not None:
                wanted[owner["metadata"]["uid"]] = owner["spec"].get("replicas", 0)
        return sum(wanted.values())

    def _scaled_owner(self, obj: Object) -> Object | None:
        """Return the object that determines the number of pods, for example its ReplicaSet's Deployment."""
        reference = controller_of(obj)
        resource = _SCALED.get(reference.get("kind", ""))
        if resource is None:
            return None
        namespace, _ = key_of(obj)
        owner = self.store.find(resource, reference["name"], namespace)
        if owner is None or owner["metadata"]["uid"] != reference.get("uid"):
            return None
        return self._scaled_owner(owner) or owner
