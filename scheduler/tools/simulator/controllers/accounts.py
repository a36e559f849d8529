"""Simulates the controllers of ServiceAccounts and of aggregated ClusterRoles.

Source:
    kube-controller-manager v1.36, pkg/controller/serviceaccount/serviceaccounts_controller.go;
    pkg/controller/certificates/rootcacertpublisher/publisher.go.
    kube-controller-manager v1.36, pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.tools.simulator.apimachinery.objects import key_of, labels_of
from scheduler.tools.simulator.apimachinery.selectors import label_rule
from scheduler.tools.simulator.controllers.controller import Controller
from scheduler.tools.simulator.kinds.roles import GROUP
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object

_ROOT: Final = "kube-root-ca.crt"


class ServiceAccounts(Controller[Store]):
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


_CLUSTER_ROLES: Final = f"clusterroles.{GROUP}"


class RoleAggregation(Controller[Store]):
    """Keeps the rules of ClusterRoles with an aggregationRule."""

    resources = (_CLUSTER_ROLES,)

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        """Ignore the details: any change may affect any role."""

    def act(self) -> None:
        """Update all roles; a role that changes may affect others in the next run."""
        roles = sorted(self.store.list(_CLUSTER_ROLES), key=lambda role: str(role["metadata"]["name"]))
        for role in roles:
            if "aggregationRule" not in role or "deletionTimestamp" in role["metadata"]:
                continue
            rules = _gathered(role, roles)
            if rules != (role.get("rules") or []):
                self.store.update(_CLUSTER_ROLES, {**role, "rules": rules})


def _gathered(role: Object, roles: Sequence[Object]) -> list[Any]:
    """Return the rules of all roles that a role's selectors match, without duplicates."""
    rules: list[Any] = []
    for selector in role["aggregationRule"].get("clusterRoleSelectors", ()):
        chosen = label_rule(selector)
        for other in roles:
            if other["metadata"]["name"] != role["metadata"]["name"] and chosen.matches(labels_of(other)):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules
