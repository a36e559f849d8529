"""Simulates the ephemeral volume controller: creates the claims of pods with ephemeral volumes.

Source:
    kube-controller-manager v1.36, pkg/controller/volume/ephemeral/controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import controller_of, is_terminating, key_of, owned_by
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.controller import QueueController
from scheduler.simulator.controllers.recorded_events import record_event

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object

_CLAIMS: Final = "persistentvolumeclaims"


class EphemeralVolumes(QueueController):
    """Creates the claim of every ephemeral volume, owned by the pod, so that it is deleted with the pod."""

    resources = ("pods", _CLAIMS)

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        namespace, name = key_of(obj)
        if resource == "pods":
            if type_ != "DELETED" and any("ephemeral" in one for one in obj["spec"].get("volumes", ())):
                self.enqueue(f"{namespace}/{name}")
        elif type_ == "DELETED" and controller_of(obj).get("kind") == "Pod":
            self.enqueue(f"{namespace}/{controller_of(obj)['name']}")

    def reconcile(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        pod = self.store.find("pods", name, namespace)
        if pod is None or is_terminating(pod):
            return
        for volume in pod["spec"].get("volumes", ()):
            if "ephemeral" in volume:
                self._keep(pod, volume["name"], volume["ephemeral"]["volumeClaimTemplate"])

    def _keep(self, pod: Object, volume: str, template: Object) -> None:
        """Create the claim of a volume, unless it exists."""
        namespace, pod_name = key_of(pod)
        name = f"{pod_name}-{volume}"
        present = self.store.find(_CLAIMS, name, namespace)
        if present is not None:
            if controller_of(present).get("uid") != pod["metadata"]["uid"]:
                where = f"pod {namespace}/{pod_name} (pod is not owner)"
                self._tell(pod, volume, f"PVC {namespace}/{name} was not created for {where}")
            return
        metadata = template.get("metadata", {})
        claim = {
            "metadata": {
                "name": name,
                "labels": metadata.get("labels", {}),
                "annotations": metadata.get("annotations", {}),
                "ownerReferences": owned_by(pod),
            },
            "spec": template["spec"],
        }
        try:
            self.store.create(_CLAIMS, claim, namespace=namespace)
        except StatusError as error:
            self._tell(pod, volume, f"create PVC {name}: {error.message}")

    def _tell(self, pod: Object, volume: str, problem: str) -> None:
        message = f"ephemeral volume {volume}: {problem}"
        record_event(self.store, pod, "FailedBinding", message, component="ephemeral_volume", warning=True)
