"""The supported patch types: JSON merge patch (RFC 7386), JSON patch (RFC 6902), strategic merge patch.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsonpatch import JsonPatch, JsonPatchException, JsonPointerException

from scheduler.kube.http.request import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from scheduler.tools.simulator.apimachinery.objects import clone
from scheduler.tools.simulator.apimachinery.status import StatusError, bad_request, unprocessable_patch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.api_types import ApiField, ApiType
    from scheduler.tools.simulator.apimachinery.objects import Object

_DIRECTIVE: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"

_OF_PRIMITIVES: Final = ""  # the "key" of lists that are merged as sets


def strategic_merge(original: Object, patch: Object, type_: ApiType) -> Object:
    """Return an object with a patch applied; the original is not changed.

    Args:
        original: the object.
        patch: the patch, directives included.
        type_: type of the object.

    Raises:
        StatusError: 400, the patch is invalid for the object.
    """
    try:
        return _merge_map(original, patch, type_)
    except (TypeError, ValueError, AttributeError) as error:
        raise bad_request(f"unable to apply the strategic merge patch: {error}") from error


def _merge_map(original: Object, patch: Object, type_: ApiType | None) -> Object:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive is not None:
        raise ValueError(f"unknown $patch {directive!r}, expected replace or delete")

    fields = type_.by_name if type_ is not None else {}
    merged = _prepared(original, patch, fields)
    for field, value in patch.items():
        if field.startswith("$"):
            continue
        if value is None:
            merged.pop(field, None)
            continue
        merged[field] = _merge_field(merged.get(field), value, fields.get(field), patch.get(_ORDER + field))
    return merged


def _prepared(original: Object, patch: Object, fields: Mapping[str, ApiField]) -> Object:
    """Return a copy of the original with the patch's directives for whole fields applied."""
    prepared = dict(original)
    retained = patch.get(_RETAIN_KEYS)
    if retained is not None:
        prepared = {key: value for key, value in prepared.items() if key in retained}
    for field, value in patch.items():
        if field.startswith(_DELETE_FROM):
            name = field.removeprefix(_DELETE_FROM)
            prepared[name] = [item for item in prepared.get(name, ()) if item not in value]
        elif field.startswith(_ORDER):
            name = field.removeprefix(_ORDER)
            if name not in patch and isinstance(prepared.get(name), list):
                key = fields[name].patch_key if name in fields else None
                prepared[name] = _ordered(prepared[name], value, prepared[name], key or _OF_PRIMITIVES)
    return prepared


def _merge_field(existing: Any, value: Any, field: ApiField | None, order: Sequence[Any] | None) -> Any:
    type_ = field.type if field is not None else None
    if isinstance(value, dict):
        return _merge_map(existing if isinstance(existing, dict) else {}, value, type_)
    if not isinstance(value, list) or field is None or field.patch_key is None:
        return _without_directives(value)
    before = existing if isinstance(existing, list) else []
    return _merge_list(before, value, field.patch_key, type_, order)


def _merge_list(
    original: Sequence[Any],
    patch: Sequence[Any],
    key: str,
    type_: ApiType | None,
    order: Sequence[Any] | None,
) -> list[Any]:
    if key == _OF_PRIMITIVES:
        merged = list(dict.fromkeys([*original, *patch]))
        return _ordered(merged, patch if order is None else order, original, key)

    kept = list(original)
    changes = []
    replace = False
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if directive == "delete":
            kept = [other for other in kept if other.get(key) != _identity(item, key)]
        elif directive == "replace":
            replace = True
        elif directive is None:
            changes.append(item)
        else:
            raise ValueError(f"unknown $patch {directive!r} in a list, expected replace or delete")
    if replace:
        return changes

    merged = list(kept)
    for item in changes:
        identity = _identity(item, key)
        place = next((place for place, other in enumerate(merged) if other.get(key) == identity), None)
        if place is None:
            merged.append(_merge_map({}, item, type_))
        else:
            merged[place] = _merge_map(merged[place], item, type_)
    return _ordered(merged, changes if order is None else order, kept, key)


def _identity(item: Any, key: str) -> Any:
    if key == _OF_PRIMITIVES:
        return item
    if key not in item:
        raise ValueError(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _ordered(merged: Sequence[Any], order: Sequence[Any], before: Sequence[Any], key: str) -> list[Any]:
    """Order a merged list: items of the patch in the patch's order, the others in their old order.

    Between an item of the patch and another one, the old order decides; new items come before old ones.
    """
    wanted = {_identity(item, key): place for place, item in enumerate(order)}
    was = {_identity(item, key): place for place, item in enumerate(before)}
    ours = sorted(
        (item for item in merged if _identity(item, key) in wanted),
        key=lambda item: wanted[_identity(item, key)],
    )
    others = [item for item in merged if _identity(item, key) not in wanted]
    others.sort(key=lambda item: was.get(_identity(item, key), len(was)))

    arranged: list[Any] = []
    while ours and others:
        mine, other = was.get(_identity(ours[0], key)), was.get(_identity(others[0], key))
        other_first = mine is not None and other is not None and other < mine
        arranged.append((others if other_first else ours).pop(0))
    return [*arranged, *ours, *others]


def _without_directives(value: Any) -> Any:
    """Return a replacing value without nulls and directives."""
    if isinstance(value, dict):
        return {
            key: _without_directives(item)
            for key, item in value.items()
            if item is not None and not key.startswith("$")
        }
    if isinstance(value, list):
        return [
            _without_directives(item)
            for item in value
            if not (isinstance(item, dict) and item.get(_DIRECTIVE) in {"delete", "replace"})
        ]
    return value


APPLY_PATCH: Final = "application/apply-patch+yaml"

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
