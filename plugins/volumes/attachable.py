"""The volumes that a pod's node has to attach, by the names of their CSI drivers.

Source:
    kube-scheduler v1.36, plugins/nodevolumelimits/csi.go, filterAttachableVolumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.volumes.csi_migration import (
    in_tree_plugin,
    in_tree_plugin_named,
    inline_handle,
    volume_handle,
)
from plugins.volumes.storage import CLAIM_NOT_FOUND, claim_not_found, not_made_for, was_made_for
from scheduler.framework import Code, Outcome, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugins.volumes.storage import StorageObjects
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.storage import PersistentVolume, PersistentVolumeClaim, PodClaim
    from scheduler.objects.v1 import Volume

Volumes = dict[str, str]
"""A volume's unique name -> its driver."""

_NOT_YET = "\0"  # not part of any handle: a volume that is not provisioned yet is distinct from all others


class UncountableError(Exception):
    """The volumes of a pod cannot be counted.

    Attributes:
        outcome: the result for the node.
    """

    def __init__(self, code: Code, reason: str) -> None:
        self.outcome = Outcome(code, (reason,))
        super().__init__(reason)


def attachable_volumes(pod: PodInfo, storage: StorageObjects, *, has_csi_node: bool, is_new: bool) -> Volumes:
    """Return the volumes of a pod that count against limits.

    Args:
        pod: the pod.
        storage: the cluster's storage objects.
        has_csi_node: whether the node has a CSINode; without one, volumes of in-tree plugins do not count.
        is_new: whether the pod is to be placed: then all of its claims have to exist.

    Raises:
        UncountableError: a claim is missing or belongs to another pod, or an inline volume is invalid.
    """
    found = (
        attachable(pod, *each, storage, has_csi_node=has_csi_node, is_new=is_new)
        for each in claims_by_volume(pod)
    )
    return dict(each for each in found if each is not None)


def claims_by_volume(pod: PodInfo) -> Iterator[tuple[Volume, PodClaim | None]]:
    """Yield the volumes of a pod that scheduling considers, with their claims."""
    claims = iter(pod.claims)
    for volume in pod.storage_volumes:
        has_claim = volume.persistent_volume_claim is not None or volume.ephemeral is not None
        yield volume, next(claims) if has_claim else None


def attachable(
    pod: PodInfo,
    volume: Volume,
    used: PodClaim | None,
    storage: StorageObjects,
    *,
    has_csi_node: bool,
    is_new: bool,
) -> tuple[str, str] | None:
    """Return unique name and driver of one volume of a pod; None if it does not count. See `attachable_volumes`."""
    if used is None:
        return _inline(volume, has_csi_node=has_csi_node)
    claim = _claim(pod, used, storage, is_new=is_new)
    return None if claim is None else _of_claim(claim, storage, has_csi_node=has_csi_node)


def unique_name(driver: str, handle: str) -> str:
    """Return the unique name of a volume."""
    return f"{driver}/{handle}"


def _inline(volume: Volume, *, has_csi_node: bool) -> tuple[str, str] | None:
    plugin = in_tree_plugin(volume)
    if plugin is None or not (plugin.is_migrated and has_csi_node):
        return None
    try:
        handle = inline_handle(volume)
    except ValueError as error:
        problem = f"converting volume({volume.name}) from inline to csi: {error}"
        raise UncountableError(Code.ERROR, problem) from error
    return unique_name(plugin.driver, handle), plugin.driver


def _claim(
    pod: PodInfo, used: PodClaim, storage: StorageObjects, *, is_new: bool
) -> PersistentVolumeClaim | None:
    """Return a claim of a pod; None if a pod on a node has lost it."""
    if not used.name:
        raise UncountableError(Code.ERROR, "PersistentVolumeClaim had no name")
    claim = storage.claim(used.key)
    if claim is None:
        if is_new:
            problem = Reason(f"looking up PVC {used.key}: {claim_not_found(used.name)}", CLAIM_NOT_FOUND)
            raise UncountableError(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, problem)
        return None
    if used.is_ephemeral and not was_made_for(claim, pod):
        raise UncountableError(Code.ERROR, not_made_for(claim, pod))
    return claim


def _of_claim(
    claim: PersistentVolumeClaim, storage: StorageObjects, *, has_csi_node: bool
) -> tuple[str, str] | None:
    """Return the volume of a claim, or the one to be provisioned for it; None if no driver attaches it."""
    volume = storage.bound_volume(claim)
    if volume is not None:
        driver, handle = _of_volume(volume, has_csi_node=has_csi_node)
    else:
        driver = _provisioner(claim, storage, has_csi_node=has_csi_node)
        handle = f"{_NOT_YET}{claim.metadata.namespace}/{claim.metadata.name}"
    return (unique_name(driver, handle), driver) if driver and handle else None


def _of_volume(volume: PersistentVolume, *, has_csi_node: bool) -> tuple[str, str]:
    """Return driver and handle of a volume; "" if it has none.

    Source:
        kube-scheduler v1.36, plugins/nodevolumelimits/csi.go, getCSIDriverInfo.
    """
    csi = volume.spec.csi
    if csi is not None:
        return csi.driver, csi.volume_handle
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not (plugin.is_migrated and has_csi_node):
        return "", ""
    try:
        return plugin.driver, volume_handle(volume)
    except ValueError:  # upstream logs it, and does not count the volume
        return "", ""


def _provisioner(claim: PersistentVolumeClaim, storage: StorageObjects, *, has_csi_node: bool) -> str:
    """Return the driver that will provision the volume of a claim; "" for none.

    Source:
        kube-scheduler v1.36, plugins/nodevolumelimits/csi.go, getCSIDriverInfoFromSC.
    """
    storage_class = storage.storage_class(claim.class_name) if claim.class_name else None
    if storage_class is None:
        return ""
    plugin = in_tree_plugin_named(storage_class.provisioner)
    if plugin is None:
        return storage_class.provisioner
    return plugin.driver if plugin.is_migrated and has_csi_node else ""
