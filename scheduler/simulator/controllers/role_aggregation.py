"""Simulates the controller that aggregates ClusterRoles.

Source:
    kube-controller-manager v1.36, pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.objects import labels_of
from scheduler.simulator.apimachinery.selectors import label_rule
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.kinds.roles import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.apimachinery.objects import Object

_CLUSTER_ROLES: Final = f"clusterroles.{GROUP}"


class RoleAggregation(Controller):
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
