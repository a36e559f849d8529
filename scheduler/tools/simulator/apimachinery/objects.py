"""Functions for all objects: JSON with metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

Object = dict[str, Any]


def names(text: str) -> tuple[str, ...]:
    """Split names that are separated by spaces."""
    return tuple(text.split())


def clone(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def json_text(value: Any) -> str:
    """Return a JSON value as one line, as in messages."""
    return msgspec.json.encode(value).decode()


def condition_of(obj: Object, type_: str) -> Object:
    """Return an object's condition of a type; empty if there is none."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == type_), {})


def with_condition(conditions: Iterable[Object] | None, new: Object, now: str) -> list[Object]:
    """Return conditions with a new one of its type; its transition time changes only with its status."""
    known = {one["type"]: one for one in conditions or ()}
    before = known.get(new["type"], {})
    moved = before.get("status") != new["status"]
    known[new["type"]] = new | {
        "lastTransitionTime": now if moved else before.get("lastTransitionTime") or now
    }
    return list(known.values())


def is_true(obj: Object, type_: str) -> bool:
    """Return whether a condition of an object is true."""
    return bool(condition_of(obj, type_).get("status") == "True")


def key_of(obj: Object) -> tuple[str, str]:
    """Return an object's namespace and name."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def restore(obj: Object, old: Object, field: str) -> None:
    """Restore a field, or its absence."""
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)


def is_terminating(obj: Object) -> bool:
    """Return whether an object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


def labels_of(obj: Object) -> dict[str, str]:
    """Return an object's labels; do not change them."""
    labels: dict[str, str] = obj["metadata"].get("labels", {})
    return labels


def controller_of(obj: Object) -> Object:
    """Return the reference to an object's controller; empty if there is none."""
    owners = obj["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})
