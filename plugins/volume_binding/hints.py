"""Which changes in the cluster may help a pod whose volumes kept it waiting.

Source:
    kube-scheduler v1.36, plugins/volumebinding/volume_binding.go, EventsToRegister and the hints it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from plugins.volume_binding.migration import MIGRATED_PLUGINS
from plugins.volumes.storage import claims_awaited, key_brought
from scheduler.framework import ActionType, ClusterEvent, EventResource, EventWithHint, QueueingHint
from scheduler.objects.decode import typed_object
from scheduler.objects.storage import CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod import PodInfo

    Object = Mapping[str, Any]


def _hint(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _after_class_change(_pod: PodInfo, old: Object | None, new: Object) -> QueueingHint:
    """A class came, or its volumes are made elsewhere."""
    if old is None:
        return QueueingHint.QUEUE
    before, after = typed_object(old, StorageClass), typed_object(new, StorageClass)
    return _hint(before.allowed_topologies != after.allowed_topologies)


def _after_claim_change(pod: PodInfo, _old: Object | None, new: Object) -> QueueingHint:
    """Something happened to a claim of the pod."""
    key = object_key(new)
    return _hint(any(claim.key == key for claim in pod.claims))


def _after_csi_node_change(_pod: PodInfo, old: Object | None, new: Object) -> QueueingHint:
    """Drivers came to a node, or do the work of other in-tree plugins there."""
    if old is None:
        return QueueingHint.QUEUE
    before, after = typed_object(old, CSINode).metadata, typed_object(new, CSINode).metadata
    return _hint(before.annotations.get(MIGRATED_PLUGINS) != after.annotations.get(MIGRATED_PLUGINS))


def _after_driver_change(pod: PodInfo, old: Object, new: Object) -> QueueingHint:
    """A driver tells no more what room it has; upstream thinks of volumes without claims here."""
    before, after = typed_object(old, CSIDriver), typed_object(new, CSIDriver)
    is_used = any(
        volume.csi is not None and volume.csi.driver == after.metadata.name for volume in pod.pod.spec.volumes
    )
    return _hint(is_used and bool(before.spec.storage_capacity) and not after.spec.storage_capacity)


def _after_capacity_change(_pod: PodInfo, old: Object | None, new: Object) -> QueueingHint:
    """There is room for larger volumes."""
    if old is None:
        return QueueingHint.QUEUE
    before, after = (typed_object(each, CSIStorageCapacity).largest_volume for each in (old, new))
    return _hint(after is not None and (before is None or after.value() > before.value()))


_ADD_OR_UPDATE = ActionType.ADD | ActionType.UPDATE

EVENTS: Final[Sequence[EventWithHint]] = (
    EventWithHint(ClusterEvent(EventResource.STORAGE_CLASS, _ADD_OR_UPDATE), _after_class_change),
    EventWithHint(
        ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE),
        _after_claim_change,
        brings=key_brought,
        awaits=claims_awaited,
    ),
    EventWithHint(ClusterEvent(EventResource.PERSISTENT_VOLUME, _ADD_OR_UPDATE)),
    EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)),
    EventWithHint(ClusterEvent(EventResource.CSI_NODE, _ADD_OR_UPDATE), _after_csi_node_change),
    EventWithHint(ClusterEvent(EventResource.CSI_DRIVER, ActionType.UPDATE), _after_driver_change),
    EventWithHint(ClusterEvent(EventResource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE), _after_capacity_change),
)
