"""pods/eviction: deletion that respects the pod's disruption budget.

Source:
    kube-apiserver v1.36, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.kinds import Place
from scheduler.simulator.apimachinery.objects import is_terminating, with_condition
from scheduler.simulator.apimachinery.status import StatusError, bad_request, forbidden
from scheduler.simulator.kinds.disruption_budgets import conditions, covers
from scheduler.simulator.kinds.pods import is_active, is_ready
from scheduler.simulator.registry.deletion import DeleteOptions, check_preconditions, delete

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.decoding import WriteOptions
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.registry import Registry
    from scheduler.simulator.storage.entries import Entry

_BUDGETS: Final = "poddisruptionbudgets.policy"
_CONDITION: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_MOST_DISRUPTED: Final = 2000
_RETRY_SECONDS: Final = 10


def evict(
    registry: Registry, namespace: str, name: str, eviction: Any, options: DeleteOptions, write: WriteOptions
) -> None:
    """Evict a pod according to a decoded policy/v1 Eviction and its deleteOptions.

    Raises:
        StatusError: 400; 404, there is no such pod; 409, a precondition is not met; 429, its budget does not allow
            it; 500, it has several budgets.
    """
    meant = (eviction.get("metadata") or {}).get("name", "")
    if meant and meant != name:
        raise bad_request("name in URL does not match name in Eviction object")
    place = Place(registry.kinds.named("pods"), namespace, name)
    entry = registry.get(place)
    check_preconditions(place.kind, entry, options)
    if not _goes_anyway(entry.object):
        budget = _budget_of(registry, entry.object)
        if budget is not None and not _is_unprotected(budget.object, entry.object):
            _take_from(registry, budget, name, write)
    if not is_terminating(entry.object):
        _mark(registry, entry, write)
    # Marking it created a new version; the precondition on the version was checked above.
    options = DeleteOptions(options.grace_period_seconds, options.uid, "", options.propagation_policy)
    delete(registry, place, options, write)


def _goes_anyway(pod: Object) -> bool:
    """Return whether the pod needs no protection by a budget, for example because it has ended."""
    return not is_active(pod) or pod["status"].get("phase") == "Pending"


def _budget_of(registry: Registry, pod: Object) -> Entry | None:
    kind = registry.kinds.named(_BUDGETS)
    found = [entry for entry in registry.storage(kind) if covers(entry.object, pod)]
    if len(found) > 1:
        problem = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise StatusError(500, "InternalError", f"Internal error occurred: {problem}", {})
    return found[0] if found else None


def _is_unprotected(budget: Object, pod: Object) -> bool:
    """Return whether a pod that is not ready may be evicted without using up the budget."""
    if is_ready(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status", {})
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _take_from(registry: Registry, entry: Entry, pod_name: str, write: WriteOptions) -> None:
    """Use up one disruption of a budget.

    Raises:
        StatusError: 403 or 429.
    """
    kind, budget, name = registry.kinds.named(_BUDGETS), entry.object, entry.name
    status, generation = budget.get("status", {}), budget["metadata"].get("generation", 0)
    if status.get("observedGeneration", 0) < generation:
        raise _refused(
            f"The disruption budget {name} is still being processed by the server.", _RETRY_SECONDS
        )
    allowed = status.get("disruptionsAllowed", 0)
    disrupted = status.get("disruptedPods", {})
    if allowed < 0:
        raise forbidden(kind, name, "pdb disruptions allowed is negative")
    if len(disrupted) > _MOST_DISRUPTED:
        problem = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(kind, name, problem)
    if not allowed:
        raise _refused(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently"
        )
    now = registry.timestamp()
    new = status | {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted | {pod_name: now}}
    if allowed == 1:
        new["conditions"] = conditions(budget, 0, now)
    changed = budget | {"metadata": dict(budget["metadata"]), "status": new}
    registry.commit(kind, entry, changed, write)


def _mark(registry: Registry, entry: Entry, write: WriteOptions) -> None:
    """Set the condition DisruptionTarget of a pod."""
    pod = entry.object
    marked = with_condition(pod["status"].get("conditions"), _CONDITION, registry.timestamp())
    changed = pod | {
        "metadata": dict(pod["metadata"]),
        "status": pod["status"] | {"conditions": marked},
    }
    registry.commit(registry.kinds.named("pods"), entry, changed, write)


def _refused(cause: str, retry_after_seconds: int = 0) -> StatusError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after_seconds:
        details["retryAfterSeconds"] = retry_after_seconds
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return StatusError(429, "TooManyRequests", message, details)
