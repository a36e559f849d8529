"""Server-side apply: field ownership, and the changes of a configuration.

Ownership starts with the first apply to an object: earlier fields belong to `before-first-apply`, as upstream does
for objects without managedFields. From then on every write through the API is assigned to its manager.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal and
    sigs.k8s.io/structured-merge-diff, merge/update.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.simulator.apimachinery.objects import Object, clone, names
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.patches.field_sets import Path, decoded, encoded, fields_of, merged, shown, without
from scheduler.simulator.patches.merge_shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.simulator.apimachinery.kinds import Kind

APPLY: Final = "Apply"
UPDATE: Final = "Update"
BEFORE_FIRST_APPLY: Final = "before-first-apply"

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_UNOWNED: Final = frozenset(
    ("f:metadata", f"f:{name}")
    for name in names(
        "name namespace uid resourceVersion generation creationTimestamp deletionTimestamp "
        "deletionGracePeriodSeconds selfLink managedFields"
    )
)
_UNOWNED_ROOTS: Final = frozenset({"f:apiVersion", "f:kind"})


@dataclass(frozen=True, slots=True)
class Manager:
    """An owner of fields: one entry of managedFields, without the fields and the time.

    Attributes:
        name: for example `kubectl`.
        operation: `Apply` or `Update`.
        api_version: of the objects it wrote.
        subresource: "" for the object itself.
    """

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == APPLY else f"{text} using {self.api_version}"


Owners = dict[Manager, tuple[set[Path], str]]  # fields, time


def apply_configuration(
    kind: Kind, live: Object | None, config: Object, manager: Manager, *, force: bool, now: str
) -> Object:
    """Return the new object, managedFields included.

    Args:
        kind: its kind.
        live: the current object, in the kind's version; None if it is to be created.
        config: the applied configuration.
        manager: the applying manager.
        force: whether to take over fields that others own with other values.
        now: the time.

    Raises:
        StatusError: 409, others own fields with other values.
    """
    shape = shape_of(kind)
    wanted = {path: value for path, value in fields_of(config, shape).items() if _is_owned(path)}
    if live is None:
        result, owners = clone(config), {}
    else:
        owners = _owners_of(kind, live, now)
        present = fields_of(live, shape)
        conflicts = _conflicts(owners, manager, wanted, present)
        if conflicts and not force:
            raise _conflict(conflicts)
        for other, paths in conflicts.items():
            owners[other][0].difference_update(paths)
        result = merged(live, config, shape)
        before = owners.get(manager, (set(), ""))[0]
        others = {path for other, (paths, _) in owners.items() if other != manager for path in paths}
        # A list item is removed with its last field: it stays while another manager owns one of those.
        gone = {
            path
            for path in before - set(wanted)
            if path not in others and not any(one[: len(path)] == path for one in others | set(wanted))
        }
        result = without(result, gone, shape)
    known = owners.get(manager)
    time = known[1] if known is not None and known[0] == set(wanted) else now
    owners[manager] = (set(wanted), time)
    return _with_owners(result, owners)


def track_update(kind: Kind, old: Object, new: Object, manager: Manager, now: str) -> list[Object]:
    """Return the managedFields of an object after a write other than an apply.

    Args:
        kind: its kind.
        old: the object before, in the kind's version, with managedFields.
        new: the object after.
        manager: the writing manager.
        now: the time.
    """
    shape = shape_of(kind)
    before, after = fields_of(old, shape), fields_of(new, shape)
    changed = {
        path
        for path, value in after.items()
        if _is_owned(path) and (path not in before or before[path] != value)
    }
    lost = before.keys() - after.keys()
    owners = _owners_of(kind, old, now)
    for paths, _ in owners.values():
        paths.difference_update(changed, lost)
    if changed:
        owners[manager] = (owners.get(manager, (set(), ""))[0] | changed, now)
    managed: list[Object] = _with_owners({"metadata": {}}, owners)["metadata"].get("managedFields", [])
    return managed


def _owners_of(kind: Kind, live: Object, now: str) -> Owners:
    """Return the owners of fields; fields from before the first apply belong to no specific manager."""
    entries = live["metadata"].get("managedFields")
    if entries is None:
        fields = {path for path in fields_of(live, shape_of(kind)) if _is_owned(path)}
        applied = live["metadata"].get("annotations", {}).get(_LAST_APPLIED)
        if applied:
            # Fields of `kubectl apply`: they pass to the first server-side apply without a conflict.
            fields -= _fields_of_annotation(kind, applied)
        fields = {path for path in fields if path[0] != "f:status"}
        return {Manager(BEFORE_FIRST_APPLY, UPDATE, kind.api_version): (fields, now)} if fields else {}
    return {
        Manager(
            entry.get("manager", ""), entry["operation"], entry["apiVersion"], entry.get("subresource", "")
        ): (decoded(entry.get("fieldsV1", {})), entry.get("time", now))
        for entry in entries
    }


def _fields_of_annotation(kind: Kind, text: str) -> set[Path]:
    try:
        applied = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return set()
    annotation = ("f:metadata", "f:annotations", f"f:{_LAST_APPLIED}")
    return {*fields_of(applied, shape_of(kind)), annotation}


def _conflicts(
    owners: Owners, manager: Manager, wanted: Mapping[Path, Any], present: Mapping[Path, Any]
) -> dict[Manager, set[Path]]:
    found: dict[Manager, set[Path]] = {}
    for other, (paths, _) in owners.items():
        if other == manager:
            continue
        clashes = {
            path for path in paths & wanted.keys() if path in present and present[path] != wanted[path]
        }
        if clashes:
            found[other] = clashes
    return found


def _conflict(conflicts: Mapping[Manager, set[Path]]) -> StatusError:
    pairs = [(manager, path) for manager in sorted(conflicts, key=str) for path in sorted(conflicts[manager])]
    if len(pairs) == 1:
        manager, path = pairs[0]
        message = f"Apply failed with 1 conflict: conflict with {manager}: {shown(path)}"
    else:
        lines = []
        for manager in sorted(conflicts, key=str):
            lines.append(f"conflicts with {manager}:")
            lines += [f"- {shown(path)}" for path in sorted(conflicts[manager])]
        message = f"Apply failed with {len(pairs)} conflicts: " + "\n".join(lines)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": shown(path)}
        for manager, path in pairs
    ]
    return StatusError(409, "Conflict", message, {"causes": causes})


def _with_owners(obj: Object, owners: Owners) -> Object:
    entries = []
    for manager, (paths, time) in owners.items():
        if not paths:
            continue
        entry: Object = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": encoded(paths),
        }
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return obj | {"metadata": obj["metadata"] | {"managedFields": entries}}


def _is_owned(path: Path) -> bool:
    return (
        bool(path) and path[0] not in _UNOWNED_ROOTS and path[:2] not in _UNOWNED and path != ("f:metadata",)
    )
