"""Simulates the controller of ResourceQuotas: shows in their status what the pods of a namespace use.

Source:
    kube-controller-manager v1.36, pkg/controller/resourcequota/resource_quota_controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.controllers.controller import QueueController
from scheduler.tools.simulator.kinds.resource_quotas import usage
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.objects import Object

_QUOTAS: Final = "resourcequotas"


class ResourceQuotaController(QueueController[Store]):
    """Counts the pods of namespaces with a quota."""

    resources = (_QUOTAS, "pods")

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        self.enqueue(obj["metadata"]["namespace"])

    def reconcile(self, key: str) -> None:
        """Count the pods of a namespace."""
        quotas = self.store.list(_QUOTAS, namespace=key)
        pods = self.store.list("pods", namespace=key) if quotas else []
        for quota in quotas:
            hard = quota.get("spec", {}).get("hard", {})
            status = {"hard": hard, "used": usage(quota, pods)}
            if status != quota.get("status", {}):
                self.store.update(_QUOTAS, quota | {"status": status}, subresource="status")
