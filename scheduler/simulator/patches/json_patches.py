"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import Any

from scheduler.simulator.apimachinery.status import bad_request, unprocessable_patch

_LONGEST_PATCH = 10_000  # operations, as upstream


def merge_patch(original: Any, patch: Any) -> Any:
    """Return the original with a merge patch applied; nothing of it is changed in place."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Any, operations: Any) -> Any:
    """Apply the operations to a document, in place where it can be.

    Raises:
        StatusError: 400 for what is no list of operations, 422 for one that fails on this document.
    """
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type jsonpatch.Patch"
        )
    if len(operations) > _LONGEST_PATCH:
        raise bad_request(
            f"The allowed maximum operations in a JSON patch is {_LONGEST_PATCH}, got {len(operations)}"
        )
    for operation in operations:
        try:
            document = _apply(document, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise unprocessable_patch() from error
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    """Carry out one operation; raises a built-in error when it does not fit the document."""
    kind, path = operation["op"], _steps(operation["path"])
    if kind == "test":
        if _found(document, path) != operation.get("value"):
            raise ValueError("test failed")
        return document
    if kind == "add":
        return _add(document, path, operation["value"])
    if kind == "remove":
        _remove(document, path)
        return document
    if kind == "replace":
        _found(document, path)
        if not path:
            return operation["value"]
        parent, last = _found(document, path[:-1]), path[-1]
        parent[_index(parent, last) if isinstance(parent, list) else last] = operation["value"]
        return document
    if kind in {"move", "copy"}:
        source = _steps(operation["from"])
        value = _found(document, source)
        if kind == "move":
            _remove(document, source)
        return _add(document, path, value)
    raise ValueError(f"unknown operation {kind}")


def _steps(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError(f"{pointer} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _index(items: list[Any], step: str) -> int:
    index = int(step)
    if not -len(items) <= index < len(items):
        raise IndexError(step)
    return index


def _found(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[_index(document, step)] if isinstance(document, list) else document[step]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _found(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if not 0 <= index <= len(parent):
            raise IndexError(last)
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise TypeError(f"nothing can be added to {parent!r}")
    return document


def _remove(document: Any, path: list[str]) -> None:
    if not path:
        raise ValueError("the whole document cannot be removed")
    parent, last = _found(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[_index(parent, last)]
    else:
        del parent[last]
