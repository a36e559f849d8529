"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import Any, Final

from jsonpatch import JsonPatch, JsonPatchException, JsonPointerException

from scheduler.simulator.apimachinery.objects import clone
from scheduler.simulator.apimachinery.status import bad_request, unprocessable_patch

_LONGEST_PATCH: Final = 10_000  # operations, as upstream


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


def json_patch(original: Any, operations: Any) -> Any:
    """Return the original with all operations applied; nothing of it is changed in place.

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
    try:
        return JsonPatch(operations).apply(clone(original), in_place=True)
    except (JsonPatchException, JsonPointerException) as error:
        raise unprocessable_patch() from error
