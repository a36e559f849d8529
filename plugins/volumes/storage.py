"""The claims, volumes and drivers of the cluster as typed values, and the messages for missing ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.framework import EventWithHint, QueueingHint, Reason, no_pod_key
from scheduler.objects.storage import (
    CLAIM,
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageUse,
)
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from scheduler.framework import ClusterEvent
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects

CLAIMS: Final = "v1/persistentvolumeclaims"
VOLUMES: Final = "v1/persistentvolumes"
STORAGE_CLASSES: Final = "storage.k8s.io/v1/storageclasses"
CSI_NODES: Final = "storage.k8s.io/v1/csinodes"
CSI_DRIVERS: Final = "storage.k8s.io/v1/csidrivers"
CSI_STORAGE_CAPACITIES: Final = "storage.k8s.io/v1/csistoragecapacities"
VOLUME_ATTACHMENTS: Final = "storage.k8s.io/v1/volumeattachments"


class HasObjects(Protocol):
    """A snapshot, or the capability `ClusterObjects`."""

    def objects(self, kind: str) -> Objects: ...


class StorageObjects:
    """The storage objects of the cluster in their current state; None for a missing one.

    A plugin lists the kinds that it reads in its `needs`.
    """

    __slots__ = ("_source",)

    def __init__(self, source: HasObjects) -> None:
        self._source = source

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Return a claim by `namespace/name`."""
        return self._source.objects(CLAIMS).typed(PersistentVolumeClaim, key)

    def volume(self, name: str) -> PersistentVolume | None:
        return self._source.objects(VOLUMES).typed(PersistentVolume, name)

    def bound_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the existing volume that a claim names; None otherwise."""
        return self.volume(claim.spec.volume_name) if claim.spec.volume_name else None

    def read(self, claims: Collection[str]) -> Generator[None, None, None]:
        """Decode some claims and their bound volumes in advance, in steps."""
        yield from self._source.objects(CLAIMS).convert(PersistentVolumeClaim, claims)
        found = map(self.claim, claims)
        bound = (claim.spec.volume_name for claim in found if claim is not None)
        yield from self._source.objects(VOLUMES).convert(PersistentVolume, filter(None, bound))

    def storage_class(self, name: str) -> StorageClass | None:
        return self._source.objects(STORAGE_CLASSES).typed(StorageClass, name)

    def csi_node(self, node_name: str) -> CSINode | None:
        return self._source.objects(CSI_NODES).typed(CSINode, node_name)

    def csi_driver(self, name: str) -> CSIDriver | None:
        return self._source.objects(CSI_DRIVERS).typed(CSIDriver, name)


def named_claims(pod: PodInfo) -> list[str]:
    """Return the names of the claims that volumes name themselves, without generated claims; each once."""
    return list(dict.fromkeys(claim.name for claim in pod.claims if not claim.is_ephemeral))


def claims_waited_for(pod: PodInfo) -> frozenset[str]:
    """Return the keys of a pod's claims, one of which must change to help it."""
    return pod.claim_keys


def is_named_by(pod: PodInfo, claim: Mapping[str, Any]) -> bool:
    """Return whether a volume of a pod names a claim itself."""
    return StorageUse(CLAIM, object_key(claim)) in pod.storage_uses


def uses_read(pod: PodInfo) -> frozenset[StorageUse]:
    """Return the claims and disks of a pod that hints read: an `EventWithHint.pod_key`."""
    return pod.storage_uses


def event_where(
    event: ClusterEvent, helps: Callable[[Mapping[str, Any] | None, Mapping[str, Any]], bool]
) -> EventWithHint:
    """Return the registration of an event that helps every pod or none; `helps` gets the objects before and after."""

    def hint(_pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        return QueueingHint.QUEUE if helps(old, new) else QueueingHint.SKIP

    return EventWithHint(event, hint, no_pod_key, lambda old, new: None if helps(old, new) else ())


def event_key(_old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> tuple[str]:
    """Return the key of an added or changed object."""
    return (object_key(new),)


CLAIM_NOT_FOUND: Final = "VolumeClaimNotFound"
CLAIM_UNBOUND: Final = "VolumeClaimUnbound"
VOLUME_NOT_FOUND: Final = "VolumeNotFound"


def claim_not_found(name: str) -> Reason:
    """Return client-go's message; `name` without its namespace."""
    return Reason(f'persistentvolumeclaim "{name}" not found', CLAIM_NOT_FOUND)


def volume_not_found(name: str) -> Reason:
    """Return client-go's message."""
    return Reason(f'persistentvolume "{name}" not found', VOLUME_NOT_FOUND)


def class_not_found(name: str) -> str:
    """Return client-go's message."""
    return f'storageclass.storage.k8s.io "{name}" not found'


def was_made_for(claim: PersistentVolumeClaim, pod: PodInfo) -> bool:
    """Return whether a pod controls a claim, as it does for its ephemeral volumes; `not_made_for` is the message if not.

    Source:
        kube-scheduler v1.36, component-helpers/storage/ephemeral/ephemeral.go, VolumeIsForPod.
    """
    owner = next((each for each in claim.metadata.owner_references if each.controller), None)
    return claim.metadata.namespace == pod.namespace and owner is not None and owner.uid == pod.uid


def not_made_for(claim: PersistentVolumeClaim, pod: PodInfo) -> str:
    """Return upstream's message for an ephemeral volume whose claim's name is used by another claim."""
    name = f"{claim.metadata.namespace}/{claim.metadata.name}"
    return f"PVC {name} was not created for pod {pod.key} (pod is not owner)"
