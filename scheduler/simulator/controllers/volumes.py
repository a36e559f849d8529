"""Simulates the PersistentVolume controller: binds claims and volumes, and sets their phases.

The scheduler handles claims of a class with WaitForFirstConsumer: here their volume is bound only after the scheduler has
reserved it, and provisioned only after it has selected a node.

Source:
    kube-controller-manager v1.36, pkg/controller/volume/persistentvolume/pv_controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import key_of
from scheduler.simulator.controllers.controller import QueueController
from scheduler.simulator.controllers.recorded_events import record_event
from scheduler.simulator.controllers.volume_matching import is_for, matching_volume, mismatch
from scheduler.simulator.kinds.persistent_volume_claims import class_of, default_class
from scheduler.simulator.kinds.storage import WAIT_FOR_FIRST_CONSUMER

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"

_BETA_STORAGE_PROVISIONER: Final = "volume.beta.kubernetes.io/storage-provisioner"
_COMPONENT: Final = "persistentvolume-controller"
_VOLUMES: Final = "persistentvolumes"
_CLAIMS: Final = "persistentvolumeclaims"
_CLASSES: Final = "storageclasses.storage.k8s.io"
_ENDED: Final = frozenset({"Released", "Failed"})


def annotations_of(obj: Object) -> dict[str, str]:
    """Return an object's annotations; do not change them."""
    annotations: dict[str, str] = obj["metadata"].get("annotations", {})
    return annotations


class VolumeController(QueueController):
    """Binds claims and volumes to each other, and requests provisioning."""

    resources = (_VOLUMES, _CLAIMS, _CLASSES)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._free: dict[str, dict[str, None]] = {}  # class -> names of unreserved volumes
        self._reserved: dict[str, dict[str, None]] = {}  # key of a claim -> names of volumes that refer to it
        self._claims: dict[str, str] = {}  # name of a volume -> key of the claim it refers to
        self._waiting: dict[str, dict[str, None]] = {}  # class -> keys of claims without a volume
        self._told: dict[str, str] = {}  # key of a claim -> message of its last event

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        is_there = type_ != "DELETED"
        namespace, name = key_of(obj)
        if resource == _VOLUMES:
            self._look_at_volume(obj, name, is_there=is_there)
        elif resource == _CLAIMS:
            self._look_at_claim(obj, f"{namespace}/{name}", is_there=is_there)
        else:
            self.enqueue(*self._waiting.get(name, ()), *self._waiting.get("", ()))

    def reconcile(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        if not namespace:
            volume = self.store.find(_VOLUMES, name)
            if volume is not None:
                self._sync_volume(volume)
            return
        claim = self.store.find(_CLAIMS, name, namespace)
        if claim is None:
            return
        if BIND_COMPLETED in annotations_of(claim):
            self._sync_bound(claim)
        elif claim["spec"].get("volumeName"):
            self._sync_named(claim)
        else:
            self._sync_unbound(claim)

    def _look_at_volume(self, volume: Object, name: str, *, is_there: bool) -> None:
        self.enqueue(f"/{name}")
        reference, class_ = volume["spec"].get("claimRef"), class_of(volume) or ""
        is_free = is_there and reference is None and volume["status"].get("phase") in {"Available", "Pending"}
        _keep(self._free, class_, name, is_there=is_free)
        claim = self._claims.pop(name, "")
        self._reserved.get(claim, {}).pop(name, None)
        if reference is not None:
            claim = f"{reference.get('namespace', '')}/{reference.get('name', '')}"
            self.enqueue(claim)
            if is_there:
                self._claims[name] = claim
                self._reserved.setdefault(claim, {})[name] = None
        elif is_free:
            self.enqueue(*self._waiting.get(class_, ()))

    def _look_at_claim(self, claim: Object, key: str, *, is_there: bool) -> None:
        waits = is_there and BIND_COMPLETED not in annotations_of(claim)
        _keep(self._waiting, class_of(claim) or "", key, is_there=waits)
        self.enqueue(key)
        volume = claim["spec"].get("volumeName")
        if volume:
            self.enqueue(f"/{volume}")
        if not is_there:
            self._told.pop(key, None)

    def _sync_unbound(self, claim: Object) -> None:
        """Find a volume for a claim that names none, or request provisioning."""
        name = class_of(claim)
        class_ = self.store.find(_CLASSES, name) if name else None
        waits = class_ is not None and class_["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER
        reserved = self._reserved.get("/".join(key_of(claim)), {})
        names = reserved if waits else reserved | self._free.get(name or "", {})
        volumes = [volume for one in names if (volume := self.store.find(_VOLUMES, one)) is not None]
        found = matching_volume(claim, volumes)
        if found is not None:
            self._bind(found, claim)
        elif name is None and (default := default_class(self.store.list(_CLASSES))):
            self.store.change(claim, {"spec": {"storageClassName": default}})
        elif waits and SELECTED_NODE not in annotations_of(claim):
            message = "waiting for first consumer to be created before binding"
            self._tell(claim, "WaitForFirstConsumer", message)
        elif class_ is not None:
            self._ask_to_provision(claim, class_["provisioner"])
        elif name:
            message = f'storageclass.storage.k8s.io "{name}" not found'
            self._tell(claim, "ProvisioningFailed", message, warning=True)
        else:
            message = "no persistent volumes available for this claim and no storage class is set"
            self._tell(claim, "FailedBinding", message)

    def _ask_to_provision(self, claim: Object, provisioner: str) -> None:
        wanted = {_BETA_STORAGE_PROVISIONER: provisioner, STORAGE_PROVISIONER: provisioner}
        if wanted.items() - annotations_of(claim).items():
            self.store.change(claim, {"metadata": {"annotations": wanted}})
        message = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._tell(claim, "ExternalProvisioning", message)

    def _sync_named(self, claim: Object) -> None:
        """Bind a claim to the volume that it names, when that exists and is free."""
        name = claim["spec"]["volumeName"]
        volume = self.store.find(_VOLUMES, name)
        if volume is None:
            return
        if "claimRef" not in volume["spec"]:
            problem = mismatch(claim, volume)
            if problem:
                message = f'Cannot bind to requested volume "{name}": {problem}'
                self._tell(claim, "VolumeMismatch", message, warning=True)
                return
        elif not is_for(volume, claim):
            message = f'volume "{name}" already bound to a different claim.'
            self._tell(claim, "FailedBinding", message, warning=True)
            return
        self._bind(volume, claim)

    def _sync_bound(self, claim: Object) -> None:
        """Check that a claim that was bound is still bound."""
        name = claim["spec"].get("volumeName")
        volume = self.store.find(_VOLUMES, name) if name else None
        if volume is None:
            what = "its PersistentVolume" if name else "reference to PersistentVolume"
            self._lose(claim, "ClaimLost", f"Bound claim has lost {what}. Data on the volume is lost!")
        elif (
            "claimRef" in volume["spec"] and volume["spec"]["claimRef"].get("uid") != claim["metadata"]["uid"]
        ):
            message = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lose(claim, "ClaimMisbound", message)
        else:
            self._bind(volume, claim)

    def _lose(self, claim: Object, reason: str, message: str) -> None:
        if claim["status"].get("phase") == "Lost":
            return
        status = {"phase": "Lost", "accessModes": None, "capacity": None}
        self.store.change(claim, {"status": status}, "status")
        self._tell(claim, reason, message, warning=True)

    def _bind(self, volume: Object, claim: Object) -> None:
        """Set the references and phases of a bound volume and claim, as far as they are not set."""
        namespace, name = key_of(claim)
        volume_name, uid = key_of(volume)[1], claim["metadata"]["uid"]
        if volume["spec"].get("claimRef", {}).get("uid") != uid:
            reference = {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": namespace,
                "name": name,
                "uid": uid,
                "resourceVersion": claim["metadata"]["resourceVersion"],
            }
            patch: Object = {"spec": {"claimRef": reference}}
            if not is_for(volume, claim):
                patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
            volume = self.store.change(volume, patch)
        self._write_phase(volume, "Bound")
        annotations = {}
        if claim["spec"].get("volumeName") != volume_name:
            annotations[BOUND_BY_CONTROLLER] = "yes"
        if BIND_COMPLETED not in annotations_of(claim):
            annotations[BIND_COMPLETED] = "yes"
        if annotations:
            patch = {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume_name}}
            claim = self.store.change(claim, patch)
        if claim["status"].get("phase") != "Bound":
            spec = volume["spec"]
            status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}
            self.store.change(claim, {"status": status}, "status")

    def _sync_volume(self, volume: Object) -> None:
        """Update a volume's phase from the claim that it refers to."""
        reference = volume["spec"].get("claimRef")
        if reference is None or not reference.get("uid"):
            self._write_phase(volume, "Available")
            return
        claim = self.store.find(_CLAIMS, reference.get("name", ""), reference.get("namespace", ""))
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            self._release(volume)
        elif claim["spec"].get("volumeName") == key_of(volume)[1]:
            self._write_phase(volume, "Bound")
        elif claim["spec"].get("volumeName"):
            self._leave_to_other(volume)

    def _release(self, volume: Object) -> None:
        """Release a volume whose claim is gone; its provisioner deletes it if that is the reclaim policy."""
        if volume["status"].get("phase") not in _ENDED:
            self._write_phase(volume, "Released")

    def _leave_to_other(self, volume: Object) -> None:
        """Release a claim that is bound to another volume now."""
        annotations, spec = annotations_of(volume), volume["spec"]
        if PROVISIONED_BY in annotations and spec["persistentVolumeReclaimPolicy"] == "Delete":
            self._release(volume)
            return
        patch: Object = {"spec": {"claimRef": {"uid": None}}}
        if BOUND_BY_CONTROLLER in annotations:
            patch = {"spec": {"claimRef": None}, "metadata": {"annotations": {BOUND_BY_CONTROLLER: None}}}
        self._write_phase(self.store.change(volume, patch), "Available")

    def _write_phase(self, volume: Object, phase: str) -> None:
        if volume["status"].get("phase") != phase:
            self.store.change(volume, {"status": {"phase": phase}}, "status")

    def _tell(self, claim: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event of a claim, unless it equals the last one."""
        key = "/".join(key_of(claim))
        if self._told.get(key) != message:
            self._told[key] = message
            record_event(self.store, claim, reason, message, component=_COMPONENT, warning=warning)


def _keep(place: dict[str, dict[str, None]], group: str, name: str, *, is_there: bool) -> None:
    """Add or remove a name of a group; a name that changed its group is removed from all."""
    if is_there:
        place.setdefault(group, {})[name] = None
        return
    for names in place.values():
        names.pop(name, None)
