"""Handles watch events: updates the cache and the queue, and requeues pods that the events may make schedulable.

Source:
    kube-scheduler v1.36, eventhandlers.go.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from scheduler.engine.queue.pod_places import Place
from scheduler.engine.sharding.shards import RETURNED, SHARDING
from scheduler.engine.state.cache import PodState
from scheduler.framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_DELETE,
    UNSCHEDULABLE_POD_UPDATE,
    ActionType,
    ClusterEvent,
    EventResource,
    node_changes,
    pod_changes,
)
from scheduler.framework.status import Status
from scheduler.loop_work import loop_work
from scheduler.objects.decode import outline_pod
from scheduler.objects.node import NodeObject
from scheduler.objects.pod import PodInfo
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.engine.cycle.reporting import Reporter
    from scheduler.engine.cycle.shared import Shared
    from scheduler.errors import ObjectError
    from scheduler.kube.client.wire import ObjectIdentity
    from scheduler.snapshot.object_store import Object

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    Events = Sequence[ClusterEvent]


T = TypeVar("T")

_ADDED = (NODE_ADD,)
_DELETED = (NODE_DELETE,)


def _described(self: object, change: Callable[..., Events], objects: Sequence[object]) -> str:
    about = getattr(objects[-1], "key", None) or getattr(objects[-1], "name", type(objects[-1]).__name__)
    return f"{type(self).__name__}: {change.__name__.strip('_')} {about}"


class EventHandler(ABC, Generic[T]):
    """Handles the watch events of one kind, at once or after a freeze, and reports the durations.

    It is a `client.store.Handler`. The method for each kind of change returns the resulting cluster events; the
    duration is reported with their labels. A change without cluster events is not reported.
    """

    def __init__(self, shared: Shared) -> None:
        self._freeze, self._bus, self._observer = shared.freeze, shared.bus, shared.observer
        self._cache = shared.cache

    def on_add(self, obj: T) -> None:
        self._handle(self._added, obj)

    def on_update(self, old: T, new: T) -> None:
        self._handle(self._updated, old, new)

    def on_delete(self, old: T) -> None:
        self._handle(self._deleted, old)

    def change(self, old: T | None, new: T | None) -> None:
        """Make a change now; swapped arguments undo it. None means no object."""
        if new is not None:
            _ = self._added(new) if old is None else self._updated(old, new)
        elif old is not None:
            self._deleted(old)

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        if self._freeze.is_on:
            self._freeze.do_later(partial(self.on_undecodable, identity, error))
        else:
            self._undecodable(identity, error)

    @loop_work("event", _described)
    def _handle(self, change: Callable[..., Events], *objects: T) -> None:
        if self._freeze.is_on:
            self._freeze.do_later(partial(self._handle, change, *objects))
            return
        began = time.perf_counter()
        events = change(*objects)
        seconds = time.perf_counter() - began
        for event in events:
            self._observer.event_handled(event.label, seconds)

    @abstractmethod
    def _added(self, obj: T, /) -> Events: ...

    @abstractmethod
    def _updated(self, old: T, new: T, /) -> Events: ...

    @abstractmethod
    def _deleted(self, old: T, /) -> Events: ...

    @abstractmethod
    def _undecodable(self, identity: ObjectIdentity, error: ObjectError, /) -> None: ...


class NodeHandler(EventHandler[NodeObject]):
    """Updates nodes in the cache."""

    def _added(self, node: NodeObject) -> Events:
        self._cache.add_node(node)
        self._bus.happened(NODE_ADD, None, node)
        return _ADDED

    def _updated(self, old: NodeObject, new: NodeObject) -> Events:
        if not self._cache.add_node(new):
            return ()
        changes = node_changes(old, new)
        if changes:
            self._cache.pauses.end(new.name)
        for event in changes:
            self._bus.happened(event, old, new)
        return changes

    def _deleted(self, node: NodeObject) -> Events:
        """Remove a node; its pods stay in the cache until they are deleted."""
        self._bus.happened(NODE_DELETE, node, None)
        self._cache.remove_node(node.name)
        return _DELETED

    def _undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        logger.warning("Node cannot be decoded", extra={"node": identity.key, "error": str(error)})
        self._observer.undecodable("Node")


class ObjectHandler(EventHandler["Object"]):
    """Updates the store of a kind that plugins read.

    Args:
        kind: the kind, as in the plugin's `needs`.
    """

    def __init__(self, shared: Shared, kind: str) -> None:
        super().__init__(shared)
        self._kind = kind
        self._store = shared.cache.table.watch_kind(kind)
        resource = EventResource.of(kind)
        self._add, self._update, self._delete = (
            ClusterEvent(resource, action, f"{resource.value}{word}")
            for action, word in (
                (ActionType.ADD, "Add"),
                (ActionType.UPDATE, "Update"),
                (ActionType.DELETE, "Delete"),
            )
        )

    def _added(self, obj: Object) -> Events:
        self._store[object_key(obj)] = obj
        self._bus.happened(self._add, None, obj)
        return (self._add,)

    def _updated(self, old: Object, new: Object) -> Events:
        self._store[object_key(new)] = new
        self._bus.happened(self._update, old, new)
        return (self._update,)

    def _deleted(self, obj: Object) -> Events:
        self._store.pop(object_key(obj), None)
        self._bus.happened(self._delete, obj, None)
        return (self._delete,)

    def _undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        logger.warning(
            "Object cannot be decoded",
            extra={"kind": self._kind, "object": identity.key, "error": str(error)},
        )
        self._observer.undecodable(self._kind)


_ASSIGNED_ADD = (ASSIGNED_POD_ADD,)
_ASSIGNED_DELETE = (ASSIGNED_POD_DELETE,)
_PENDING_ADD = (UNSCHEDULABLE_POD_ADD,)
_PENDING_DELETE = (UNSCHEDULABLE_POD_DELETE,)


class PodHandler(EventHandler[PodInfo]):
    """Updates all pods on nodes in the cache; treats all pending pods as pods of other schedulers.

    Pending pods of other schedulers count only with the nomination in their status. Pods of the same or a lower
    priority respect it, as they respect nominations of this scheduler; kube-scheduler knows only its own nominations.

    Args:
        left_node: receives the last version of a pod that left the node where this scheduler placed it.
    """

    def __init__(self, shared: Shared, left_node: Callable[[PodInfo], None] = lambda _: None) -> None:
        super().__init__(shared)
        self._nominator, self._profiles = shared.nominator, shared.profiles
        self._left_node = left_node

    def _added(self, pod: PodInfo) -> Events:
        if pod.is_terminal:
            return ()
        if pod.node_name:
            self._cache.add_pod(pod)
            self._bus.happened(ASSIGNED_POD_ADD, None, pod)
            queued = self._resize_changed(None, pod) if self._profiles.preempts_for_resizes else ()
            return (*queued, *_ASSIGNED_ADD)
        return self._pending_added(pod)

    def _updated(self, old: PodInfo, new: PodInfo) -> Events:
        if new.is_terminal:
            return self._deleted(old)
        if old.node_name and not new.node_name:  # the API server was restored to a state before the Binding
            self._cache.remove_pod(old.uid)
            self._bus.happened(ASSIGNED_POD_DELETE, old, None)
            return (*_ASSIGNED_DELETE, *self._pending_added(new))
        if old.node_name:
            self._cache.add_pod(new)
            if _is_read_again(old, new):
                return ()
            by_resize = self._profiles.preempts_for_resizes
            changes = pod_changes(old, new, names_scale_up=by_resize)
            queued = self._resize_changed(old, new, changes) if by_resize else ()
            for event in changes:
                self._bus.happened(event, old, new)
            if old.group != new.group and new.group is not None and self._profiles.pod_group(new.group):
                # For pods that wait for other members of the group.
                self._bus.happened(ASSIGNED_POD_ADD, None, new)
            return [*queued, *changes]
        if new.node_name:
            self._cache.add_pod(new)
            self._bus.happened(ASSIGNED_POD_ADD, None, new)
            self._forget_pending(old)
            queued = self._resize_changed(None, new) if self._profiles.preempts_for_resizes else ()
            return (*queued, *_ASSIGNED_ADD)
        return () if _is_read_again(old, new) else self._pending_updated(old, new)

    def _deleted(self, pod: PodInfo) -> Events:
        """Remove a pod that was deleted or has completed."""
        if pod.is_terminal:
            return ()
        if pod.node_name:
            is_ours_there = self._cache.was_assumed(pod.uid)
            self._cache.remove_pod(pod.uid)
            self._bus.happened(ASSIGNED_POD_DELETE, pod, None)
            if is_ours_there:
                self._left_node(pod)
            queued = self._resize_changed(pod, None) if self._profiles.preempts_for_resizes else ()
            return (*queued, *_ASSIGNED_DELETE)
        events = self._pending_deleted(pod)
        # Also for removed profiles: bindings that began with them are completed.
        assumed = self._cache.pod(pod.uid)
        if assumed is not None and self._cache.state_of(pod.uid) is PodState.ASSUMED:
            self._assumed_is_going(pod)
            self._left_node(assumed)
        return events

    def _undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        logger.warning("Pod cannot be decoded", extra={"pod": identity.key, "error": str(error)})
        self._observer.undecodable("Pod")

    # Pending pods, all of other schedulers in this class.

    def _pending_added(self, pod: PodInfo) -> Events:
        self._nominate(pod, pod)
        return ()

    def _pending_updated(self, old: PodInfo, new: PodInfo) -> Events:
        if self._cache.state_of(new.uid) is not PodState.ASSUMED:
            self._nominate(old, new)
        elif _began_to_go(old, new):
            self._assumed_is_going(new)
        return ()

    def _pending_deleted(self, pod: PodInfo) -> Events:
        nominated = self._nominator.node_of(pod.uid)
        self._nominator.delete(pod.uid)
        if nominated:
            self._bus.nomination_ended(pod)
        return ()

    def _forget_pending(self, pod: PodInfo) -> None:
        """Drop a pending pod that was bound."""
        self._nominator.delete(pod.uid)

    def _nominate(self, old: PodInfo, new: PodInfo) -> None:
        """Update the nomination of a pending pod of another scheduler from its status."""
        nominator = self._nominator
        if old.uid != new.uid:  # deleted and recreated with the same name
            self._pending_deleted(old)
        before = nominator.node_of(new.uid)
        nominator.add(new, "" if new.is_terminating or new.pod.spec.scheduling_gates else None)
        if before and nominator.node_of(new.uid) != before:
            self._bus.nomination_ended(old)

    # Pods on nodes whose resize is deferred; those of other schedulers have their schedulers.

    def _resize_changed(self, old: PodInfo | None, new: PodInfo | None, changes: Events = ()) -> Events:
        """Keep a pod on a node in the queue as long as its resize is deferred; None means no pod."""
        return ()

    # Pods that are being bound.

    def _assumed_is_going(self, pod: PodInfo) -> None:
        """Free the capacity of a pod that is being deleted during its binding, which will fail."""
        placed = self._cache.pod(pod.uid)
        self._let_go(pod.uid)
        self._bus.happened(ASSIGNED_POD_DELETE, placed, None)

    def _let_go(self, uid: str) -> None:
        self._cache.forget(uid)


class QueueingPodHandler(PodHandler):
    """Adds pending pods of this scheduler's profiles to the queue.

    Args:
        reporter: reports pods that cannot be decoded.
        left_node: see `PodHandler`.
    """

    def __init__(
        self, shared: Shared, reporter: Reporter, left_node: Callable[[PodInfo], None] = lambda _: None
    ) -> None:
        super().__init__(shared, left_node)
        self._shared = shared
        self._queue, self._waiting_pods = shared.queue, shared.waiting_pods
        self._reporter = reporter

    def _pending_added(self, pod: PodInfo) -> Events:
        if not self._shared.is_ours(pod):
            return super()._pending_added(pod)
        self._queue.add(pod)
        if self._profiles.group_of(pod) is not None:
            self._bus.happened(UNSCHEDULABLE_POD_ADD, None, pod)  # other members of its group may wait for it
        self._bus.wake()
        return _PENDING_ADD

    def _pending_updated(self, old: PodInfo, new: PodInfo) -> Events:
        shards, placed = self._shared.profiles.shards, self._cache.pod(new.uid)
        if shards is not None and placed is not None and shards.is_returned(new, placed.node_name):
            self._waiting_pods.reject(new.uid, "", RETURNED)
        if not self._shared.is_ours(new):
            if self._queue.get(old.uid) is not None:
                self._leave_queue(old)
            return super()._pending_updated(old, new)
        changes = pod_changes(old, new)
        if self._cache.state_of(new.uid) is PodState.ASSUMED:
            if self._queue.place_of(new.uid) is Place.IN_FLIGHT:
                self._queue.update(old, new, changes)  # it may return to the queue
            if _began_to_go(old, new):
                self._assumed_is_going(new)
        else:
            nominated = old.pod.status.nominated_node_name
            self._queue.update(old, new, changes)
            if old.group != new.group and self._profiles.group_of(new) is not None:
                self._bus.happened(UNSCHEDULABLE_POD_ADD, None, new)  # for the other members of its new group
            self._bus.wake()
            if nominated and nominated != new.pod.status.nominated_node_name:
                self._bus.nomination_ended(old)
        # Always with the general event, as in kube-scheduler.
        return tuple(dict.fromkeys((UNSCHEDULABLE_POD_UPDATE, *changes)))

    def _pending_deleted(self, pod: PodInfo) -> Events:
        if self._queue.get(pod.uid) is None and not self._shared.is_ours(pod):
            return super()._pending_deleted(pod)
        self._leave_queue(pod)
        return _PENDING_DELETE

    def _forget_pending(self, pod: PodInfo) -> None:
        self._queue.delete(pod)
        self._waiting_pods.allow(pod.uid, SHARDING)  # another replica bound it

    def _resize_changed(self, old: PodInfo | None, new: PodInfo | None, changes: Events = ()) -> Events:
        """See `PodHandler`; the queue gets the pod in the version that the cache has.

        Source:
            kube-scheduler v1.37 (fde22c3f), eventhandlers.go, addPod, updatePod, deletePod.
        """
        pod = new or old
        assert pod is not None, "nothing changed"
        waits = self._queue.newest(pod.uid) is not None
        if new is None or not (self._profiles.tries_resize_of(new) and self._shared.is_ours(new)):
            if waits:
                self._queue.delete(pod, "its resize is not deferred any more")
            return _PENDING_DELETE if waits else ()
        if waits and old is not None:
            own = [ClusterEvent(EventResource.UNSCHEDULABLE_POD, event.action) for event in changes]
            self._queue.update(old, new, own)
        else:
            self._queue.add(new)
        self._bus.wake()
        return () if waits else _PENDING_ADD

    def _let_go(self, uid: str) -> None:
        # Nothing is reserved for a pod that is passed on, and its task may wait for the answer to the nomination.
        if self._waiting_pods.seconds_left(uid).keys() <= {SHARDING}:
            super()._let_go(uid)
        self._waiting_pods.reject(uid, "", "pod is being deleted")

    def _undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        """Handle a pod that cannot be decoded.

        Its earlier version is outdated, so the pod leaves the queue and the error is reported. It is tried again after a
        version that can be decoded.
        """
        super()._undecodable(identity, error)
        self._reporter.outdated(identity.key)
        pod = None if error.found is None else outline_pod(error.found)
        if pod is None or not self._shared.is_ours(pod):
            return
        if self._cache.state_of(pod.uid) is PodState.ASSUMED:
            return  # it is being bound, so a failure would soon be wrong
        earlier = self._queue.get(pod.uid)
        if earlier is not None:
            self._leave_queue(earlier.pod)
        # Nothing is written to a gated pod, even if it is invalid.
        if not (pod.node_name or pod.is_terminal or pod.pod.spec.scheduling_gates or _says(pod, str(error))):
            self._reporter.failed(pod.scheduler_name, pod, Status.failed(str(error), error))

    def _leave_queue(self, pod: PodInfo) -> None:
        nominated = self._nominator.node_of(pod.uid)
        if self._queue.place_of(pod.uid) is Place.GATED:  # the queue records no nomination of gated pods
            nominated = nominated or pod.pod.status.nominated_node_name
        self._queue.delete(pod)
        if nominated:
            self._bus.nomination_ended(pod.placed_on(nominated))


def _is_read_again(old: PodInfo, new: PodInfo) -> bool:
    """Return whether the version is the same; only the decoded parts may differ."""
    return bool(old.resource_version) and old.resource_version == new.resource_version


def _began_to_go(old: PodInfo, new: PodInfo) -> bool:
    return new.is_terminating and not old.is_terminating


def _says(pod: PodInfo, message: str) -> bool:
    """Return whether the pod's condition already has this message; another write would cause a new version each time."""
    return any(
        condition.type == "PodScheduled" and condition.message == message
        for condition in pod.pod.status.conditions
    )
