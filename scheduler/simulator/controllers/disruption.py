"""Stands in for the disruption controller: keeps what PodDisruptionBudgets say of themselves.

Source:
    kube-controller-manager v1.36, pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.simulator.apimachinery.objects import key_of
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.kinds.disruption_budgets import condition, condition_of, count, covers, needs_scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_BUDGETS: Final = "poddisruptionbudgets.policy"
_SCALED: Final = {
    "Deployment": "deployments.apps",
    "ReplicaSet": "replicasets.apps",
    "StatefulSet": "statefulsets.apps",
    "ReplicationController": "replicationcontrollers",
}

_DISRUPTED_SECONDS: Final = 120.0
"""How long a pod may take to go after an eviction before it counts again."""


class DisruptionController(Controller):
    """Counts the pods of budgets."""

    resources: ClassVar[Sequence[str]] = (_BUDGETS, "pods", *_SCALED.values())

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._changed: set[str] = set()  # namespaces

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        self._changed.add(obj["metadata"]["namespace"])

    def act(self) -> None:
        changed, self._changed = self._changed, set()
        for namespace in sorted(changed):
            budgets = self.store.list(_BUDGETS, namespace=namespace)
            if not budgets:
                continue
            pods = self.store.list("pods", namespace=namespace)
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
            "conditions": [condition(allowed, generation, condition_of(budget), now)],
        }
        if new != status:
            self.store.update(_BUDGETS, counted | {"status": new}, subresource="status")

    def _still_disrupted(self, budget: Object, pods: Iterable[Object]) -> Object:
        """Return the evicted pods that are yet to begin to go, and look again when their time is up."""
        disrupted = budget.get("status", {}).get("disruptedPods", {})
        present = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
        now = datetime.fromisoformat(self.store.timestamp())
        still = {}
        for name, moment in disrupted.items():
            left = _DISRUPTED_SECONDS - (now - datetime.fromisoformat(moment)).total_seconds()
            if name in present and left > 0:
                still[name] = moment
                self.later(left, self._look_again, budget["metadata"]["namespace"])
        return still

    def _look_again(self, namespace: str) -> None:
        self._changed.add(namespace)
        self.wake()

    def _scale(self, pods: Iterable[Object]) -> int:
        """Return how many pods the controllers of some pods want in all; pods of no controller do not count."""
        wanted: dict[str, int] = {}  # uid -> replicas
        for pod in pods:
            owner = self._scaled_owner(pod)
            if owner is not None:
                wanted[owner["metadata"]["uid"]] = owner["spec"].get("replicas", 0)
        return sum(wanted.values())

    def _scaled_owner(self, obj: Object) -> Object | None:
        """Return what decides how many of a pod there are: its ReplicaSet's Deployment, say."""
        reference = next(
            (one for one in obj["metadata"].get("ownerReferences", ()) if one.get("controller")), None
        )
        resource = _SCALED.get(reference["kind"]) if reference else None
        if resource is None or reference is None:
            return None
        namespace, _ = key_of(obj)
        owner = self.store.find(resource, reference["name"], namespace)
        if owner is None or owner["metadata"]["uid"] != reference.get("uid"):
            return None
        return self._scaled_owner(owner) or owner
