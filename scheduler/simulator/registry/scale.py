"""The scale subresource: the number of replicas only.

Source:
    kube-apiserver v1.36, pkg/registry/apps/deployment/storage/storage.go, ScaleREST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.objects.api_types import api_type
from scheduler.simulator.apimachinery.causes import invalid_value
from scheduler.simulator.apimachinery.selectors import selector_text
from scheduler.simulator.apimachinery.status import bad_request, conflict, invalid
from scheduler.simulator.apimachinery.strategy import ScalePaths
from scheduler.simulator.custom_resources.jsonpaths import found_at
from scheduler.simulator.patches.patch_types import apply_patch

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.decoding import WriteOptions
    from scheduler.simulator.apimachinery.kinds import Kind, Place
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.registry import Registry
    from scheduler.simulator.storage.entries import Entry

_TYPE = api_type("autoscaling/v1", "Scale")
_BUILT_IN = ScalePaths()
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(kind: Kind, obj: Object) -> Object:
    """Return the autoscaling/v1 Scale of a workload."""
    paths = kind.strategy.scale_paths
    replicas = _first(obj, (paths or _BUILT_IN).spec_replicas, 0)
    status: Object = {"replicas": _first(obj, (paths or _BUILT_IN).status_replicas, 0)}
    if paths is None:
        selector = selector_text(obj["spec"].get("selector") or {})
    else:
        selector = _first(obj, paths.selector, "") if paths.selector else ""
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: obj["metadata"][name] for name in _METADATA if name in obj["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def update_scale(registry: Registry, place: Place, scale: Any, options: WriteOptions) -> Entry:
    """Set the replicas of a Scale.

    Raises:
        StatusError: 400, 404, 409 or 422.
    """
    kind, entry = place.kind, registry.get(place)
    spec, metadata = (
        (scale.get("spec") or {}, scale.get("metadata") or {}) if isinstance(scale, dict) else ({}, {})
    )
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise bad_request(
            'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal into Go struct field '
            "ScaleSpec.spec.replicas of type int32"
        )
    if replicas < 0:
        cause = invalid_value("spec.replicas", str(replicas), "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", place.name, [cause])
    if metadata.get("resourceVersion", str(entry.version)) != str(entry.version):
        raise conflict(kind, place.name)
    path = (kind.strategy.scale_paths or _BUILT_IN).spec_replicas
    if _first(entry.object, path, None) == replicas:
        return entry
    changed = _with(entry.object, path.lstrip(".").split("."), replicas)
    changed["metadata"] = entry.object["metadata"] | {
        "generation": entry.object["metadata"].get("generation", 0) + 1
    }
    return registry.commit(kind, entry, registry.tracked(kind, entry, changed, options, "scale"), options)


def patch_scale(
    registry: Registry, place: Place, patch: Any, patch_type: str, options: WriteOptions
) -> Entry:
    """Patch a Scale.

    Raises:
        StatusError: as `update_scale`, or 415.
    """
    scale = scale_of(place.kind, registry.get(place).object)
    return update_scale(registry, place, apply_patch(scale, patch, patch_type, _TYPE), options)


def _first(obj: Object, path: str, default: Any) -> Any:
    """Return the value at a JSONPath."""
    return next(iter(found_at(obj, path)), default)


def _with(obj: Object, steps: list[str], value: Any) -> Object:
    """Return a copy of an object with a value set at a path; the original is not changed."""
    first, *rest = steps
    return obj | {first: _with(obj.get(first) or {}, rest, value) if rest else value}
