"""The objects of a running server, for use in the same process: the HTTP verbs as plain functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.simulator.apimachinery.kinds import Place
from scheduler.simulator.apimachinery.objects import key_of
from scheduler.simulator.apimachinery.selectors import selector_of
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.apimachinery.structure import WriteOptions
from scheduler.simulator.kinds.core import ALWAYS_THERE
from scheduler.simulator.patches.patch_types import MERGE_PATCH
from scheduler.simulator.registry.deletion import DeleteOptions, delete
from scheduler.simulator.registry.subresources import bind, update_scale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.registry import Registry
    from scheduler.simulator.storage import Watch

_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Store:
    """A server's objects.

    Every method raises `StatusError` where the server would return an error Status. A kind is given by its
    resource: `pods`, or with the group, `deployments.apps`. Returned objects are the stored ones and must not
    be changed: `objects.clone` returns a copy that may. Passed objects are copied.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

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

    def change(self, obj: Object, patch: Object, subresource: str = "") -> Object:
        """Change a stored object, or its status, by a merge patch."""
        resource, name, namespace = self._where(obj)
        return self.patch(resource, name, patch, namespace, subresource=subresource)

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
