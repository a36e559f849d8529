"""Claims, volumes and other storage objects, with the fields that scheduling reads, and the volumes of a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

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
    from collections.abc import Hashable, Iterator, Mapping

    from scheduler.objects.v1 import Pod, Volume

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
    prevent_pod_scheduling_if_missing: bool | None = None


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


class PodClaim(NamedTuple):
    """A PersistentVolumeClaim that a pod uses.

    Attributes:
        key: `namespace/name` of the claim.
        name: name of the claim; "" if the volume has none.
        is_ephemeral: whether the claim is created for the pod, which must own it.
        volume: name of the volume.
    """

    key: str
    name: str
    is_ephemeral: bool
    volume: str


CLAIM: Final = "claim"
EPHEMERAL_CLAIM: Final = "ephemeral claim"
CEPH_IMAGE: Final = "RBD"


class StorageUse(NamedTuple):
    """Storage that a pod attaches; key of the index of pods by storage.

    Attributes:
        kind: CLAIM, EPHEMERAL_CLAIM, or the kind of an inline disk.
        key: `namespace/name` of a claim, or the identity of a disk.
        read_only: whether a disk is attached read-only.
    """

    kind: str
    key: Hashable
    read_only: bool = False


def storage_volumes(pod: Pod) -> tuple[Volume, ...]:
    """Return the volumes with scheduling rules, in their order: most others are only files of the kubelet."""
    return tuple(volume for volume in pod.spec.volumes if _is_storage(volume))


def pod_claims(pod: Pod) -> tuple[PodClaim, ...]:
    """Return the claims of a pod in the order of its volumes; a claim of two volumes occurs twice.

    Source:
        kube-scheduler v1.36, component-helpers/storage/ephemeral/ephemeral.go, VolumeClaimName.
    """
    return tuple(_claims(pod))


def storage_uses(pod: Pod) -> frozenset[StorageUse]:
    """Return the claims of a pod, and its disks that not all pods can share on a node."""
    uses = {StorageUse(EPHEMERAL_CLAIM if claim.is_ephemeral else CLAIM, claim.key) for claim in _claims(pod)}
    return frozenset(uses.union(*(disk_uses(volume) for volume in pod.spec.volumes)))


def disk_uses(volume: Volume) -> tuple[StorageUse, ...]:
    """Return the key of a disk, by which pods with the same disk are found; none for files and claims.

    A Ceph image is the same disk only for pods that also have one of its monitors in common. A volume may have 200,000
    monitors, so they are no part of the key.

    Source:
        kube-scheduler v1.36, plugins/volumerestrictions/volume_restrictions.go, isVolumeConflict.
    """
    if (gce := volume.gce_persistent_disk) is not None:
        return (StorageUse("GCEPersistentDisk", gce.pd_name, gce.read_only),)
    if (aws := volume.aws_elastic_block_store) is not None:
        return (StorageUse("AWSElasticBlockStore", aws.volume_id),)
    if (iscsi := volume.iscsi) is not None:
        return (StorageUse("ISCSI", iscsi.iqn, iscsi.read_only),)
    if (rbd := volume.rbd) is not None:
        return (StorageUse(CEPH_IMAGE, (rbd.pool, rbd.image), rbd.read_only),)
    return ()


def _claims(pod: Pod) -> Iterator[PodClaim]:
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
        else:
            continue
        is_ephemeral = volume.persistent_volume_claim is None
        yield PodClaim(f"{namespace}/{name}", name, is_ephemeral, volume.name)


def _is_storage(volume: Volume) -> bool:
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.iscsi is not None
        or volume.rbd is not None
        or volume.azure_disk is not None
        or volume.azure_file is not None
        or volume.cinder is not None
        or volume.portworx_volume is not None
        or volume.vsphere_volume is not None
    )
