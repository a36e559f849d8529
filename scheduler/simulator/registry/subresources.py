"""Subresources: pods/binding sets the node of a pod, once; scale sets the number of replicas.

Source:
    kube-apiserver v1.36, pkg/registry/core/pod/storage/storage.go, BindingREST.
    kube-apiserver v1.36, pkg/registry/apps/deployment/storage/storage.go, ScaleREST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.objects.api_types import api_type
from scheduler.simulator.apimachinery.causes import invalid_value
from scheduler.simulator.apimachinery.kinds import Place
from scheduler.simulator.apimachinery.objects import is_terminating, with_condition
from scheduler.simulator.apimachinery.selectors import selector_text
from scheduler.simulator.apimachinery.status import StatusError, bad_request, conflict, invalid
from scheduler.simulator.apimachinery.strategy import ScalePaths
from scheduler.simulator.custom_resources.definitions import found_at
from scheduler.simulator.kinds.pods import topology_labels
from scheduler.simulator.patches.patch_types import apply_patch

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.structure import WriteOptions
    from scheduler.simulator.registry.registry import Registry
    from scheduler.simulator.storage import Entry

_SCHEDULED: Final = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}


def bind(registry: Registry, namespace: str, name: str, binding: Any, options: WriteOptions) -> Entry:
    """Bind a pod according to a v1.Binding; the node need not exist.

    Raises:
        StatusError: 400, names differ; 404, no such pod; 409, it cannot be bound, or its uid or version differs;
            500, the Binding names no node.
    """
    metadata, target = _parts(binding)
    if metadata.get("name", "") != name:
        raise bad_request("name in URL does not match name in Binding object")
    node = target.get("name") or ""
    if target.get("kind", "Node") not in {"Node", ""}:
        problem = f'Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise StatusError(500, "", f"target.kind: {problem}")
    if not node:
        raise StatusError(500, "", "target.name: Required value")

    kind = registry.kinds.named("pods")
    entry = registry.get(Place(kind, namespace, name))
    pod = entry.object
    _check_preconditions(registry, entry, metadata)
    problem = _obstacle(pod)
    if problem:
        raise conflict(kind, name, f"pod {name} {problem}", subresource="binding")
    labels = metadata.get("labels", {})
    if target.get("kind") == "Node":
        labels = labels | topology_labels(node, registry)
    bound = _bound(pod, node, metadata.get("annotations", {}), labels, registry.timestamp())
    return registry.commit(kind, entry, bound, options)


def _obstacle(pod: Object) -> str:
    """Return why a pod cannot be bound; "" if it can."""
    if is_terminating(pod):
        return "is being deleted, cannot be assigned to a host"
    if pod["spec"].get("nodeName"):
        return f'is already assigned to node "{pod["spec"]["nodeName"]}"'
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


def _parts(binding: Any) -> tuple[Object, Object]:
    """Return a Binding's metadata and target; raises the errors of a decoder."""
    if not isinstance(binding, dict):
        raise bad_request("not a Binding object")
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if not isinstance(metadata, dict) or not isinstance(target, dict):
        raise bad_request(
            'Binding in version "v1" cannot be handled as a Binding: json: cannot unmarshal into Go struct'
        )
    return metadata, target


def _check_preconditions(registry: Registry, entry: Entry, metadata: Object) -> None:
    """Reject a Binding whose uid or version differs from the pod's."""
    pairs = (
        ("UID", metadata.get("uid"), entry.object["metadata"]["uid"]),
        ("ResourceVersion", metadata.get("resourceVersion"), str(entry.version)),
    )
    for what, asked, found in pairs:
        if asked and asked != found:
            raise conflict(
                registry.kinds.named("pods"),
                entry.name,
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{entry.key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: {what} in precondition: {asked}, {what} in object "
                f"meta: {found}",
            )


def _bound(
    pod: Object, node: str, annotations: dict[str, str], labels: dict[str, str], timestamp: str
) -> Object:
    metadata = dict(pod["metadata"])
    for field, added in (("annotations", annotations), ("labels", labels)):
        if added:
            metadata[field] = metadata.get(field, {}) | added
    status = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    status["conditions"] = with_condition(status.get("conditions"), _SCHEDULED, timestamp)
    return pod | {"metadata": metadata, "spec": pod["spec"] | {"nodeName": node}, "status": status}


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
