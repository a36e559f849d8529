"""Queueing hints: which changes in the cluster may help a pod that was rejected because of its volumes.

Source:
    kube-scheduler v1.36, plugins/volumebinding/volume_binding.go, EventsToRegister and the hints it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from plugins.volume_binding.migration import MIGRATED_PLUGINS
from plugins.volumes.storage import claims_waited_for, event_key, event_keys_where
from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    QueueingHint,
    no_pod_key,
)
from scheduler.objects.decode import typed_object
from scheduler.objects.storage import CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod import PodInfo

    Object = Mapping[str, Any]


def _hint(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _class_helps(old: Object | None, new: Object) -> bool:
    """Return whether a class was added, or its allowed topologies changed."""
    if old is None:
        return True
    before, after = typed_object(old, StorageClass), typed_object(new, StorageClass)
    return before.allowed_topologies != after.allowed_topologies


def _after_class_change(_pod: PodInfo, old: Object | None, new: Object) -> QueueingHint:
    return _hint(_class_helps(old, new))


def _after_claim_change(pod: PodInfo, _old: Object | None, new: Object) -> QueueingHint:
    """Requeue a pod when one of its claims changes."""
    return _hint(object_key(new) in pod.claim_keys)


def _csi_node_helps(old: Object | None, new: Object) -> bool:
    """Return whether a node got new drivers, or its drivers migrated other in-tree plugins."""
    if old is None:
        return True
    before, after = typed_object(old, CSINode).metadata, typed_object(new, CSINode).metadata
    return before.annotations.get(MIGRATED_PLUGINS) != after.annotations.get(MIGRATED_PLUGINS)


def _after_csi_node_change(_pod: PodInfo, old: Object | None, new: Object) -> QueueingHint:
    return _hint(_csi_node_helps(old, new))


def _inline_drivers(pod: PodInfo) -> frozenset[str]:
    """Return the drivers of a pod's inline volumes; upstream considers these when a driver changes."""
    return frozenset(volume.csi.driver for volume in pod.pod.spec.volumes if volume.csi is not None)


def _driver_helps(old: Object | None, new: Object) -> bool:
    """Return whether a driver has stopped reporting capacity."""
    before, after = (typed_object(each or {}, CSIDriver).spec.storage_capacity for each in (old, new))
    return bool(before) and not after


def _after_driver_change(pod: PodInfo, old: Object, new: Object) -> QueueingHint:
    return _hint(new["metadata"]["name"] in _inline_drivers(pod) and _driver_helps(old, new))


def _capacity_helps(old: Object | None, new: Object) -> bool:
    """Return whether there is capacity for larger volumes."""
    if old is None:
        return True
    before, after = (typed_object(each, CSIStorageCapacity).largest_volume for each in (old, new))
    return after is not None and (before is None or after.value() > before.value())


def _after_capacity_change(_pod: PodInfo, old: Object | None, new: Object) -> QueueingHint:
    return _hint(_capacity_helps(old, new))


_ADD_OR_UPDATE = ActionType.ADD | ActionType.UPDATE

EVENTS: Final[Sequence[EventWithHint]] = (
    EventWithHint(
        ClusterEvent(EventResource.STORAGE_CLASS, _ADD_OR_UPDATE),
        _after_class_change,
        no_pod_key,
        event_keys_where(_class_helps),
    ),
    EventWithHint(
        ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE),
        _after_claim_change,
        claims_waited_for,
        event_key,
        claims_waited_for,
    ),
    EventWithHint(ClusterEvent(EventResource.PERSISTENT_VOLUME, _ADD_OR_UPDATE)),
    EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)),
    EventWithHint(
        ClusterEvent(EventResource.CSI_NODE, _ADD_OR_UPDATE),
        _after_csi_node_change,
        no_pod_key,
        event_keys_where(_csi_node_helps),
    ),
    EventWithHint(
        ClusterEvent(EventResource.CSI_DRIVER, ActionType.UPDATE),
        _after_driver_change,
        _inline_drivers,
        event_keys_where(_driver_helps),
    ),
    EventWithHint(
        ClusterEvent(EventResource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE),
        _after_capacity_change,
        no_pod_key,
        event_keys_where(_capacity_helps),
    ),
)
