"""Deletion: graceful for pods on nodes, delayed by finalizers, immediate for all else.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go, BeforeDelete, and
    registry/generic/registry/store.go, Delete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from scheduler.clock import rfc3339
from scheduler.simulator.apimachinery.kinds import Place
from scheduler.simulator.apimachinery.status import conflict_of_kind

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.decoding import WriteOptions
    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.selectors import Selector
    from scheduler.simulator.registry.registry import Registry
    from scheduler.simulator.storage.entries import Entry

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
