"""Claims, volumes and what the cluster says of storage, as far as scheduling reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.quantity import Quantity, parse_quantity
from scheduler.objects.selectors import LabelSelector, NodeSelector
from scheduler.objects.volume_sources import (
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
"""On claims and volumes: their class, which comes before the one in the spec."""

_ZERO = Quantity(0)


def _check(field: str, amount: str | float | None) -> None:
    if amount is not None:
        try:
            parse_quantity(amount)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error


class StorageAmount(ApiStruct, frozen=True):
    """The storage in a v1.ResourceList; None where the list says nothing of it.

    Raises:
        msgspec.ValidationError: it is no quantity.
    """

    storage: str | int | float | None = None

    def __post_init__(self) -> None:
        _check("storage", self.storage)

    @property
    def quantity(self) -> Quantity:
        """The amount as it is compared; 0 where nothing is said."""
        return _ZERO if self.storage is None else parse_quantity(self.storage)


class ObjectReference(ApiStruct, frozen=True):
    """v1.ObjectReference, as far as it says which object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


# Claims.


class VolumeResourceRequirements(ApiStruct, frozen=True):
    """v1.VolumeResourceRequirements."""

    requests: StorageAmount = StorageAmount()


class PersistentVolumeClaimSpec(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaimSpec, as far as scheduling reads it."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaimStatus, as far as scheduling reads it."""

    phase: str = ""


class PersistentVolumeClaim(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def class_name(self) -> str:
        """The StorageClass it asks for; "" for none.

        Source:
            kube-scheduler v1.36, component-helpers/storage/volume/helpers.go, GetPersistentVolumeClaimClass.
        """
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name or "")


# Volumes.


class VolumeNodeAffinity(ApiStruct, frozen=True):
    """v1.VolumeNodeAffinity: the nodes that can reach the volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiStruct, frozen=True):
    """v1.PersistentVolumeSpec, as far as scheduling reads it."""

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
    """v1.PersistentVolumeStatus, as far as scheduling reads it."""

    phase: str = ""


class PersistentVolume(ApiStruct, frozen=True):
    """v1.PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def class_name(self) -> str:
        """The StorageClass it is of; "" for none.

        Source:
            kube-scheduler v1.36, component-helpers/storage/volume/helpers.go, GetPersistentVolumeClass.
        """
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name)


# Classes, drivers, and what nodes and pools have left.


class TopologySelectorLabelRequirement(ApiStruct, frozen=True):
    """v1.TopologySelectorLabelRequirement."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiStruct, frozen=True):
    """v1.TopologySelectorTerm: all of its requirements."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(ApiStruct, frozen=True):
    """storage.k8s.io/v1 StorageClass, as far as scheduling reads it."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(ApiStruct, frozen=True):
    """storage.k8s.io/v1 VolumeNodeResources: how many volumes a driver can attach to the node; None for no limit."""

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
        """Driver -> how many volumes it can attach; drivers that say nothing have no limit."""
        drivers = self.spec.drivers
        return {each.name: each.allocatable.count for each in drivers if each.allocatable.count is not None}


class CSIDriverSpec(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSIDriverSpec, as far as scheduling reads it."""

    storage_capacity: bool | None = None


class CSIDriver(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSIDriver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(ApiStruct, frozen=True):
    """storage.k8s.io/v1 CSIStorageCapacity: what is left for a class on the nodes that a selector matches.

    Raises:
        msgspec.ValidationError: an amount is no quantity.
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
        """The largest volume that can be made; None where nothing is said.

        Source:
            kube-scheduler v1.36, plugins/volumebinding/binder.go, volumeLimit.
        """
        amount = self.capacity if self.maximum_volume_size is None else self.maximum_volume_size
        return None if amount is None else parse_quantity(amount)


class VolumeAttachmentSource(ApiStruct, frozen=True):
    """storage.k8s.io/v1 VolumeAttachmentSource; None is a volume that a pod wrote inline."""

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
