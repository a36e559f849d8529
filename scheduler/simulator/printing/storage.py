"""The columns of volumes and devices.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.objects import is_terminating
from scheduler.simulator.apimachinery.tables import AGE, NAME, Cell, Printer, PrinterColumn, at
from scheduler.simulator.kinds.persistent_volume_claims import class_of, is_default_class

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from scheduler.simulator.apimachinery.objects import Object

_SHORT_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _phase(obj: Object, _: datetime) -> str:
    phase: str = "Terminating" if is_terminating(obj) else obj["status"].get("phase", "")
    return phase


def _modes(holder: Object) -> str:
    present = holder.get("accessModes", ())
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in present)


def _claim(volume: Object, _: datetime) -> str:
    claim = volume["spec"].get("claimRef")
    return "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}"


def _class(obj: Object, _: datetime) -> str:
    return class_of(obj) or ""


def _of_volume(read: Any) -> Cell:
    """Return a cell that is empty until a claim has a volume."""
    return lambda claim, _: read(claim["status"]) if claim["spec"].get("volumeName") else ""


def _default_name(class_: Object, _: datetime) -> str:
    name: str = class_["metadata"]["name"]
    return f"{name} (default)" if is_default_class(class_) else name


def _audiences(driver: Object, _: datetime) -> str:
    requests = driver["spec"].get("tokenRequests")
    return "<unset>" if requests is None else ",".join(one.get("audience", "") for one in requests)


def _state(claim: Object, _: datetime) -> str:
    states = ["deleted"] if is_terminating(claim) else []
    if "allocation" in claim["status"]:
        states += ["allocated", *(["reserved"] if claim["status"].get("reservedFor") else [])]
    elif not states:
        states = ["pending"]
    return ",".join(states)


_ATTRIBUTES: Final = at("spec.volumeAttributesClassName", "<unset>")
_MODE: Final = at("spec.volumeMode", "<unset>")

STORAGE_PRINTERS: Final[Mapping[str, Printer]] = {
    "persistentvolumes": Printer(
        (
            NAME,
            PrinterColumn(
                "Capacity", ("V1PersistentVolumeSpec", "capacity"), cell=at("spec.capacity.storage", "0")
            ),
            PrinterColumn(
                "Access Modes",
                ("V1PersistentVolumeSpec", "accessModes"),
                cell=lambda volume, _: _modes(volume["spec"]),
            ),
            PrinterColumn(
                "Reclaim Policy",
                ("V1PersistentVolumeSpec", "persistentVolumeReclaimPolicy"),
                cell=at("spec.persistentVolumeReclaimPolicy"),
            ),
            PrinterColumn("Status", ("V1PersistentVolumeStatus", "phase"), cell=_phase),
            PrinterColumn(
                "Claim",
                "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim.",
                cell=_claim,
            ),
            PrinterColumn("StorageClass", "StorageClass of the pv", cell=_class),
            PrinterColumn("VolumeAttributesClass", "VolumeAttributesClass of the pv", cell=_ATTRIBUTES),
            PrinterColumn("Reason", ("V1PersistentVolumeStatus", "reason"), cell=at("status.reason")),
            AGE,
            PrinterColumn("VolumeMode", ("V1PersistentVolumeSpec", "volumeMode"), priority=1, cell=_MODE),
        )
    ),
    "persistentvolumeclaims": Printer(
        (
            NAME,
            PrinterColumn("Status", ("V1PersistentVolumeClaimStatus", "phase"), cell=_phase),
            PrinterColumn(
                "Volume", ("V1PersistentVolumeClaimSpec", "volumeName"), cell=at("spec.volumeName")
            ),
            PrinterColumn(
                "Capacity",
                ("V1PersistentVolumeClaimStatus", "capacity"),
                cell=_of_volume(lambda status: status.get("capacity", {}).get("storage", "0")),
            ),
            PrinterColumn(
                "Access Modes", ("V1PersistentVolumeClaimStatus", "accessModes"), cell=_of_volume(_modes)
            ),
            PrinterColumn("StorageClass", "StorageClass of the pvc", cell=_class),
            PrinterColumn("VolumeAttributesClass", "VolumeAttributesClass of the pvc", cell=_ATTRIBUTES),
            AGE,
            PrinterColumn(
                "VolumeMode", ("V1PersistentVolumeClaimSpec", "volumeMode"), priority=1, cell=_MODE
            ),
        )
    ),
    "storageclasses.storage.k8s.io": Printer(
        (
            PrinterColumn("Name", ("V1ObjectMeta", "name"), format="name", cell=_default_name),
            PrinterColumn("Provisioner", ("V1StorageClass", "provisioner"), cell=at("provisioner")),
            PrinterColumn("ReclaimPolicy", ("V1StorageClass", "reclaimPolicy"), cell=at("reclaimPolicy")),
            PrinterColumn(
                "VolumeBindingMode", ("V1StorageClass", "volumeBindingMode"), cell=at("volumeBindingMode")
            ),
            PrinterColumn(
                "AllowVolumeExpansion",
                ("V1StorageClass", "allowVolumeExpansion"),
                cell=at("allowVolumeExpansion", False),
            ),
            AGE,
        )
    ),
    "volumeattributesclasses.storage.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("DriverName", ("V1VolumeAttributesClass", "driverName"), cell=at("driverName")),
            AGE,
        )
    ),
    "csinodes.storage.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Drivers",
                "Drivers indicates the number of CSI drivers registered on the node",
                "integer",
                cell=lambda node, _: len(node["spec"].get("drivers") or ()),
            ),
            AGE,
        )
    ),
    "csidrivers.storage.k8s.io": Printer(
        (
            NAME,
            *(
                PrinterColumn(
                    field[0].upper() + field[1:],
                    ("V1CSIDriverSpec", field),
                    "boolean",
                    cell=at(f"spec.{field}", False),
                )
                for field in ("attachRequired", "podInfoOnMount", "storageCapacity")
            ),
            PrinterColumn("TokenRequests", ("V1CSIDriverSpec", "tokenRequests"), cell=_audiences),
            PrinterColumn(
                "RequiresRepublish",
                ("V1CSIDriverSpec", "requiresRepublish"),
                "boolean",
                cell=at("spec.requiresRepublish", False),
            ),
            PrinterColumn(
                "Modes",
                ("V1CSIDriverSpec", "volumeLifecycleModes"),
                cell=lambda driver, _: ",".join(driver["spec"]["volumeLifecycleModes"]),
            ),
            AGE,
        )
    ),
    "volumeattachments.storage.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Attacher", ("V1VolumeAttachmentSpec", "attacher"), format="name", cell=at("spec.attacher")
            ),
            PrinterColumn(
                "PV",
                ("V1VolumeAttachmentSource", "persistentVolumeName"),
                cell=at("spec.source.persistentVolumeName"),
            ),
            PrinterColumn("Node", ("V1VolumeAttachmentSpec", "nodeName"), cell=at("spec.nodeName")),
            PrinterColumn(
                "Attached",
                ("V1VolumeAttachmentStatus", "attached"),
                "boolean",
                cell=at("status.attached", False),
            ),
            AGE,
        )
    ),
    "resourceclaims.resource.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "State",
                "A summary of the current state (allocated, pending, reserved, etc.).",
                cell=_state,
            ),
            AGE,
        )
    ),
    "resourceclaimtemplates.resource.k8s.io": Printer((NAME, AGE)),
    "deviceclasses.resource.k8s.io": Printer((NAME, AGE)),
    "resourceslices.resource.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("Node", ("V1ResourceSliceSpec", "nodeName"), cell=at("spec.nodeName")),
            PrinterColumn("Driver", ("V1ResourceSliceSpec", "driver"), cell=at("spec.driver")),
            PrinterColumn("Pool", ("V1ResourcePool", "name"), cell=at("spec.pool.name")),
            AGE,
        )
    ),
}
