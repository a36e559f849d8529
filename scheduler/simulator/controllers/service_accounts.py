"""Simulates the controllers that create a ServiceAccount and the CA certificate in every namespace.

Source:
    kube-controller-manager v1.36, pkg/controller/serviceaccount/serviceaccounts_controller.go;
    pkg/controller/certificates/rootcacertpublisher/publisher.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import key_of
from scheduler.simulator.controllers.controller import Controller

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_ROOT: Final = "kube-root-ca.crt"


class ServiceAccounts(Controller):
    """Restores the default objects of every namespace that is not terminating."""

    resources = ("namespaces", "serviceaccounts", "configmaps")

    def __init__(self, store: Store, authority: bytes) -> None:
        """Set up; `authority` is the CA certificate for clients, PEM, empty without TLS."""
        super().__init__(store)
        self._authority = authority.decode()
        self._active: set[str] = set()

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource != "namespaces":
            return
        name = key_of(obj)[1]
        if type_ == "DELETED" or "deletionTimestamp" in obj["metadata"]:
            self._active.discard(name)
        else:
            self._active.add(name)

    def act(self) -> None:
        for namespace in sorted(self._active):
            if self.store.find("serviceaccounts", "default", namespace) is None:
                self.store.create("serviceaccounts", {"metadata": {"name": "default"}}, namespace=namespace)
            if self._authority and self.store.find("configmaps", _ROOT, namespace) is None:
                data = {"ca.crt": self._authority}
                self.store.create(
                    "configmaps", {"metadata": {"name": _ROOT}, "data": data}, namespace=namespace
                )
