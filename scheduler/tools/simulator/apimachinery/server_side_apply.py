"""Server-side apply: field ownership in metadata.managedFields, and the changes of a configuration.

A path is a tuple of steps: `f:NAME` for a field, `k:{...}` for the item of a list with those keys, `v:VALUE` for
an item of a set. A set has the paths of leaves, of maps and lists that are owned as a whole or are empty, and of
items of lists.

Ownership starts with the first apply to an object: earlier fields belong to `before-first-apply`, as upstream does
for objects without managedFields. From then on every write through the API is assigned to its manager.

Source:
    kube-apiserver v1.36: the list and map types at the fields of staging/src/k8s.io/api, and of custom resources the
    extensions x-kubernetes-list-type and -map-type of their schema.
    Kubernetes v1.36, sigs.k8s.io/structured-merge-diff, fieldpath and merge.
    kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal and
    sigs.k8s.io/structured-merge-diff, merge/update.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.objects.api_types import META, api_type
from scheduler.tools.simulator.apimachinery.objects import Object, clone, json_text, names
from scheduler.tools.simulator.apimachinery.status import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.objects.api_types import ApiField, ApiType
    from scheduler.tools.simulator.apimachinery.kinds import Kind

AS_SET: Final = ()
"""The keys of a list whose items are owned by their value."""

KEY_DEFAULTS: Final = {"protocol": "TCP"}
"""Default values of keys that an item omits."""


class Shape(NamedTuple):
    """Ownership of one value.

    Attributes:
        is_whole: whether a map is owned as a whole.
        keys: what identifies the items of a list; `AS_SET` for their values, None for a list owned as a whole.
        field: a field's name -> the shape of that field of a map.
        item: gives the shape of the items of a list.
    """

    is_whole: bool
    keys: tuple[str, ...] | None
    field: Callable[[str], Shape]
    item: Callable[[], Shape]


def type_shape(type_: ApiType | None, place: ApiField | None = None) -> Shape:
    """Return the shape of an object or an item of a built-in type, or of the given field of it."""

    def item() -> Shape:
        return type_shape(type_)

    def field(name: str) -> Shape:
        if place is not None and place.container:
            return item()
        found = type_.by_name.get(name) if type_ is not None else None
        return type_shape(found.type if found is not None else None, found)

    is_whole = any(one is not None and one.whole for one in (type_, place))
    return Shape(is_whole, place.apply_keys if place is not None else None, field, item)


def schema_shape(schema: Any, *, is_root: bool = False) -> Shape:
    """Return the shape of a value of a custom resource; a schema that is not a mapping says nothing."""
    fields: Mapping[str, Any] = schema if isinstance(schema, dict) else {}

    def field(name: str) -> Shape:
        if is_root and name == "metadata":
            return type_shape(api_type(META, "ObjectMeta"))
        return schema_shape((fields.get("properties") or {}).get(name, fields.get("additionalProperties")))

    list_type, keys = fields.get("x-kubernetes-list-type"), fields.get("x-kubernetes-list-map-keys")
    return Shape(
        fields.get("x-kubernetes-map-type") == "atomic",
        AS_SET if list_type == "set" else tuple(keys) if list_type == "map" and keys else None,
        field,
        lambda: schema_shape(fields.get("items")),
    )


def shape_of(kind: Kind) -> Shape:
    """Return the shape of a kind's objects."""
    return type_shape(kind.type) if kind.type else schema_shape(kind.strategy.schema, is_root=True)


Path = tuple[str, ...]

_MISSING = object()


def fields_of(value: Any, shape: Shape, path: Path = ()) -> dict[Path, Any]:
    """Return the paths of all fields in a value, with their values."""
    found: dict[Path, Any] = {}
    if isinstance(value, dict) and value and not shape.is_whole:
        for name, inner in value.items():
            found |= fields_of(inner, shape.field(name), (*path, f"f:{name}"))
    elif isinstance(value, list) and value and shape.keys is not None:
        for item in value:
            place = (*path, step_of(item, shape.keys))
            found[place] = item if shape.keys == AS_SET else _MISSING
            if shape.keys != AS_SET:
                found |= fields_of(item, shape.item(), place)
    else:
        found[path] = value
    return found


def step_of(item: Any, keys: tuple[str, ...]) -> str:
    """Return the path step of a list item."""
    if keys == AS_SET or not isinstance(item, dict):
        return f"v:{json_text(item)}"
    identity = {key: item.get(key, KEY_DEFAULTS.get(key)) for key in sorted(keys)}
    return f"k:{json_text({key: value for key, value in identity.items() if value is not None})}"


def merged(live: Any, config: Any, shape: Shape) -> Any:
    """Return a live value merged with a configuration; nothing is changed in place."""
    if isinstance(live, dict) and isinstance(config, dict) and not shape.is_whole:
        found = dict(live)
        for name, value in config.items():
            found[name] = merged(live[name], value, shape.field(name)) if name in live else value
        return found
    if not (isinstance(live, list) and isinstance(config, list)) or shape.keys is None:
        return config
    items = {step_of(item, shape.keys): item for item in live}
    for item in config:
        step = step_of(item, shape.keys)
        items[step] = merged(items[step], item, shape.item()) if step in items else item
    return list(items.values())


def without(value: Any, paths: Iterable[Path], shape: Shape) -> Any:
    """Return a value without the given paths; maps and lists that become empty are removed as well."""
    here: dict[str, list[Path]] = {}
    for path in paths:
        here.setdefault(path[0], []).append(path[1:])
    if isinstance(value, dict):
        found = {}
        for name, inner in value.items():
            left = _reduced(inner, here.get(f"f:{name}"), shape.field(name))
            if left is not _MISSING:
                found[name] = left
        return found
    if isinstance(value, list) and shape.keys is not None:
        kept = [_reduced(item, here.get(step_of(item, shape.keys)), shape.item()) for item in value]
        return [item for item in kept if item is not _MISSING]
    return value


def _reduced(value: Any, paths: list[Path] | None, shape: Shape) -> Any:
    if paths is None:
        return value
    if () in paths:
        return _MISSING
    left = without(value, paths, shape)
    return _MISSING if left in ({}, []) and value not in ({}, []) else left


def encoded(paths: Iterable[Path]) -> Object:
    """Write a set as FieldsV1."""
    root: Object = {}
    for path in sorted(paths):
        place = root
        for step in path:
            place = place.setdefault(step, {})
    _mark_items(root, set(paths), ())
    return root


def _mark_items(place: Object, paths: set[Path], path: Path) -> None:
    """Add `.` to items that are in the set together with fields of theirs."""
    for step, inner in place.items():
        _mark_items(inner, paths, (*path, step))
    if place and path in paths:
        inner = dict(place)
        place.clear()
        place["."] = {}
        place |= inner


def decoded(fields: Object, path: Path = ()) -> set[Path]:
    """Read FieldsV1."""
    found: set[Path] = set()
    for step, inner in fields.items():
        if step == ".":
            found.add(path)
        elif inner:
            found |= decoded(inner, (*path, step))
        else:
            found.add((*path, step))
    return found


def shown(path: Path) -> str:
    """Format a path as in messages: `.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "v":
            text += f"[={rest}]"
        else:
            keys = msgspec.json.decode(rest)
            text += "[" + ",".join(f"{key}={json_text(value)}" for key, value in sorted(keys.items())) + "]"
    return text


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
