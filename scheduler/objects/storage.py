"""Claims, volumes and other storage objects, with the fields that scheduling reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.quantity import Quantity, parse_quantity
from scheduler.objects.selectors import LabelSelector, NodeSelector
from scheduler.objects.v1 import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CinderVolumeSource,
    CSIPersistentVolumeSource,
    GCEPersistentDiskVolumeSource,
    PortworxVolumeSource,
    VsphereVirtualDiskVolumeSource,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"

CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""Annotation of claims and volumes with their class, which takes precedence over the spec."""

_ZERO = Quantity(0)


def _check(field: str, amount: str | float | None) -> None:
    if amount is not None:
        try:
            parse_quantity(amount)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error


class StorageAmount(ApiStruct, frozen=True):
    """The storage in a v1.ResourceList; None if the list has none.

    Raises:
        msgspec.ValidationError: it is not a quantity.
    """

    storage: str | int | float | None = None

    def __post_init__(self) -> None:
        _check("storage", self.storage)

    @property
    def quantity(self) -> Quantity:
        """The amount for comparisons; 0 if there is none."""
        return _ZERO if self.storage is None else parse_quantity(self.storage)


class ObjectReference(ApiStruct, frozen=True):
    """v1.ObjectReference, with the fields that identify the object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


# Claims.


class VolumeResourceRequirements(ApiStruct, frozen=True):
    """v1.VolumeResourceRequirements."""

    requests: StorageAmount = StorageAmount()


class PersistentVolumeClaimSpec(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaimSpec, with the fields that scheduling reads."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaimStatus, with the fields that scheduling reads."""

    phase: str = ""


class PersistentVolumeClaim(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def class_name(self) -> str:
        """The requested StorageClass; "" for none.

        Source:
            kube-scheduler v1.36, component-helpers/storage/volume/helpers.go, GetPersistentVolumeClaimClass.
        """
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name or "")


# Volumes.


class VolumeNodeAffinity(ApiStruct, frozen=True):
    """v1.VolumeNodeAffinity: the nodes that can reach the volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiStruct, frozen=True):
    """v1.PersistentVolumeSpec, with the fields that scheduling reads."""

    capacity: StorageAmount = StorageAmount()
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None


class PersistentVolumeStatus(ApiStruct, frozen=True):
    """v1.PersistentVolumeStatus, with the fields that scheduling reads."""

    phase: str = ""


class PersistentVolume(ApiStruct, frozen=True):
    """v1.PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def class_name(self) -> str:
        """The volume's StorageClass; "" for none.

        Source:
            kube-scheduler v1.36, component-helpers/storage/volume/helpers.go, GetPersistentVolumeClass.
        """
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name)


# Classes, drivers, and the limits and capacity of nodes and pools.


class TopologySelectorLabelRequirement(ApiStruct, frozen=True):
    """v1.TopologySelectorLabelRequirement."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiStruct, frozen=True):
    """v1.TopologySelectorTerm: all of its requirements must match."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(ApiStruct, frozen=True):
    """storage.k8s.io/v1 StorageClass, with the fields that scheduling reads."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(ApiStruct, frozen=True):
    """storage.k8s.io/v1 VolumeNodeResources: the maximum number of a driver's volumes on the node; None for no limit."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSINodeDriver."""

    name: str = ""
    allocatable: VolumeNodeResources = VolumeNodeResources()


class CSINodeSpec(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSINodeSpec."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSINode: the drivers on the node of that name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def limits(self) -> Mapping[str, int]:
        """Driver -> maximum number of its volumes; a driver without a count has no limit."""
        drivers = self.spec.drivers
        return {each.name: each.allocatable.count for each in drivers if each.allocatable.count is not None}


class CSIDriverSpec(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSIDriverSpec, with the fields that scheduling reads."""

    storage_capacity: bool | None = None


class CSIDriver(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSIDriver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSIStorageCapacity: the free capacity of a class on the nodes that a selector matches.

    Raises:
        msgspec.ValidationError: an amount is not a quantity.
    """

    metadata: ObjectMeta = ObjectMeta()
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None

    def __post_init__(self) -> None:
        _check("capacity", self.capacity)
        _check("maximumVolumeSize", self.maximum_volume_size)

    @property
    def largest_volume(self) -> Quantity | None:
        """The largest volume that can be created; None if unknown.

        Source:
            kube-scheduler v1.36, plugins/volumebinding/binder.go, volumeLimit.
        """
        amount = self.capacity if self.maximum_volume_size is None else self.maximum_volume_size
        return None if amount is None else parse_quantity(amount)


class VolumeAttachmentSource(ApiStruct, frozen=True):
    """storage.k8s.io/v1 VolumeAttachmentSource; None for an inline volume of a pod."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct, frozen=True):
    """storage.k8s.io/v1 VolumeAttachmentSpec."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(ApiStruct, frozen=True):
    """storage.k8s.io/v1 VolumeAttachment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
