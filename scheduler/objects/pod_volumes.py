"""What of a pod's volumes a node has to attach: claims, and disks that are written in the pod itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.objects.v1 import Pod, Volume


class PodClaim(NamedTuple):
    """A PersistentVolumeClaim that a pod uses, as its volume names it.

    Attributes:
        key: `namespace/name` of the claim.
        name: its name alone; "" where the volume names none.
        is_ephemeral: whether it is made for the pod, which then has to own it.
        volume: the volume's own name.
    """

    key: str
    name: str
    is_ephemeral: bool
    volume: str


def storage_volumes(pod: Pod) -> tuple[Volume, ...]:
    """Return the volumes that rules of scheduling know, in their order: most are mere files of the kubelet's."""
    return tuple(volume for volume in pod.spec.volumes if _is_storage(volume))


def pod_claims(pod: Pod) -> tuple[PodClaim, ...]:
    """Return the claims of a pod in the order of its volumes; a claim of two volumes is there twice.

    Source:
        kube-scheduler v1.36, component-helpers/storage/ephemeral/ephemeral.go, VolumeClaimName.
    """
    return tuple(_claims(pod))


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
