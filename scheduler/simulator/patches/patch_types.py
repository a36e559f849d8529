"""The types of patches a client may send, and which of ours carries one out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.status import StatusError, bad_request
from scheduler.simulator.patches.json_patches import json_patch, merge_patch
from scheduler.simulator.patches.strategic_merge import strategic_merge

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"


def apply_patch(original: Object, patch: Any, patch_type: str, model: str) -> Object:
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
    elif patch_type == STRATEGIC_MERGE_PATCH and model:
        patched = strategic_merge(original, patch, model)
    else:
        accepted = [JSON_PATCH, MERGE_PATCH, *([STRATEGIC_MERGE_PATCH] if model else []), APPLY_PATCH]
        raise StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(accepted),
        )
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise bad_request("error decoding patch: the patched object is none")
    return patched
