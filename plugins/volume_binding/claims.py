"""The claims of a pod: bound ones, ones that wait for its node, their errors, and the nodes that reach them.

Source:
    kube-scheduler v1.36, plugins/volumebinding/binder.go, tryTranslatePVToCSI and what it calls.
    kube-scheduler v1.36, plugins/volumebinding: volume_binding.go, podHasPVCs; binder.go, GetPodVolumeClaims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from plugins.volume_binding.reachability import reach_of
from plugins.volumes.csi_migration import in_tree_plugin, translated
from plugins.volumes.storage import (
    CLAIM_NOT_FOUND,
    CLAIM_UNBOUND,
    VOLUME_NOT_FOUND,
    claim_not_found,
    not_made_for,
    was_made_for,
)
from scheduler.framework import Reason, Status
from scheduler.objects.storage import WAIT_FOR_FIRST_CONSUMER, CSINode
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugins.volume_binding.reachability import Reach
    from plugins.volumes.csi_migration import InTreePlugin
    from plugins.volumes.storage import StorageObjects
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.storage import PersistentVolume, PersistentVolumeClaim, PodClaim

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of CSINodes: the in-tree plugins that are migrated to CSI drivers there."""


def _migrated_on(node: CSINode) -> Sequence[str]:
    return node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")


MIGRATED: Final = Index(CSINode, _migrated_on)
"""Name of an in-tree plugin -> the nodes where it is migrated to CSI."""


def migrated_plugin(volume: PersistentVolume) -> InTreePlugin | None:
    """Return the in-tree plugin of a volume if it is migrated to CSI on some nodes."""
    plugin = in_tree_plugin(volume.spec)
    return plugin if plugin is not None and plugin.is_migrated else None


def reach_by_driver(volume: PersistentVolume, plugin: InTreePlugin) -> Reach:
    """Return the nodes that reach a volume, among those where the plugin is migrated to CSI.

    Raises:
        ValueError: the driver cannot have such a volume; the text is upstream's message.
    """
    try:
        return reach_of(translated(volume, plugin))
    except ValueError as error:
        raise ValueError(f"could not translate pv: {error}") from error


def reach_on(volume: PersistentVolume, node: CSINode | None) -> Reach:
    """Return the nodes that reach a volume, as one node sees it.

    Raises:
        ValueError: as `reach_by_driver`.
    """
    plugin = migrated_plugin(volume)
    if plugin is None or node is None or plugin.name not in _migrated_on(node):
        return reach_of(volume)
    return reach_by_driver(volume, plugin)


BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""Annotation of claims that the PV controller has completed."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of claims: the node for which the volume is to be provisioned."""

CLAIM_TERMINATING: Final = "VolumeClaimTerminating"
CLAIM_OF_OTHER_POD: Final = "VolumeClaimOfOtherPod"
UNBOUND_IMMEDIATE: Final = Reason("pod has unbound immediate PersistentVolumeClaims", CLAIM_UNBOUND)

_LOST = "Lost"


class PodClaims(NamedTuple):
    """The claims of one pod, each as often as the pod names it.

    Attributes:
        bound: claims that have their volumes.
        unbound: claims that wait for the pod to have a node.
    """

    bound: Sequence[PersistentVolumeClaim]
    unbound: Sequence[PersistentVolumeClaim]


def find_claims(pod: PodInfo, storage: StorageObjects) -> PodClaims | Status:
    """Return the claims of a pod, or why no node can run it until they change."""
    claims: list[PersistentVolumeClaim] = []
    for named in pod.claims:
        claim = storage.claim(named.key)
        fault = fault_of(pod, named, claim)
        if fault:
            return Status.unschedulable(fault, resolvable=False)
        assert claim is not None, "it is a fault to be missing"
        claims.append(claim)
    bound, unbound, has_immediate = [], [], False
    for claim in claims:
        if is_fully_bound(claim):
            bound.append(claim)
            continue
        storage_class = storage.storage_class(claim.class_name) if claim.class_name else None
        if storage_class is not None and storage_class.volume_binding_mode is None:
            return Status.failed(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        # The PV controller binds a claim that names its volume, whatever the mode.
        if waits and not claim.spec.volume_name:
            unbound.append(claim)
        else:
            has_immediate = True
    if has_immediate:
        return Status.unschedulable(UNBOUND_IMMEDIATE, resolvable=False)
    return PodClaims(bound, unbound)


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim has its volume and the PV controller has completed it."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def selected_node(claim: PersistentVolumeClaim) -> str | None:
    """Return the node where a claim's volume is to be provisioned; None if none is selected."""
    return claim.metadata.annotations.get(SELECTED_NODE)


def key_of(claim: PersistentVolumeClaim) -> str:
    """Return `namespace/name`."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def fault_of(pod: PodInfo, named: PodClaim, claim: PersistentVolumeClaim | None) -> str:
    """Return the error of a claim, as upstream's message; "" if there is none."""
    quoted = f'persistentvolumeclaim "{named.name}"'
    if claim is None and named.is_ephemeral:
        return Reason(f"waiting for ephemeral volume controller to create the {quoted}", CLAIM_NOT_FOUND)
    if claim is None:
        return claim_not_found(named.name)
    if claim.status.phase == _LOST:
        return Reason(
            f'{quoted} bound to non-existent persistentvolume "{claim.spec.volume_name}"', VOLUME_NOT_FOUND
        )
    if claim.metadata.deletion_timestamp:
        return Reason(f"{quoted} is being deleted", CLAIM_TERMINATING)
    if named.is_ephemeral and not was_made_for(claim, pod):
        return Reason(not_made_for(claim, pod), CLAIM_OF_OTHER_POD)
    return ""
