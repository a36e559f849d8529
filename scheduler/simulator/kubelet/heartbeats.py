"""Simulates the heartbeats of all kubelets, so that a node lifecycle controller considers the nodes alive.

Source:
    kubelet v1.36, staging/src/k8s.io/component-helpers/apimachinery/lease/controller.go, and pkg/kubelet/kubelet_node_status.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import condition_of, key_of
from scheduler.simulator.controllers.controller import Controller

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_LEASES: Final = "leases.coordination.k8s.io"
_NAMESPACE: Final = "kube-node-lease"
_ATTACHED_BY_CONTROLLER: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
_DURATION_SECONDS: Final = 40
_RENEWALS_PER_STATUS: Final = 30


class Heartbeats(Controller):
    """Renews the leases of nodes, and from time to time the times in their status; leases of dead nodes expire."""

    resources = ("nodes",)

    def __init__(self, store: Store, seconds: float) -> None:
        super().__init__(store)
        self._seconds = seconds
        self._nodes: dict[str, Object] = {}  # name -> node with heartbeats
        self._beats = 0

    def start(self) -> None:
        """Start watching and renewing."""
        super().start()
        self._beat()

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        name = key_of(obj)[1]
        if type_ == "DELETED" or condition_of(obj, "Ready").get("status") == "Unknown":
            self._nodes.pop(name, None)
        elif name in self._nodes:
            self._nodes[name] = obj
        else:
            self._nodes[name] = obj
            self._register(obj)
            self._renew(obj)

    def _beat(self) -> None:
        self.later(self._seconds, self._beat)
        self._beats += 1
        for node in list(self._nodes.values()):
            self._renew(node)
            if self._beats % _RENEWALS_PER_STATUS == 0:
                self._report(node)

    def _register(self, node: Object) -> None:
        """Leave attaching to the controller, as kubelets do."""
        if _ATTACHED_BY_CONTROLLER not in node["metadata"].get("annotations", {}):
            self.store.change(node, {"metadata": {"annotations": {_ATTACHED_BY_CONTROLLER: "true"}}})

    def _renew(self, node: Object) -> None:
        metadata = node["metadata"]
        renewed = {"renewTime": self.store.timestamp()}
        present = self.store.find(_LEASES, metadata["name"], _NAMESPACE)
        if present is not None:
            self.store.change(present, {"spec": renewed})
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"holderIdentity": metadata["name"], "leaseDurationSeconds": _DURATION_SECONDS, **renewed}
        lease = {"metadata": {"name": metadata["name"], "ownerReferences": [owner]}, "spec": spec}
        self.store.create(_LEASES, lease, namespace=_NAMESPACE)

    def _report(self, node: Object) -> None:
        now = self.store.timestamp()
        conditions = [one | {"lastHeartbeatTime": now} for one in node["status"].get("conditions", ())]
        if conditions:
            self.store.change(node, {"status": {"conditions": conditions}}, "status")
