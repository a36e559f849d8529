"""What every object is: JSON with metadata, which name it and may name an owner."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def clone(value: Any) -> Any:
    """Copy a JSON value all through."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def key_of(obj: Object) -> tuple[str, str]:
    """Return an object's namespace and name."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def owner_uid(obj: Object) -> str:
    """Return the uid of the controller an object belongs to; "" for none."""
    for owner in obj["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            uid: str = owner.get("uid", "")
            return uid
    return ""


def owner_kind(obj: Object) -> str:
    """Return the kind of the controller an object belongs to; "" for none."""
    owners = obj["metadata"].get("ownerReferences", ())
    return next((str(owner.get("kind", "")) for owner in owners if owner.get("controller")), "")


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
