"""How long it takes to take a watch event in, told around the handlers so that they need not know.

Source:
    kube-scheduler v1.36, eventhandlers.go, EventHandlingLatency.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from scheduler.framework.changes import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_DELETE,
    UNSCHEDULABLE_POD_UPDATE,
    node_changes,
    pod_changes,
)

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from scheduler.client.store import Handler
    from scheduler.client.wire import ObjectIdentity
    from scheduler.errors import ObjectError
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_Labels = tuple[str, ...]

_NOTHING: _Labels = ()
_ASSIGNED_POD_ADD = (ASSIGNED_POD_ADD.label,)
_ASSIGNED_POD_DELETE = (ASSIGNED_POD_DELETE.label,)
_UNSCHEDULABLE_POD_ADD = (UNSCHEDULABLE_POD_ADD.label,)
_UNSCHEDULABLE_POD_UPDATE = (UNSCHEDULABLE_POD_UPDATE.label,)
_UNSCHEDULABLE_POD_DELETE = (UNSCHEDULABLE_POD_DELETE.label,)
_NODE_ADD = (NODE_ADD.label,)
_NODE_DELETE = (NODE_DELETE.label,)


class EventObserver(Protocol):
    """Is told of events that were taken in."""

    def event_handled(self, event: str, seconds: float) -> None:
        """Note that an event of that label was taken in, the cache and the queue brought up to date."""
        ...


class Labels(Protocol[T_contra]):
    """What events of one kind are called; none is measured under no label."""

    def added(self, obj: T_contra) -> Sequence[str]: ...
    def updated(self, old: T_contra, new: T_contra) -> Sequence[str]: ...
    def deleted(self, obj: T_contra) -> Sequence[str]: ...


class TimedHandler(Generic[T]):
    """A handler that does what another does, and tells how long it took."""

    def __init__(self, handler: Handler[T], labels: Labels[T], observer: EventObserver) -> None:
        self._handler = handler
        self._labels = labels
        self._observer = observer

    def on_add(self, obj: T) -> None:
        """Hand on an addition."""
        began = time.perf_counter()
        self._handler.on_add(obj)
        seconds = time.perf_counter() - began
        self._tell(self._labels.added(obj), seconds)

    def on_update(self, old: T, new: T) -> None:
        """Hand on a change."""
        began = time.perf_counter()
        self._handler.on_update(old, new)
        seconds = time.perf_counter() - began
        self._tell(self._labels.updated(old, new), seconds)

    def on_delete(self, old: T) -> None:
        """Hand on a deletion."""
        began = time.perf_counter()
        self._handler.on_delete(old)
        seconds = time.perf_counter() - began
        self._tell(self._labels.deleted(old), seconds)

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        """Hand on; an event that could not be read has no name."""
        self._handler.on_undecodable(identity, error)

    def _tell(self, labels: Sequence[str], seconds: float) -> None:
        for label in labels:
            self._observer.event_handled(label, seconds)


class PodLabels:
    """Names by whether a pod is on a node; pending pods of other schedulers are not handled and not measured.

    An update that brings a pod to its node is its addition there.
    """

    def __init__(self, profiles: Container[str]) -> None:
        self._profiles = profiles

    def added(self, pod: PodInfo) -> _Labels:
        if pod.node_name:
            return _ASSIGNED_POD_ADD
        return _UNSCHEDULABLE_POD_ADD if self._is_ours(pod) else _NOTHING

    def updated(self, old: PodInfo, new: PodInfo) -> _Labels:
        if new.node_name and not old.node_name:
            return _ASSIGNED_POD_ADD
        if new.node_name:
            return tuple(event.label for event in pod_changes(old, new))
        if not self._is_ours(old):
            return _NOTHING
        # Under the general name in any case, as upstream.
        changes = (event.label for event in pod_changes(old, new))
        return tuple(dict.fromkeys((*_UNSCHEDULABLE_POD_UPDATE, *changes)))

    def deleted(self, pod: PodInfo) -> _Labels:
        if pod.node_name:
            return _ASSIGNED_POD_DELETE
        return _UNSCHEDULABLE_POD_DELETE if self._is_ours(pod) else _NOTHING

    def _is_ours(self, pod: PodInfo) -> bool:
        return pod.scheduler_name in self._profiles


class NodeLabels:
    """A heartbeat, which changes nothing that scheduling reads, is not measured."""

    def added(self, node: NodeObject) -> _Labels:
        return _NODE_ADD

    def updated(self, old: NodeObject, new: NodeObject) -> _Labels:
        return tuple(event.label for event in node_changes(old, new))

    def deleted(self, node: NodeObject) -> _Labels:
        return _NODE_DELETE


class KindLabels:
    """Names of other kinds: the kind and Add, Update or Delete.

    Args:
        kind: as in events, `storage.k8s.io/CSINode`.
    """

    def __init__(self, kind: str) -> None:
        self._added = (f"{kind}Add",)
        self._updated = (f"{kind}Update",)
        self._deleted = (f"{kind}Delete",)

    def added(self, obj: object) -> _Labels:
        return self._added

    def updated(self, old: object, new: object) -> _Labels:
        return self._updated

    def deleted(self, obj: object) -> _Labels:
        return self._deleted
