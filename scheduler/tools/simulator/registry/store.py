"""The objects of a running server, for use in the same process: the HTTP verbs as plain functions.

Source:
    kube-apiserver v1.36, pkg/registry/core/pod/storage/storage.go, BindingREST.
    kube-apiserver v1.36, pkg/registry/apps/deployment/storage/storage.go, ScaleREST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.kube.http.request import MERGE_PATCH
from scheduler.objects.api_types import api_type
from scheduler.tools.simulator.apimachinery.causes import invalid_value
from scheduler.tools.simulator.apimachinery.kinds import Place
from scheduler.tools.simulator.apimachinery.objects import is_terminating, key_of, with_condition
from scheduler.tools.simulator.apimachinery.patch_types import apply_patch
from scheduler.tools.simulator.apimachinery.selectors import selector_of, selector_text
from scheduler.tools.simulator.apimachinery.status import StatusError, bad_request, conflict, invalid
from scheduler.tools.simulator.apimachinery.strategy import ScalePaths
from scheduler.tools.simulator.apimachinery.structure import WriteOptions
from scheduler.tools.simulator.kinds.core import ALWAYS_THERE
from scheduler.tools.simulator.kinds.custom_resource_definitions import found_at
from scheduler.tools.simulator.kinds.pods import PodStrategy
from scheduler.tools.simulator.registry.deletion import DeleteOptions, delete
from scheduler.tools.simulator.registry.event_recorder import EventRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.tools.simulator.apimachinery.kinds import Kind
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.registry import Registry
    from scheduler.tools.simulator.storage import Entry, Watch

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
    if target.get("kind") == "Node" and isinstance(kind.strategy, PodStrategy):
        labels = labels | kind.strategy.topology_labels(node, registry)
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


_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Store:
    """A server's objects.

    Every method raises `StatusError` where the server would return an error Status. A kind is given by its
    resource: `pods`, or with the group, `deployments.apps`. Returned objects are the stored ones and must not
    be changed: `objects.clone` returns a copy that may. Passed objects are copied.

    Args:
        registry: the objects.
        normal_events: whether simulated controllers and kubelets record events of type Normal; they always record
            warnings.

    Attributes:
        events: records events about objects.
    """

    def __init__(self, registry: Registry, *, normal_events: bool = False) -> None:
        self._registry = registry
        self.events = EventRecorder(self, registry.clock, normal=normal_events)

    @property
    def version(self) -> int:
        """The newest resourceVersion."""
        return self._registry.versions.current

    def create(self, resource: str, obj: Object, *, namespace: str = "") -> Object:
        """Create an object, in `namespace`, else in its own, else in `default`."""
        place = self._at(resource, "", namespace or obj.get("metadata", {}).get("namespace", "default"))
        return place.kind.view(self._registry.create(place, obj, WriteOptions()).object)

    def get(self, resource: str, name: str, namespace: str = "default") -> Object:
        """Return one object; `namespace` is ignored for cluster-scoped kinds."""
        place = self._at(resource, name, namespace)
        return place.kind.view(self._registry.get(place).object)

    def find(self, resource: str, name: str, namespace: str = "default") -> Object | None:
        """Return one object, or None if it does not exist."""
        place = self._at(resource, name, namespace)
        entry = self._registry.entry(place)
        return None if entry is None else place.kind.view(entry.object)

    def list(self, resource: str, *, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        """Return the selected objects; those of all namespaces if none is given."""
        kind = self._kind(resource)
        selector = selector_of(kind, namespace=namespace, labels=labels, fields=fields)
        return [kind.view(entry.object) for entry in self._registry.storage(kind).entries(selector)]

    def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """Replace an object, or its status; its resourceVersion, if set, must be the current one."""
        metadata = obj["metadata"]
        place = self._at(resource, metadata["name"], metadata.get("namespace", "default"), subresource)
        return place.kind.view(self._registry.update(place, obj, WriteOptions())[0].object)

    def patch(
        self,
        resource: str,
        name: str,
        patch: Any,
        namespace: str = "default",
        *,
        patch_type: str = MERGE_PATCH,
        subresource: str = "",
    ) -> Object:
        """Patch an object."""
        place = self._at(resource, name, namespace, subresource)
        return place.kind.view(self._registry.patch(place, patch, patch_type, WriteOptions()).object)

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "default",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: str = "",
    ) -> Object:
        """Delete an object, or begin its deletion; returns its last or current state."""
        place = self._at(resource, name, namespace)
        options = DeleteOptions(grace_period_seconds, uid, resource_version, propagation_policy)
        return place.kind.view(delete(self._registry, place, options, WriteOptions())[0].object)

    def change(
        self, obj: Object, patch: Object, subresource: str = "", patch_type: str = MERGE_PATCH
    ) -> Object:
        """Patch a stored object, or its status."""
        resource, name, namespace = self._where(obj)
        return self.patch(resource, name, patch, namespace, patch_type=patch_type, subresource=subresource)

    def remove(self, obj: Object, **options: Any) -> None:
        """Delete a stored object, with the options of `delete`, unless it is already deleted or replaced by a new one."""
        if self.has(obj):
            resource, name, namespace = self._where(obj)
            self.delete(resource, name, namespace, **options)

    def has(self, obj: Object) -> bool:
        """Return whether an object still exists (with the same uid)."""
        found = self.find(*self._where(obj))
        return found is not None and bool(found["metadata"]["uid"] == obj["metadata"]["uid"])

    def bind(
        self,
        name: str,
        node: str,
        namespace: str = "default",
        *,
        uid: str = "",
        resource_version: str = "",
        annotations: dict[str, str] | None = None,
    ) -> Object:
        """Bind a pod to a node."""
        metadata = {
            "name": name,
            "uid": uid,
            "resourceVersion": resource_version,
            "annotations": annotations or {},
        }
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
        return bind(self._registry, namespace, name, binding, WriteOptions()).object

    def scale(self, resource: str, name: str, replicas: int, namespace: str = "default") -> Object:
        """Set the replicas of a workload."""
        place, scale = self._at(resource, name, namespace), {"spec": {"replicas": replicas}}
        return update_scale(self._registry, place, scale, WriteOptions()).object

    def apply(self, obj: Object) -> Object:
        """Create an object of any kind, or apply it to the existing one as a merge patch.

        Raises:
            StatusError: also 404, its kind is not served.
        """
        kind = self._kind_of(obj)
        if kind is None:
            what = f"{obj.get('apiVersion', '?')}, Kind={obj.get('kind', '?')}"
            raise StatusError(404, "NotFound", f'no matches for "{what}": the kind is not served')
        metadata = obj["metadata"]
        place = _place(kind, metadata.get("name", ""), metadata.get("namespace", "default"))
        if place.name and self._registry.entry(place) is not None:
            entry = self._registry.patch(place, obj, MERGE_PATCH, WriteOptions())
        else:
            entry = self._registry.create(place, obj, WriteOptions())
        return kind.view(entry.object)

    def serves(self, obj: Object) -> bool:
        """Return whether the kind of an object is served."""
        return self._kind_of(obj) is not None

    def is_namespaced(self, obj: Object) -> bool:
        """Return whether the kind of an object is namespaced; true for kinds that are not served."""
        kind = self._kind_of(obj)
        return kind is None or kind.namespaced

    def defines(self, obj: Object) -> bool:
        """Return whether there is a CustomResourceDefinition for the kind of an object."""
        group = obj.get("apiVersion", "").rpartition("/")[0]
        return any(
            (one["spec"]["group"], one["spec"]["names"]["kind"]) == (group, obj.get("kind"))
            for one in self._registry.each("customresourcedefinitions")
        )

    def has_kind(self, resource: str) -> bool:
        """Return whether a kind is served, by its name."""
        return resource in self._registry.kinds

    def watch(self, resource: str, on_ready: Callable[[], None]) -> Watch:
        """Watch all objects of a kind from now on; see `storage.Watch`. End the watch with `unwatch`."""
        kind = self._kind(resource)
        watch, _ = self._registry.storage(kind).watch(selector_of(kind), on_ready)
        return watch

    def unwatch(self, resource: str, watch: Watch) -> None:
        """End a watch."""
        self._registry.storage(self._kind(resource)).unwatch(watch)

    def namespaced_resources(self) -> tuple[str, ...]:
        """Return the names of all namespaced kinds, one per storage."""
        kinds = {kind.storage: kind for kind in self._registry.kinds if kind.namespaced}
        return tuple(kind.group_resource for kind in kinds.values())

    def serve(self, kinds: Sequence[Kind], instead_of: Sequence[Kind] = ()) -> None:
        """Serve kinds, possibly replacing others; watches of kinds that are no longer served end."""
        left = {kind.storage for kind in kinds}
        for kind in instead_of:
            self._registry.kinds.remove(kind)
            if kind.storage not in left:
                self._registry.storage(kind).end_watches()
        for kind in kinds:
            self._registry.kinds.add(kind)

    def timestamp(self) -> str:
        """Return the server's time as metav1.Time."""
        return self._registry.timestamp()

    def bootstrap(self) -> None:
        """Create the objects that every cluster has from its start."""
        for name in ALWAYS_THERE:
            self.create("namespaces", {"metadata": {"name": name}})
        for name, value in _SYSTEM_PRIORITIES.items():
            self.create("priorityclasses", {"metadata": {"name": name}, "value": value})

    def _kind(self, resource: str) -> Kind:
        return self._registry.kinds.named(resource)

    def _at(self, resource: str, name: str, namespace: str, subresource: str = "") -> Place:
        return _place(self._kind(resource), name, namespace, subresource)

    def _where(self, obj: Object) -> tuple[str, str, str]:
        kind = self._kind_of(obj)
        assert kind is not None, "what is stored is served"
        namespace, name = key_of(obj)
        return kind.group_resource, name, namespace

    def _kind_of(self, obj: Object) -> Kind | None:
        wanted = obj.get("apiVersion"), obj.get("kind")
        return next((kind for kind in self._registry.kinds if (kind.api_version, kind.kind) == wanted), None)


def _place(kind: Kind, name: str, namespace: str, subresource: str = "") -> Place:
    return Place(kind, namespace if kind.namespaced else "", name, subresource)
