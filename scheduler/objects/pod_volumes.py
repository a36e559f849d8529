"""The volumes of a pod that its node must attach: claims, and inline disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from scheduler.objects.v1 import Pod, Volume


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
    """Return the keys of a disk, by which pods with the same disk are found: for a Ceph image, one for each monitor.

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
        images = ((monitor, rbd.pool, rbd.image) for monitor in rbd.monitors)
        return tuple(StorageUse("RBD", image, rbd.read_only) for image in images)
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
