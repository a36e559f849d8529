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

from scheduler.framework.events import (
    NODE_ADD,
    NODE_DELETE,
    ActionType,
    ClusterEvent,
    EventResource,
    node_changes,
)
from scheduler.loop_work import loop_work
from scheduler.objects.node import NodeObject
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.engine.cycle.shared import Shared
    from scheduler.errors import ObjectError
    from scheduler.kube.client.wire import ObjectIdentity
    from scheduler.snapshot.object_store import Object

    Events = Sequence[ClusterEvent]

logger = logging.getLogger(__name__)

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
        self._take_in(self._added, obj)

    def on_update(self, old: T, new: T) -> None:
        self._take_in(self._updated, old, new)

    def on_delete(self, old: T) -> None:
        self._take_in(self._deleted, old)

    def turn(self, old: T | None, new: T | None) -> None:
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
    def _take_in(self, change: Callable[..., Events], *objects: T) -> None:
        if self._freeze.is_on:
            self._freeze.do_later(partial(self._take_in, change, *objects))
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
        self._cache.add_node(new)
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
