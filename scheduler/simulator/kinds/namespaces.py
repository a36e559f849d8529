"""Namespaces: their content is deleted before they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.metadata import dns_label
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.apimachinery.strategy import Cluster, Strategy

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object

ALWAYS_THERE: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_IMMORTAL: Final = frozenset({"default", "kube-public", "kube-system"})
_NAME_LABEL: Final = "kubernetes.io/metadata.name"


class NamespaceStrategy(Strategy):
    """The rules of namespaces."""

    name_rule = staticmethod(dns_label)
    has_status = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = obj["metadata"].get("labels", {}) | {_NAME_LABEL: name}

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        obj["status"] = {"phase": "Active"}
        if "kubernetes" not in obj["spec"].get("finalizers", ()):
            obj["spec"]["finalizers"] = [*obj["spec"].get("finalizers", ()), "kubernetes"]

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        obj["spec"] = old["spec"]

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        if subresource != "finalize":
            super().prepare_part_update(subresource, obj, old, cluster)
            return
        finalizers = obj["spec"].get("finalizers", ())
        for field in {*obj, *old} - {"spec"}:
            obj[field] = old[field]
        obj["spec"] = {name: value for name, value in old["spec"].items() if name != "finalizers"}
        if finalizers:
            obj["spec"]["finalizers"] = list(finalizers)

    def check_delete(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        if name in _IMMORTAL:
            message = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
            raise StatusError(403, "Forbidden", message, {"name": name, "kind": "namespaces"})

    def begin_delete(self, obj: Object, cluster: Cluster) -> Object | None:
        """Mark a namespace as terminating as long as it has a finalizer.

        Raises:
            StatusError: 409, it is already terminating.
        """
        metadata = obj["metadata"]
        if not obj["spec"].get("finalizers"):
            return None
        if "deletionTimestamp" in metadata:
            name = metadata["name"]
            raise StatusError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on namespaces "{name}": The system is ensuring all content is '
                "removed from this namespace.  Upon completion, this namespace will automatically be purged by "
                "the system.",
                {"name": name, "kind": "namespaces"},
            )
        return obj | {
            "metadata": metadata | {"deletionTimestamp": cluster.timestamp()},
            "status": obj.get("status", {}) | {"phase": "Terminating"},
        }

    def is_released(self, obj: Object) -> bool:
        """Return whether a terminating namespace is empty, so that it has no finalizers."""
        metadata = obj["metadata"]
        return "deletionTimestamp" in metadata and not (
            metadata.get("finalizers") or obj["spec"].get("finalizers")
        )
