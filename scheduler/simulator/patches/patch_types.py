"""The supported patch types, and the JSON merge patch (RFC 7386) and JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsonpatch import JsonPatch, JsonPatchException, JsonPointerException

from scheduler.simulator.apimachinery.objects import clone
from scheduler.simulator.apimachinery.status import StatusError, bad_request, unprocessable_patch
from scheduler.simulator.patches.strategic_merge import strategic_merge

if TYPE_CHECKING:
    from scheduler.objects.api_types import ApiType
    from scheduler.simulator.apimachinery.objects import Object

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

_LONGEST_PATCH: Final = 10_000  # operations, as upstream


def apply_patch(original: Object, patch: Any, patch_type: str, type_: ApiType | None) -> Object:
    """Return an object with a patch applied; the original is not changed.

    Raises:
        StatusError: 400, 415 or 422.
    """
    if patch_type == JSON_PATCH:
        patched = json_patch(original, patch)
    elif not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
        )
    elif patch_type == MERGE_PATCH:
        patched = merge_patch(original, patch)
    elif patch_type == STRATEGIC_MERGE_PATCH and type_:
        patched = strategic_merge(original, patch, type_)
    else:
        accepted = [JSON_PATCH, MERGE_PATCH, *([STRATEGIC_MERGE_PATCH] if type_ else []), APPLY_PATCH]
        raise StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(accepted),
        )
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise bad_request("error decoding patch: the patched object is none")
    return patched


def merge_patch(original: Any, patch: Any) -> Any:
    """Return the original with a merge patch applied; the original is not changed."""
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
    """Return the original with all operations applied; the original is not changed.

    Raises:
        StatusError: 400 if it is not a list of operations, 422 if one fails on this document.
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
