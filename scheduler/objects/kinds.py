"""The types of the objects that plugins read, except pods and nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.dynamic_resources import DeviceClass, ResourceClaim, ResourceSlice
from scheduler.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

STRUCTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "v1/persistentvolumeclaims": PersistentVolumeClaim,
    "v1/persistentvolumes": PersistentVolume,
    "storage.k8s.io/v1/storageclasses": StorageClass,
    "storage.k8s.io/v1/csinodes": CSINode,
    "storage.k8s.io/v1/csidrivers": CSIDriver,
    "storage.k8s.io/v1/csistoragecapacities": CSIStorageCapacity,
    "storage.k8s.io/v1/volumeattachments": VolumeAttachment,
    "resource.k8s.io/v1/resourceclaims": ResourceClaim,
    "resource.k8s.io/v1/resourceslices": ResourceSlice,
    "resource.k8s.io/v1/deviceclasses": DeviceClass,
}
"""Kind, as in a plugin's `needs` -> its type; objects that do not match the type are ignored."""
