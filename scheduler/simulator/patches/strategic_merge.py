"""Strategic merge patch: a merge patch in which some lists are merged by a key instead of replaced.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go; which lists are
    merged is written at the fields of staging/src/k8s.io/api, as patchStrategy and patchMergeKey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.status import bad_request
from scheduler.simulator.apimachinery.structure import field_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.simulator.apimachinery.objects import Object

_DIRECTIVE: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"

_OF_PRIMITIVES: Final = ""  # the "key" of lists that are merged as sets

_CONTAINER = {
    "ports": "containerPort",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_CONDITIONS = {"conditions": "type"}

MERGED: Final[Mapping[str, Mapping[str, str]]] = {
    "V1ObjectMeta": {"ownerReferences": "uid", "finalizers": _OF_PRIMITIVES},
    "V1PodSpec": {
        "volumes": "name",
        "initContainers": "name",
        "containers": "name",
        "ephemeralContainers": "name",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "schedulingGates": "name",
        "resourceClaims": "name",
    },
    "V1Container": _CONTAINER,
    "V1EphemeralContainer": _CONTAINER,
    "V1ContainerStatus": {"volumeMounts": "mountPath", "allocatedResourcesStatus": "name"},
    "V1PodStatus": {**_CONDITIONS, "hostIPs": "ip", "podIPs": "ip", "resourceClaimStatuses": "name"},
    "V1NodeSpec": {"podCIDRs": _OF_PRIMITIVES},
    "V1NodeStatus": {**_CONDITIONS, "addresses": "type"},
    "V1NamespaceStatus": _CONDITIONS,
    "V1ServiceSpec": {"ports": "port"},
    "V1ServiceStatus": _CONDITIONS,
    "V1ServiceAccount": {"secrets": "name"},
    "V1PersistentVolumeClaimStatus": _CONDITIONS,
    "V1ReplicationControllerStatus": _CONDITIONS,
    "V1DeploymentStatus": _CONDITIONS,
    "V1ReplicaSetStatus": _CONDITIONS,
    "V1StatefulSetStatus": _CONDITIONS,
    "V1DaemonSetStatus": _CONDITIONS,
    "V1JobStatus": _CONDITIONS,
    "V1PodDisruptionBudgetStatus": _CONDITIONS,
}  # model -> field -> what identifies its items; all other lists are replaced


def strategic_merge(original: Object, patch: Object, model: str) -> Object:
    """Return an object with a patch applied; the original is not changed.

    Args:
        original: the object.
        patch: the patch, directives included.
        model: kubernetes_asyncio's name of the object's type, as in `V1Pod`.

    Raises:
        StatusError: 400, the patch does not make sense for the object.
    """
    try:
        return _merge_map(original, patch, model)
    except (TypeError, ValueError, AttributeError) as error:
        raise bad_request(f"unable to apply the strategic merge patch: {error}") from error


def _merge_map(original: Object, patch: Object, model: str) -> Object:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive is not None:
        raise ValueError(f"unknown $patch {directive!r}, expected replace or delete")

    merged = _prepared(original, patch, model)
    for field, value in patch.items():
        if field.startswith("$"):
            continue
        if value is None:
            merged.pop(field, None)
            continue
        merged[field] = _merge_field(merged.get(field), value, model, field, patch.get(_ORDER + field))
    return merged


def _prepared(original: Object, patch: Object, model: str) -> Object:
    """Return a copy of the original with the patch's directives about whole fields carried out."""
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
                key = MERGED.get(model, {}).get(name, _OF_PRIMITIVES)
                prepared[name] = _ordered(prepared[name], value, prepared[name], key)
    return prepared


def _merge_field(existing: Any, value: Any, model: str, field: str, order: Sequence[Any] | None) -> Any:
    if isinstance(value, dict):
        return _merge_map(existing if isinstance(existing, dict) else {}, value, field_model(model, field))
    key = MERGED.get(model, {}).get(field)
    if not isinstance(value, list) or key is None:
        return _without_directives(value)
    before = existing if isinstance(existing, list) else []
    return _merge_list(before, value, key, field_model(model, field), order)


def _merge_list(
    original: Sequence[Any], patch: Sequence[Any], key: str, model: str, order: Sequence[Any] | None
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
            merged.append(_merge_map({}, item, model))
        else:
            merged[place] = _merge_map(merged[place], item, model)
    return _ordered(merged, changes if order is None else order, kept, key)


def _identity(item: Any, key: str) -> Any:
    if key == _OF_PRIMITIVES:
        return item
    if key not in item:
        raise ValueError(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _ordered(merged: Sequence[Any], order: Sequence[Any], before: Sequence[Any], key: str) -> list[Any]:
    """Arrange a merged list: items of the patch in the patch's order, the others as they were.

    Where an item of each kind meet, the one that was first before goes first; new ones go before old ones.
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
    """Return what a replaced value holds, nulls and directives taken out."""
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
