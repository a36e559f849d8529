"""Simulates the controllers of volumes: binding, ephemeral volumes, attachment, and protection while in use.

The scheduler handles claims of a class with WaitForFirstConsumer: here their volume is bound only after the scheduler has
reserved it, and provisioned only after it has selected a node.

Source:
    kube-controller-manager v1.36, staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go, FindMatchingVolume,
    and pkg/controller/volume/persistentvolume/pv_controller.go, checkVolumeSatisfyClaim.
    kube-controller-manager v1.36, pkg/controller/volume/persistentvolume/pv_controller.go.
    kube-controller-manager v1.36, pkg/controller/volume/ephemeral/controller.go.
    kube-controller-manager v1.36, pkg/controller/volume/attachdetach, and pkg/volume/csi/csi_attacher.go.
    kube-controller-manager v1.36, pkg/controller/volume/{pvcprotection,pvprotection,vacprotection}.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from scheduler.objects.admission import class_of, default_class
from scheduler.objects.created_pods import ephemeral_claim
from scheduler.objects.quantity import parse_quantity
from scheduler.tools.simulator.apimachinery.objects import (
    controller_of,
    is_terminating,
    key_of,
    labels_of,
)
from scheduler.tools.simulator.apimachinery.selectors import label_rule
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.controllers.controller import QueueController
from scheduler.tools.simulator.kinds.persistent_volumes import CLAIM_PROTECTION, VOLUME_PROTECTION
from scheduler.tools.simulator.kinds.pods import has_ended
from scheduler.tools.simulator.kinds.storage import ATTRIBUTES_CLASS_PROTECTION, WAIT_FOR_FIRST_CONSUMER
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.objects.quantity import Quantity
    from scheduler.tools.simulator.apimachinery.objects import Object


def matching_volume(claim: Object, volumes: Iterable[Object]) -> Object | None:
    """Return the volume reserved for a claim, else the smallest that matches; None if there is none."""
    spec, asked = claim["spec"], _size(claim)
    selector = label_rule(spec["selector"]) if "selector" in spec else None
    best: tuple[Quantity, Object] | None = None
    for volume in volumes:
        own, size = volume["spec"], capacity_of(volume)
        is_reserved = "claimRef" in own
        if is_reserved and not is_for(volume, claim):
            continue
        if size < asked or _fixed(own) != _fixed(spec) or is_terminating(volume):
            continue
        if not set(spec["accessModes"]) <= set(own["accessModes"]):
            continue
        if is_reserved:
            return volume
        if volume["status"].get("phase") != "Available":
            continue
        if selector is not None and not selector.matches(labels_of(volume)):
            continue
        if (class_of(volume) or "") == (class_of(claim) or "") and (best is None or size < best[0]):
            best = (size, volume)
    return None if best is None else best[1]


def mismatch(claim: Object, volume: Object) -> str:
    """Return why a claim cannot be bound to the volume it names; "" if it can."""
    spec, own = claim["spec"], volume["spec"]
    problems = (
        (is_terminating(volume), f'the volume is marked for deletion "{key_of(volume)[1]}"'),
        (capacity_of(volume) < _size(claim), "requested PV is too small"),
        ((class_of(volume) or "") != (class_of(claim) or ""), "storageClassName does not match"),
        (
            own.get("volumeAttributesClassName", "") != spec.get("volumeAttributesClassName", ""),
            "volumeAttributesClassName does not match",
        ),
        (own["volumeMode"] != spec["volumeMode"], "incompatible volumeMode"),
        (not set(spec["accessModes"]) <= set(own["accessModes"]), "incompatible accessMode"),
    )
    return next((text for is_wrong, text in problems if is_wrong), "")


def is_for(volume: Object, claim: Object) -> bool:
    """Return whether a volume is reserved for a claim, or bound to it."""
    reference = volume["spec"].get("claimRef", {})
    if (reference.get("namespace", ""), reference.get("name", "")) != key_of(claim):
        return False
    return reference.get("uid", "") in {"", claim["metadata"]["uid"]}


def reference_to(claim: Object) -> Object:
    """Return the `claimRef` of a volume that is bound to a claim, or reserved for it."""
    metadata = {name: claim["metadata"][name] for name in ("namespace", "name", "uid", "resourceVersion")}
    return {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **metadata}


def bound_claim(claim: Object, volume: Object) -> tuple[Object, Object]:
    """Return what to patch in a claim that is bound to a volume, and in its status; empty for nothing."""
    name, annotations, patch, status = key_of(volume)[1], {}, {}, {}
    if claim["spec"].get("volumeName") != name:
        annotations[BOUND_BY_CONTROLLER] = "yes"
    if BIND_COMPLETED not in annotations_of(claim):
        annotations[BIND_COMPLETED] = "yes"
    if annotations:
        patch = {"metadata": {"annotations": annotations}, "spec": {"volumeName": name}}
    if claim["status"].get("phase") != "Bound":
        spec = volume["spec"]
        status = {
            "status": {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}
        }
    return patch, status


def capacity_of(volume: Object) -> Quantity:
    """Return the capacity of a volume."""
    return parse_quantity(volume["spec"]["capacity"]["storage"])


def _size(claim: Object) -> Quantity:
    return parse_quantity(claim["spec"]["resources"]["requests"]["storage"])


def _fixed(spec: Object) -> tuple[str, str]:
    """Return the fields that must be equal for a volume and its claim."""
    return spec["volumeMode"], spec.get("volumeAttributesClassName", "")


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


class VolumeController(QueueController[Store]):
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
        if volume["spec"].get("claimRef", {}).get("uid") != claim["metadata"]["uid"]:
            patch: Object = {"spec": {"claimRef": reference_to(claim)}}
            if not is_for(volume, claim):
                patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
            volume = self.store.change(volume, patch)
        self._write_phase(volume, "Bound")
        patch, status = bound_claim(claim, volume)
        if patch:
            claim = self.store.change(claim, patch)
        if status:
            self.store.change(claim, status, "status")

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
            self.store.events.record(claim, reason, message, component=_COMPONENT, warning=warning)


def _keep(place: dict[str, dict[str, None]], group: str, name: str, *, is_there: bool) -> None:
    """Add or remove a name of a group; a name that changed its group is removed from all."""
    if is_there:
        place.setdefault(group, {})[name] = None
        return
    for names in place.values():
        names.pop(name, None)


class EphemeralVolumes(QueueController[Store]):
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
                self._keep(pod, volume)

    def _keep(self, pod: Object, volume: Object) -> None:
        """Create the claim of a volume, unless it exists."""
        namespace, pod_name = key_of(pod)
        claim = ephemeral_claim(pod, volume)
        name = key_of(claim)[1]
        present = self.store.find(_CLAIMS, name, namespace)
        if present is not None:
            if controller_of(present).get("uid") != pod["metadata"]["uid"]:
                where = f"pod {namespace}/{pod_name} (pod is not owner)"
                self._tell(pod, volume["name"], f"PVC {namespace}/{name} was not created for {where}")
            return
        try:
            self.store.create(_CLAIMS, claim, namespace=namespace)
        except StatusError as error:
            self._tell(pod, volume["name"], f"create PVC {name}: {error.message}")

    def _tell(self, pod: Object, volume: str, problem: str) -> None:
        message = f"ephemeral volume {volume}: {problem}"
        self.store.events.record(pod, "FailedBinding", message, component="ephemeral_volume", warning=True)


ATTACHMENTS: Final = "volumeattachments.storage.k8s.io"


class Attachments(QueueController[Store]):
    """Creates VolumeAttachments for bound claims of pods on nodes, and deletes those that no pod needs."""

    resources = ("pods", "persistentvolumeclaims")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._claims: dict[str, list[str]] = {}  # uid of a pod on a node -> keys of its claims
        self._users: dict[str, dict[str, str]] = {}  # key of a claim -> uid of a pod -> its node
        self._attached: dict[str, dict[str, str]] = {}  # key of a claim -> node -> attachment

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource != "pods":
            self.enqueue("/".join(key_of(obj)))
            return
        uid, node = obj["metadata"]["uid"], obj["spec"].get("nodeName", "")
        claims = [] if type_ == "DELETED" or has_ended(obj) or not node else list(claims_of(obj))
        for key in self._claims.pop(uid, []):
            if key not in claims:
                del self._users[key][uid]
                self.enqueue(key)
        for key in claims:
            if self._users.setdefault(key, {}).get(uid) != node:
                self._users[key][uid] = node
                self.enqueue(key)
        if claims:
            self._claims[uid] = claims

    def reconcile(self, key: str) -> None:
        volume = self._volume_of(key)
        wanted = set() if volume is None else set(self._users.get(key, {}).values())
        attached = self._attached.setdefault(key, {})
        for node in set(attached) - wanted:
            name = attached.pop(node)
            if self.store.find(ATTACHMENTS, name) is not None:
                self.store.delete(ATTACHMENTS, name)
        if volume is not None:
            attached |= {node: self._attach(node, volume) for node in sorted(wanted - set(attached))}
        if not attached:
            del self._attached[key]

    def _volume_of(self, key: str) -> Object | None:
        """Return the volume of a claim, if it has to be attached."""
        namespace, _, name = key.partition("/")
        claim = self.store.find("persistentvolumeclaims", name, namespace)
        volume_name = "" if claim is None else claim["spec"].get("volumeName", "")
        volume = self.store.find("persistentvolumes", volume_name) if volume_name else None
        if volume is None or is_terminating(volume) or "csi" not in volume["spec"]:
            return None
        driver = self.store.find("csidrivers.storage.k8s.io", volume["spec"]["csi"]["driver"])
        return volume if driver is None or driver["spec"]["attachRequired"] else None

    def _attach(self, node: str, volume: Object) -> str:
        csi = volume["spec"]["csi"]
        digest = hashlib.sha256(f"{csi['volumeHandle']}{csi['driver']}{node}".encode()).hexdigest()
        name = f"csi-{digest}"
        if self.store.find(ATTACHMENTS, name) is None:
            source = {"persistentVolumeName": key_of(volume)[1]}
            spec = {"attacher": csi["driver"], "nodeName": node, "source": source}
            self.store.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})
        return name


def claims_of(pod: Object, *, but_ephemeral: bool = False) -> Iterator[str]:
    """Yield the keys of the claims of a pod's volumes, optionally without those of ephemeral volumes."""
    namespace, pod_name = key_of(pod)
    for volume in pod["spec"].get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            yield f"{namespace}/{volume['persistentVolumeClaim'].get('claimName', '')}"
        elif "ephemeral" in volume and not but_ephemeral:
            yield f"{namespace}/{pod_name}-{volume['name']}"


_ATTRIBUTES_CLASSES: Final = "volumeattributesclasses.storage.k8s.io"
_FINALIZERS: Final = {
    "persistentvolumeclaims": CLAIM_PROTECTION,
    "persistentvolumes": VOLUME_PROTECTION,
    _ATTRIBUTES_CLASSES: ATTRIBUTES_CLASS_PROTECTION,
}


class StorageProtection(QueueController[Store]):
    """Removes the finalizer of terminating objects that are no longer used."""

    resources = ("pods", *_FINALIZERS)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._users: dict[str, set[str]] = {}  # key of a claim -> uids of pods
        self._used: dict[str, set[str]] = {}  # uid of a pod -> keys of claims

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource == "pods":
            self._observe_pod(obj, is_there=type_ != "DELETED")
        elif type_ != "DELETED" and is_terminating(obj):
            self.enqueue(f"{resource}:{'/'.join(key_of(obj))}")
        name = obj.get("spec", {}).get("volumeAttributesClassName")
        if name:
            self.enqueue(f"{_ATTRIBUTES_CLASSES}:/{name}")

    def reconcile(self, key: str) -> None:
        resource, _, place = key.partition(":")
        namespace, _, name = place.partition("/")
        obj = self.store.find(resource, name, namespace) if self.store.has_kind(resource) else None
        if obj is None or not is_terminating(obj) or self._is_used(resource, place, obj):
            return
        finalizers = obj["metadata"].get("finalizers", ())
        kept = [one for one in finalizers if one != _FINALIZERS[resource]]
        if len(kept) < len(finalizers):
            self.store.change(obj, {"metadata": {"finalizers": kept or None}})

    def _observe_pod(self, pod: Object, *, is_there: bool) -> None:
        uid = pod["metadata"]["uid"]
        used = (
            set(claims_of(pod, but_ephemeral=has_ended(pod)))
            if is_there and pod["spec"].get("nodeName")
            else set()
        )
        for key in self._used.pop(uid, set()) - used:
            self._users[key].discard(uid)
            self.enqueue(f"persistentvolumeclaims:{key}")
        for key in used:
            self._users.setdefault(key, set()).add(uid)
        if used:
            self._used[uid] = used

    def _is_used(self, resource: str, place: str, obj: Object) -> bool:
        if resource == "persistentvolumeclaims":
            return bool(self._users.get(place))
        if resource == "persistentvolumes":
            return bool(obj["status"].get("phase") == "Bound")
        name = key_of(obj)[1]
        return any(
            one["spec"].get("volumeAttributesClassName") == name
            for kind in ("persistentvolumeclaims", "persistentvolumes")
            for one in self.store.list(kind)
        )
