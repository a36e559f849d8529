"""What every object is: JSON with metadata, which name it and may name an owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

Object = dict[str, Any]


def names(text: str) -> tuple[str, ...]:
    """Read names that are apart by spaces, for tables of many."""
    return tuple(text.split())


def clone(value: Any) -> Any:
    """Copy a JSON value all through."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def json_text(value: Any) -> str:
    """Write a JSON value on one line, as messages show it."""
    return msgspec.json.encode(value).decode()


def condition_of(obj: Object, type_: str) -> Object:
    """Return the condition of a type in an object's status; empty for none."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == type_), {})


def with_condition(conditions: Iterable[Object] | None, new: Object, now: str) -> list[Object]:
    """Return conditions with one in the place of that of its type; its time moves only when its status does."""
    known = {one["type"]: one for one in conditions or ()}
    before = known.get(new["type"], {})
    moved = before.get("status") != new["status"]
    known[new["type"]] = new | {
        "lastTransitionTime": now if moved else before.get("lastTransitionTime") or now
    }
    return list(known.values())


def is_true(obj: Object, type_: str) -> bool:
    """Whether a condition of an object's status holds."""
    return bool(condition_of(obj, type_).get("status") == "True")


def key_of(obj: Object) -> tuple[str, str]:
    """Return an object's namespace and name."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def restore(obj: Object, old: Object, field: str) -> None:
    """Put back in place what a field was, absent included."""
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)


def is_terminating(obj: Object) -> bool:
    """Whether an object is on its way out."""
    return "deletionTimestamp" in obj["metadata"]


def labels_of(obj: Object) -> dict[str, str]:
    """Return an object's labels, which are not to be changed."""
    labels: dict[str, str] = obj["metadata"].get("labels", {})
    return labels


def controller_of(obj: Object) -> Object:
    """Return the reference to the controller an object belongs to; empty for none."""
    owners = obj["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})


def owned_by(owner: Object) -> list[Object]:
    """Return the ownerReferences of what belongs to an object."""
    metadata = owner["metadata"]
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
