"""The cluster events that a guest registers for.

Source:
    kube-scheduler-wasm-extension, scheduler/plugin/clusterevent.go, and its SDK's api/clusterevent.go.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from scheduler.framework.events import ActionType, ClusterEvent, EventResource, EventWithHint

if TYPE_CHECKING:
    from collections.abc import Iterator

_RESOURCES = {
    0: EventResource.POD,
    1: EventResource.NODE,
    2: EventResource.PERSISTENT_VOLUME,
    3: EventResource.PERSISTENT_VOLUME_CLAIM,
    5: EventResource.RESOURCE_CLAIM,
    6: EventResource.STORAGE_CLASS,
    7: EventResource.CSI_NODE,
    8: EventResource.CSI_DRIVER,
    9: EventResource.CSI_STORAGE_CAPACITY,
    10: EventResource.WILDCARD,
}  # the SDK's number -> kind; 4 is PodSchedulingContext, which Kubernetes no longer has
_ACTIONS = {
    1: ActionType.ADD,
    2: ActionType.DELETE,
    4: ActionType.UPDATE_NODE_ALLOCATABLE,
    8: ActionType.UPDATE_NODE_LABEL,
    16: ActionType.UPDATE_NODE_TAINT,
    32: ActionType.UPDATE_NODE_CONDITION,
}
_ANY_UPDATE = 4 | 8 | 16 | 32
"""The SDK's Update, of any kind."""
_RECORD = struct.Struct("<II")

DEFAULT_EVENTS = tuple(
    EventWithHint(ClusterEvent(resource, ActionType.ALL))
    for resource in (
        EventResource.POD,
        EventResource.NODE,
        EventResource.CSI_NODE,
        EventResource.PERSISTENT_VOLUME,
        EventResource.PERSISTENT_VOLUME_CLAIM,
        EventResource.STORAGE_CLASS,
    )
)
"""The events of a guest that registers none, as upstream."""


def cluster_events(content: bytes) -> tuple[EventWithHint, ...]:
    """Decode the output of `enqueue`: pairs of numbers, kind and action; an incomplete pair is ignored.

    Returns:
        The events; DEFAULT_EVENTS if none of them exists any more. The ABI has no hints.
    """
    whole = len(content) // _RECORD.size * _RECORD.size
    return tuple(_events(content[:whole])) or DEFAULT_EVENTS


def _events(content: bytes) -> Iterator[EventWithHint]:
    for resource, bits in _RECORD.iter_unpack(content):
        action = _action(bits)
        if resource in _RESOURCES and action:
            yield EventWithHint(ClusterEvent(_RESOURCES[resource], action))


def _action(bits: int) -> ActionType:
    """Decode the SDK's bits; all update bits together, or an unknown bit, mean any update, to requeue too often if in doubt."""
    action = ActionType(0)
    for bit, meaning in _ACTIONS.items():
        if bits & bit:
            action |= meaning
    if bits & _ANY_UPDATE == _ANY_UPDATE or bits >> 6:
        action |= ActionType.UPDATE
    return action
