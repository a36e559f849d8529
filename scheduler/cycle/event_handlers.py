"""Watch events become changes of the cache and of the queue, and wake the pods they may help.

Source:
    kube-scheduler v1.36, eventhandlers.go.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.framework.changes import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    node_changes,
    pod_changes,
)
from scheduler.framework.events import ActionType, ClusterEvent, EventResource
from scheduler.framework.status import Status
from scheduler.objects.outline import outline_pod
from scheduler.queue.places import Place
from scheduler.state.pod_states import PodState

if TYPE_CHECKING:
    from collections.abc import Callable, Container, MutableMapping

    from scheduler.cycle.event_bus import EventBus
    from scheduler.cycle.observer import CycleObserver
    from scheduler.cycle.reporting import Reporter
    from scheduler.errors import ObjectError
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.queue.scheduling_queue import SchedulingQueue
    from scheduler.runtime.waiting_pods import WaitingPodsMap
    from scheduler.state.cache import Cache

logger = logging.getLogger(__name__)


class Identity(Protocol):
    """Which object it is that nobody could read."""

    @property
    def key(self) -> str: ...


class PodHandler:
    """Pods: pending ones of ours to the queue, ones on nodes, whosever they are, to the cache.

    Of the pending pods of other schedulers only one thing is taken in: where their status says that room was made for
    them. That room is left alone as that of our own nominated pods is, by priority; kube-scheduler knows its own alone.

    Args:
        profiles: the schedulerNames that are ours.
        left_node: is told of a pod that left the node it was on or was assumed to be on, as it was seen last.
    """

    def __init__(
        self,
        *,
        profiles: Container[str],
        cache: Cache,
        queue: SchedulingQueue,
        waiting_pods: WaitingPodsMap,
        bus: EventBus,
        reporter: Reporter,
        observer: CycleObserver,
        left_node: Callable[[PodInfo], None] = lambda _: None,
    ) -> None:
        self._profiles = profiles
        self._cache = cache
        self._queue = queue
        self._waiting_pods = waiting_pods
        self._bus = bus
        self._reporter = reporter
        self._observer = observer
        self._left_node = left_node

    def on_add(self, pod: PodInfo) -> None:
        """A pod appeared."""
        if pod.is_terminal:
            return
        if pod.node_name:
            self._cache.add_pod(pod)
            self._bus.happened(ASSIGNED_POD_ADD, None, pod)
        elif self._is_ours(pod):
            self._queue.add(pod)
            self._bus.wake()
        else:
            self._foreign_changed(pod, pod)

    def on_update(self, old: PodInfo, new: PodInfo) -> None:
        """A pod changed."""
        if new.is_terminal:
            self.on_delete(old)
        elif old.node_name:
            self._cache.add_pod(new)
            if _is_read_again(old, new):
                return
            for event in pod_changes(old, new):
                self._bus.happened(event, old, new)
        elif new.node_name:
            self._was_bound(old, new)
        elif _is_read_again(old, new):
            return
        elif self._is_ours(old) or self._is_ours(new):
            self._pending_changed(old, new)
        elif self._cache.state_of(new.uid) is PodState.ASSUMED:
            if _began_to_go(old, new):
                self._assumed_is_going(new)
        else:
            self._foreign_changed(old, new)

    def on_delete(self, pod: PodInfo) -> None:
        """A pod is gone, or ran to its end."""
        if pod.is_terminal:
            return
        if pod.node_name:
            self._cache.remove_pod(pod.uid)
            self._bus.happened(ASSIGNED_POD_DELETE, pod, None)
            self._left_node(pod)
        else:
            if self._is_ours(pod):
                self._leave_queue(pod)
            else:
                self._foreign_left(pod)
            # Also of a profile that is ours no longer: what was begun under it is carried out.
            assumed = self._cache.pod(pod.uid)
            if assumed is not None and self._cache.state_of(pod.uid) is PodState.ASSUMED:
                self._assumed_is_going(pod)
                self._left_node(assumed)

    def on_undecodable(self, identity: Identity, error: ObjectError) -> None:
        """Note a pod that nobody can read.

        It is not tried by an earlier version, which holds no more, and its user is told. It is tried again when it
        comes in a version that can be read.
        """
        logger.warning("Pod cannot be understood", extra={"pod": identity.key, "error": str(error)})
        self._observer.undecodable("Pod")
        self._reporter.outdated(identity.key)
        pod = None if error.found is None else outline_pod(error.found)
        if pod is None or not self._is_ours(pod):
            return
        if self._cache.state_of(pod.uid) is PodState.ASSUMED:
            return  # it is being bound: to say now that it is not would be wrong in a moment
        earlier = self._queue.get(pod.uid)
        if earlier is not None:
            self._leave_queue(earlier.pod)
        # Who is gated is not written to, whatever else is wrong with it.
        if not (pod.node_name or pod.is_terminal or pod.pod.spec.scheduling_gates or _says(pod, str(error))):
            self._reporter.failed(pod.scheduler_name, pod, Status.failed(str(error), error))

    def _is_ours(self, pod: PodInfo) -> bool:
        return pod.scheduler_name in self._profiles

    def _was_bound(self, old: PodInfo, new: PodInfo) -> None:
        self._cache.add_pod(new)
        self._bus.happened(ASSIGNED_POD_ADD, None, new)
        if self._is_ours(old):
            self._queue.delete(old)
        else:
            self._queue.nominator.delete(old.uid)

    def _pending_changed(self, old: PodInfo, new: PodInfo) -> None:
        if self._cache.state_of(new.uid) is PodState.ASSUMED:
            if self._queue.place_of(new.uid) is Place.IN_FLIGHT:
                self._queue.update(old, new)  # it may come back
            if _began_to_go(old, new):
                self._assumed_is_going(new)
            return
        nominated = old.pod.status.nominated_node_name
        self._queue.update(old, new)
        self._bus.wake()
        if nominated and nominated != new.pod.status.nominated_node_name:
            self._nomination_ended(old)

    def _assumed_is_going(self, pod: PodInfo) -> None:
        """Free the room of a pod whose binding is under way and will fail, since the pod is being deleted."""
        placed = self._cache.pod(pod.uid)
        if self._waiting_pods.holds(pod.uid):
            self._waiting_pods.reject(pod.uid, "", "pod is being deleted")
        else:
            self._cache.forget(pod.uid)
        self._bus.happened(ASSIGNED_POD_DELETE, placed, None)

    def _leave_queue(self, pod: PodInfo) -> None:
        nominated = self._queue.nominator.node_of(pod.uid)
        if self._queue.place_of(pod.uid) is Place.GATED:  # of those the queue notes no nomination
            nominated = nominated or pod.pod.status.nominated_node_name
        self._queue.delete(pod)
        if nominated:
            self._nomination_ended(pod)

    def _foreign_changed(self, old: PodInfo, new: PodInfo) -> None:
        """Count a pending pod of another scheduler on the node that its status nominates, and there only."""
        nominator = self._queue.nominator
        if old.uid != new.uid:  # deleted and made again under its name
            self._foreign_left(old)
        before = nominator.node_of(new.uid)
        nominator.add(new, "" if new.is_terminating or new.pod.spec.scheduling_gates else None)
        if before and nominator.node_of(new.uid) != before:
            self._nomination_ended(old)

    def _foreign_left(self, pod: PodInfo) -> None:
        nominated = self._queue.nominator.node_of(pod.uid)
        self._queue.nominator.delete(pod.uid)
        if nominated:
            self._nomination_ended(pod)

    def _nomination_ended(self, pod: PodInfo) -> None:
        """The room that was kept for a pod is free for those who had to leave it alone."""
        self._bus.happened(ASSIGNED_POD_DELETE, pod, None, lambda other: other.priority <= pod.priority)


class NodeHandler:
    """Nodes to the cache."""

    def __init__(self, *, cache: Cache, bus: EventBus, observer: CycleObserver) -> None:
        self._cache = cache
        self._bus = bus
        self._observer = observer

    def on_add(self, node: NodeObject) -> None:
        """A node appeared."""
        self._cache.add_node(node)
        self._bus.happened(NODE_ADD, None, node)

    def on_update(self, old: NodeObject, new: NodeObject) -> None:
        """A node changed."""
        self._cache.add_node(new)
        changes = node_changes(old, new)
        if changes:
            self._cache.pauses.end(new.name)
        for event in changes:
            self._bus.happened(event, old, new)

    def on_delete(self, node: NodeObject) -> None:
        """A node is gone; its pods are counted until they go themselves."""
        self._bus.happened(NODE_DELETE, node, None)
        self._cache.remove_node(node.name)

    def on_undecodable(self, identity: Identity, error: ObjectError) -> None:
        """Note a node that nobody can read; what was last known of it holds."""
        logger.warning("Node cannot be understood", extra={"node": identity.key, "error": str(error)})
        self._observer.undecodable("Node")


class ObjectHandler:
    """Objects of a kind that a plugin needs, to the store it reads them from.

    Args:
        kind: as in the plugin's `needs`, for log lines and counts.
        resource: what its events are called; None where kube-scheduler has no word for the kind.
        store: `namespace/name` -> object.
    """

    def __init__(
        self,
        *,
        kind: str,
        resource: EventResource | None,
        store: MutableMapping[str, Any],
        bus: EventBus,
        observer: CycleObserver,
    ) -> None:
        self._kind = kind
        self._resource = resource
        self._store = store
        self._bus = bus
        self._observer = observer

    def on_add(self, obj: Any) -> None:
        """An object appeared."""
        self._store[_key(obj)] = obj
        self._tell(ActionType.ADD, None, obj)

    def on_update(self, old: Any, new: Any) -> None:
        """An object changed."""
        self._store[_key(new)] = new
        self._tell(ActionType.UPDATE, old, new)

    def on_delete(self, obj: Any) -> None:
        """An object is gone."""
        self._store.pop(_key(obj), None)
        self._tell(ActionType.DELETE, obj, None)

    def on_undecodable(self, identity: Identity, error: ObjectError) -> None:
        """Note an object that is no JSON; what was last known of it holds."""
        logger.warning(
            "Object cannot be understood",
            extra={"kind": self._kind, "object": identity.key, "error": str(error)},
        )
        self._observer.undecodable(self._kind)

    def _tell(self, action: ActionType, old: Any, new: Any) -> None:
        event = ClusterEvent(self._resource or EventResource.WILDCARD, action)
        self._bus.happened(event, old, new)


def _is_read_again(old: PodInfo, new: PodInfo) -> bool:
    """Whether nothing happened: the same version, of which other parts are kept now."""
    return bool(old.resource_version) and old.resource_version == new.resource_version


def _began_to_go(old: PodInfo, new: PodInfo) -> bool:
    return new.is_terminating and not old.is_terminating


def _says(pod: PodInfo, message: str) -> bool:
    """Whether the pod's condition says it already: saying it again would make a new version, and so on."""
    return any(
        condition.type == "PodScheduled" and condition.message == message
        for condition in pod.pod.status.conditions
    )


def _key(obj: Any) -> str:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
