"""Simulates the namespace controller: deletes the content of terminating namespaces, then the namespaces.

Source:
    kube-controller-manager v1.36, pkg/controller/namespace/deletion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating
from scheduler.simulator.controllers.controller import Controller

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_RETRY_SECONDS: Final = 1.0


class NamespaceController(Controller):
    """Deletes the content of terminating namespaces."""

    resources = ("namespaces",)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._terminating: dict[str, Object] = {}  # name -> namespace

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        if type_ == "DELETED":
            self._terminating.pop(name, None)
        elif is_terminating(obj):
            self._terminating[name] = obj

    def act(self) -> None:
        for name, namespace in list(self._terminating.items()):
            if self._empty(name):
                self._finalize(namespace)
                self._terminating.pop(name, None)
            else:
                self.later(_RETRY_SECONDS, self.wake)

    def _empty(self, name: str) -> bool:
        """Delete the objects of a namespace; return whether none is left."""
        left = 0
        for resource in self.store.namespaced_resources():
            for obj in self.store.list(resource, namespace=name):
                if not is_terminating(obj):
                    self.store.remove(obj, propagation_policy="Background")
            left += len(self.store.list(resource, namespace=name))
        return not left

    def _finalize(self, namespace: Object) -> None:
        spec = {key: value for key, value in namespace["spec"].items() if key != "finalizers"}
        kept = [one for one in namespace["spec"].get("finalizers", ()) if one != "kubernetes"]
        metadata = {key: value for key, value in namespace["metadata"].items() if key != "resourceVersion"}
        self.store.update(
            "namespaces",
            namespace | {"metadata": metadata, "spec": spec | ({"finalizers": kept} if kept else {})},
            subresource="finalize",
        )
