"""Simulates external provisioners and attachers of volumes: topology, and faults on demand.

Source:
    sigs.k8s.io/sig-storage-lib-external-provisioner, and external-provisioner, pkg/controller/topology.go.
    sigs.k8s.io/sig-storage-lib-external-provisioner, controller/controller.go, provisionClaimOperation and
    deleteVolumeOperation.
    github.com/kubernetes-csi/external-attacher, pkg/controller/csi_handler.go.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler.objects.admission import class_of
from scheduler.tools.simulator.apimachinery.objects import is_terminating, key_of, labels_of
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.controllers.controller import QueueController
from scheduler.tools.simulator.controllers.volumes import (
    ATTACHMENTS,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    annotations_of,
    reference_to,
)
from scheduler.tools.simulator.kinds.storage import WAIT_FOR_FIRST_CONSUMER
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object

_ZONE: Final = "topology.kubernetes.io/zone"

Segment = dict[str, str]  # label of nodes -> value


def segment_of_node(node: Object, keys: Sequence[str]) -> Segment:
    """Return the topology segment of a node, by the label keys of a driver."""
    labels = labels_of(node)
    return {key: labels[key] for key in keys if key in labels}


def keys_of_driver(driver: str, csi_node: Object | None, class_: Object) -> Sequence[str]:
    """Return the topology keys of a driver: those of its CSINode, else of the class, else zones."""
    for one in (csi_node or {"spec": {}})["spec"].get("drivers") or ():
        if one["name"] == driver and one.get("topologyKeys"):
            keys: Sequence[str] = one["topologyKeys"]
            return keys
    return [key for segment in allowed_segments(class_)[:1] for key in segment] or [_ZONE]


def allowed_segments(class_: Object) -> list[Segment]:
    """Return the segments that a class allows; empty for all."""
    segments = []
    for term in class_.get("allowedTopologies", ()):
        requirements = term.get("matchLabelExpressions", ())
        keys = [one["key"] for one in requirements]
        combined = itertools.product(*(one["values"] for one in requirements))
        segments += [dict(zip(keys, values, strict=True)) for values in combined]
    return segments


def is_allowed(segment: Segment, class_: Object) -> bool:
    """Return whether a class allows a segment."""
    allowed = allowed_segments(class_)
    return not allowed or any(one.items() <= segment.items() for one in allowed)


def chosen_segment(claim: Object, class_: Object, nodes: Iterable[Object], keys: Sequence[str]) -> Segment:
    """Choose the segment of a volume without a selected node; claims of a StatefulSet are spread."""
    segments = allowed_segments(class_)
    if not segments:
        found = {tuple(segment_of_node(node, keys).items()) for node in nodes}
        segments = [dict(one) for one in sorted(found) if one]
    if not segments:
        return {}
    base, _, ordinal = key_of(claim)[1].rpartition("-")
    name, place = (base, int(ordinal)) if base and ordinal.isdigit() else (key_of(claim)[1], 0)
    return segments[(zlib.crc32(name.encode()) + place) % len(segments)]


def node_affinity(segment: Segment) -> Object:
    """Return the VolumeNodeAffinity of a segment."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in segment.items()]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


@dataclass(eq=False, slots=True)
class ProvisioningFault:
    """Volumes that cannot be provisioned.

    Attributes:
        provisioner: only of this driver; "" for all.
        node: only for this selected node; "" for all, also without a selected node.
        claim: only for this claim, `namespace/name`; "" for all.
        times: remaining number of failures; None for no end.
        message: message of the error.
    """

    provisioner: str = ""
    node: str = ""
    claim: str = ""
    times: int | None = None
    message: str = "rpc error: code = ResourceExhausted desc = out of space"


class ProvisioningFaults:
    """The active faults."""

    def __init__(self) -> None:
        self._faults: list[ProvisioningFault] = []

    def add(self, fault: ProvisioningFault) -> ProvisioningFault:
        """Add a fault, and return it, so that it can be removed."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: ProvisioningFault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def hit(self, provisioner: str, node: str, claim: str) -> str:
        """Return why a volume cannot be provisioned, and count the failure; "" if it can be."""
        for fault in self._faults:
            asked = ((fault.provisioner, provisioner), (fault.node, node), (fault.claim, claim))
            if fault.times == 0 or any(wanted and wanted != found for wanted, found in asked):
                continue
            if fault.times is not None:
                fault.times -= 1
            return fault.message
        return ""


_VOLUMES: Final = "persistentvolumes"
_CLAIMS: Final = "persistentvolumeclaims"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 300.0


@dataclass(slots=True)
class ProvisionerOptions:
    """Timing of provisioners.

    Attributes:
        seconds: time until a volume is created or deleted.
        of_driver: exceptions: name of the driver -> seconds.
    """

    seconds: float = 1.0
    of_driver: dict[str, float] = field(default_factory=dict)


class Provisioner(QueueController[Store]):
    """The external provisioners of all drivers."""

    resources = (_CLAIMS, _VOLUMES)

    def __init__(self, store: Store, options: ProvisionerOptions, faults: ProvisioningFaults) -> None:
        super().__init__(store)
        self.options = options
        self._faults = faults
        self._busy: set[str] = set()  # keys of claims and volumes
        self._failures: dict[str, int] = {}  # key of a claim -> number of failures in a row

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        namespace, name = key_of(obj)
        key = f"{namespace}/{name}"
        if type_ == "DELETED":
            self._failures.pop(key, None)
        elif key not in self._busy and (self._is_asked(obj) if namespace else _is_to_go(obj)):
            self._busy.add(key)
            driver = annotations_of(obj)[STORAGE_PROVISIONER if namespace else PROVISIONED_BY]
            self.later(self.options.of_driver.get(driver, self.options.seconds), self.look_again, key)

    def reconcile(self, key: str) -> None:
        self._busy.discard(key)
        namespace, _, name = key.partition("/")
        if not namespace:
            volume = self.store.find(_VOLUMES, name)
            if volume is not None and _is_to_go(volume):
                self.store.remove(volume)
            return
        claim = self.store.find(_CLAIMS, name, namespace)
        if claim is not None and self._is_asked(claim):
            self._provision(claim)

    def _is_asked(self, claim: Object) -> bool:
        """Return whether a claim waits for a volume to be provisioned now."""
        annotations = annotations_of(claim)
        if claim["spec"].get("volumeName") or is_terminating(claim):
            return False
        if annotations.get(STORAGE_PROVISIONER, _NO_PROVISIONER) == _NO_PROVISIONER:
            return False
        class_ = self._class(claim)
        waits = class_ is not None and class_["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER
        return class_ is not None and (not waits or SELECTED_NODE in annotations)

    def _class(self, claim: Object) -> Object | None:
        return self.store.find("storageclasses.storage.k8s.io", class_of(claim) or "")

    def _provision(self, claim: Object) -> None:
        class_ = self._class(claim)
        if class_ is None:
            return
        driver, key = class_["provisioner"], "/".join(key_of(claim))
        node = annotations_of(claim).get(SELECTED_NODE, "")
        message = f'External provisioner is provisioning volume for claim "{key}"'
        self._tell(claim, driver, "Provisioning", message)
        problem, segment = self._place(claim, class_, node)
        problem = problem or self._faults.hit(driver, node, key)
        if problem:
            self._fail(claim, class_, problem)
            return
        self._failures.pop(key, None)
        volume = provisioned_volume(claim, class_, segment)
        try:
            self.store.create(_VOLUMES, volume)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
        message = f"Successfully provisioned volume {volume['metadata']['name']}"
        self._tell(claim, driver, "ProvisioningSucceeded", message)

    def _place(self, claim: Object, class_: Object, node_name: str) -> tuple[str, Segment]:
        """Return an error, or the topology segment of a new volume."""
        driver = class_["provisioner"]
        if not node_name:
            keys = keys_of_driver(
                driver, next(iter(self.store.list("csinodes.storage.k8s.io")), None), class_
            )
            return "", chosen_segment(claim, class_, self.store.list("nodes"), keys)
        node = self.store.find("nodes", node_name)
        if node is None:
            return f'error generating accessibility requirements: node "{node_name}" not found', {}
        csi_node = self.store.find("csinodes.storage.k8s.io", node_name)
        segment = segment_of_node(node, keys_of_driver(driver, csi_node, class_))
        if not is_allowed(segment, class_):
            place = f'topology {segment} from selected node "{node_name}" is not in requisite'
            return f"error generating accessibility requirements: {place}", {}
        return "", segment

    def _fail(self, claim: Object, class_: Object, problem: str) -> None:
        """Return a claim to the scheduler, which may select another node, or retry later."""
        message = f'failed to provision volume with StorageClass "{class_["metadata"]["name"]}": {problem}'
        self._tell(claim, class_["provisioner"], "ProvisioningFailed", message, warning=True)
        if class_["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER:
            patch = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            self.store.change(claim, patch)
            return
        key = "/".join(key_of(claim))
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._busy.add(key)
        self.later(min(_RETRY_SECONDS * 2**failures, _LONGEST_RETRY_SECONDS), self.look_again, key)

    def _tell(self, claim: Object, driver: str, reason: str, message: str, *, warning: bool = False) -> None:
        self.store.events.record(claim, reason, message, component=driver, warning=warning)


def _is_to_go(volume: Object) -> bool:
    """Return whether a volume was provisioned here and is released."""
    return (
        volume["status"].get("phase") == "Released"
        and volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        and PROVISIONED_BY in annotations_of(volume)
        and not is_terminating(volume)
    )


def provisioned_volume(claim: Object, class_: Object, segment: Segment) -> Object:
    """Return the volume that a driver provisions for a claim, reserved for it."""
    spec, driver = claim["spec"], class_["provisioner"]
    volume_name = f"pvc-{claim['metadata']['uid']}"
    made: Object = {
        "accessModes": spec["accessModes"],
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "claimRef": reference_to(claim),
        "csi": {"driver": driver, "volumeHandle": volume_name},
        "persistentVolumeReclaimPolicy": class_["reclaimPolicy"],
        "storageClassName": class_["metadata"]["name"],
        "volumeMode": spec["volumeMode"],
    }
    for field_name, holder in (("mountOptions", class_), ("volumeAttributesClassName", spec)):
        if field_name in holder:
            made[field_name] = holder[field_name]
    if segment:
        made["nodeAffinity"] = node_affinity(segment)
    return {"metadata": {"name": volume_name, "annotations": {PROVISIONED_BY: driver}}, "spec": made}


class Attacher(QueueController[Store]):
    """The external attachers of all drivers."""

    resources = (ATTACHMENTS,)

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if type_ == "ADDED" and not obj["status"]["attached"]:
            self.enqueue(obj["metadata"]["name"])

    def reconcile(self, key: str) -> None:
        if self.store.find(ATTACHMENTS, key) is not None:
            self.store.patch(ATTACHMENTS, key, {"status": {"attached": True}}, subresource="status")
