"""Deletion: graceful for pods on nodes, delayed by finalizers; and eviction within a disruption budget.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go, BeforeDelete, and
    registry/generic/registry/store.go, Delete.
    kube-apiserver v1.36, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import rfc3339
from scheduler.tools.simulator.apimachinery.kinds import Place
from scheduler.tools.simulator.apimachinery.objects import is_terminating, with_condition
from scheduler.tools.simulator.apimachinery.status import (
    StatusError,
    bad_request,
    conflict_of_kind,
    forbidden,
)
from scheduler.tools.simulator.kinds.pods import is_active, is_ready
from scheduler.tools.simulator.kinds.workloads import conditions, covers

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.kinds import Kind
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.selectors import Selector
    from scheduler.tools.simulator.apimachinery.structure import WriteOptions
    from scheduler.tools.simulator.registry.registry import Registry
    from scheduler.tools.simulator.storage import Entry

ORPHAN_FINALIZER: Final = "orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"

_FINALIZERS: Final = {"Orphan": ORPHAN_FINALIZER, "Foreground": FOREGROUND_FINALIZER}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """metav1.DeleteOptions.

    Attributes:
        grace_period_seconds: None for the object's own.
        uid: only an object with this uid is deleted; "" for any.
        resource_version: only this version is deleted; "" for any.
        propagation_policy: treatment of dependents: `Background`, `Foreground`, `Orphan`; "" is Background.
        dry_run: whether to do everything except storing it.
    """

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation_policy: str = ""
    dry_run: bool = False


def delete(
    registry: Registry, place: Place, options: DeleteOptions, write: WriteOptions
) -> tuple[Entry, bool]:
    """Delete an object, or begin its deletion.

    Returns:
        The object's last or current state, and whether it is deleted.

    Raises:
        StatusError: 403, 404 or 409.
    """
    write = replace(write, dry_run=write.dry_run or options.dry_run)
    kind, entry = place.kind, registry.get(place)
    kind.strategy.check_delete(entry.object)
    check_preconditions(kind, entry, options)
    begun = kind.strategy.begin_delete(entry.object, registry)
    if begun is not None:
        return registry.commit(kind, entry, _own_metadata(begun), write), False

    storage, obj = registry.storage(kind), _own_metadata(entry.object)
    metadata = obj["metadata"]
    now = registry.clock.utc_now()
    if "deletionTimestamp" in metadata:
        left = _shorten(metadata, options.grace_period_seconds, now)
        if left is None:
            return entry, False
    else:
        finalizer = _FINALIZERS.get(options.propagation_policy)
        if finalizer:
            metadata["finalizers"] = [*metadata.get("finalizers", ()), finalizer]
        period = kind.strategy.grace_period(obj, options.grace_period_seconds)
        left = period or 0
        if period is not None or metadata.get("finalizers"):
            metadata["deletionTimestamp"] = rfc3339(now + timedelta(seconds=left))
            metadata["deletionGracePeriodSeconds"] = left
            if metadata.get("generation"):
                metadata["generation"] += 1
    if metadata.get("finalizers") or left:
        return registry.commit(kind, entry, obj, write), False
    if write.dry_run:
        return entry.unstored(obj), True
    if obj != entry.object:
        storage.put(entry.key, entry.namespace, entry.name, obj)
    return storage.remove(entry.key), True


def delete_collection(
    registry: Registry, kind: Kind, selector: Selector, options: DeleteOptions, write: WriteOptions
) -> list[Entry]:
    """Delete all selected objects; returns them as they were."""
    found = registry.storage(kind).entries(selector)
    for entry in found:
        delete(registry, Place(kind, entry.namespace, entry.name), options, write)
    return found


def check_preconditions(kind: Kind, entry: Entry, options: DeleteOptions) -> None:
    """Reject a deletion whose preconditions (uid, version) the object does not meet.

    Raises:
        StatusError: 409.
    """
    uid = entry.object["metadata"]["uid"]
    if options.uid and options.uid != uid:
        problem = f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid})"
        end = "The object might have been deleted and then recreated"
        raise conflict_of_kind(kind, entry.name, f"{problem}. {end}")
    if options.resource_version and options.resource_version != str(entry.version):
        raise conflict_of_kind(
            kind,
            entry.name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({entry.version}). The object might have been modified",
        )


def _shorten(metadata: Object, requested: int | None, now: datetime) -> int | None:
    """Shorten the grace period of a terminating object; returns the remaining period, None for no change."""
    period = metadata.get("deletionGracePeriodSeconds", 0)
    if not period:
        return 0
    if requested is not None and requested < 0:
        requested = 1
    if requested is None or requested >= period:
        return None
    end = datetime.fromisoformat(metadata["deletionTimestamp"]).astimezone(UTC)
    end += timedelta(seconds=requested - period)
    if end < now:
        end, requested = now, min(requested, 1)
    metadata["deletionTimestamp"] = rfc3339(end)
    metadata["deletionGracePeriodSeconds"] = requested
    return requested


def _own_metadata(obj: Object) -> Object:
    """Return an object with metadata that may be changed."""
    return obj | {"metadata": dict(obj["metadata"])}


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
