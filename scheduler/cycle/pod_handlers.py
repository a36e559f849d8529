"""Watch events about pods: those on nodes, those that wait for us, and those that wait for other schedulers.

Source:
    kube-scheduler v1.36, eventhandlers.go.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.cycle.event_handlers import EventHandler
from scheduler.framework.changes import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_DELETE,
    UNSCHEDULABLE_POD_UPDATE,
    pod_changes,
)
from scheduler.framework.status import Status
from scheduler.objects.outline import outline_pod
from scheduler.objects.pod import PodInfo
from scheduler.queue.places import Place
from scheduler.state.pod_states import PodState

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.client.wire import ObjectIdentity
    from scheduler.cycle.event_handlers import Events
    from scheduler.cycle.reporting import Reporter
    from scheduler.cycle.shared import Shared
    from scheduler.errors import ObjectError

logger = logging.getLogger(__name__)

_ASSIGNED_ADD = (ASSIGNED_POD_ADD,)
_ASSIGNED_DELETE = (ASSIGNED_POD_DELETE,)
_PENDING_ADD = (UNSCHEDULABLE_POD_ADD,)
_PENDING_DELETE = (UNSCHEDULABLE_POD_DELETE,)


class PodHandler(EventHandler[PodInfo]):
    """Pods on nodes, whosever they are, to the cache; pending ones are other schedulers'.

    Of those only one thing is taken in: where their status says that room was made for them. That room is left alone as
    that of our own nominated pods is, by priority; kube-scheduler knows its own alone.

    Args:
        left_node: is told of a pod that left the node where we put it, as it was seen last.
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
            return _ASSIGNED_ADD
        return self._pending_added(pod)

    def _updated(self, old: PodInfo, new: PodInfo) -> Events:
        if new.is_terminal:
            return self._deleted(old)
        if old.node_name and not new.node_name:  # the API server was restored from a time before it was bound
            self._cache.remove_pod(old.uid)
            self._bus.happened(ASSIGNED_POD_DELETE, old, None)
            return (*_ASSIGNED_DELETE, *self._pending_added(new))
        if old.node_name:
            self._cache.add_pod(new)
            if _is_read_again(old, new):
                return ()
            changes = pod_changes(old, new)
            for event in changes:
                self._bus.happened(event, old, new)
            if old.group != new.group and new.group is not None and self._profiles.pod_group(new.group):
                self._bus.happened(ASSIGNED_POD_ADD, None, new)  # to pods that wait for others of the group
            return changes
        if new.node_name:
            self._cache.add_pod(new)
            self._bus.happened(ASSIGNED_POD_ADD, None, new)
            self._forget_pending(old)
            return _ASSIGNED_ADD
        return () if _is_read_again(old, new) else self._pending_updated(old, new)

    def _deleted(self, pod: PodInfo) -> Events:
        """Take a pod out that is gone, or ran to its end."""
        if pod.is_terminal:
            return ()
        if pod.node_name:
            is_ours_there = self._cache.was_assumed(pod.uid)
            self._cache.remove_pod(pod.uid)
            self._bus.happened(ASSIGNED_POD_DELETE, pod, None)
            if is_ours_there:
                self._left_node(pod)
            return _ASSIGNED_DELETE
        events = self._pending_deleted(pod)
        # Also of a profile that is ours no longer: what was begun under it is carried out.
        assumed = self._cache.pod(pod.uid)
        if assumed is not None and self._cache.state_of(pod.uid) is PodState.ASSUMED:
            self._assumed_is_going(pod)
            self._left_node(assumed)
        return events

    def _undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        logger.warning("Pod cannot be understood", extra={"pod": identity.key, "error": str(error)})
        self._observer.undecodable("Pod")

    # Pending pods; here all are other schedulers'.

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
        """Let go of a pending pod that was bound."""
        self._nominator.delete(pod.uid)

    def _nominate(self, old: PodInfo, new: PodInfo) -> None:
        """Count a pending pod of another scheduler on the node that its status nominates, and there only."""
        nominator = self._nominator
        if old.uid != new.uid:  # deleted and made again under its name
            self._pending_deleted(old)
        before = nominator.node_of(new.uid)
        nominator.add(new, "" if new.is_terminating or new.pod.spec.scheduling_gates else None)
        if before and nominator.node_of(new.uid) != before:
            self._bus.nomination_ended(old)

    # Pods that are being bound.

    def _assumed_is_going(self, pod: PodInfo) -> None:
        """Free the room of a pod whose binding is under way and will fail, since the pod is being deleted."""
        placed = self._cache.pod(pod.uid)
        self._let_go(pod.uid)
        self._bus.happened(ASSIGNED_POD_DELETE, placed, None)

    def _let_go(self, uid: str) -> None:
        self._cache.forget(uid)


class QueueingPodHandler(PodHandler):
    """Beside that, the pending pods of our profiles to the queue.

    Args:
        reporter: tells users of pods that nobody can read.
        left_node: as of `PodHandler`.
    """

    def __init__(
        self, shared: Shared, reporter: Reporter, left_node: Callable[[PodInfo], None] = lambda _: None
    ) -> None:
        super().__init__(shared, left_node)
        self._queue, self._waiting_pods = shared.queue, shared.waiting_pods
        self._reporter = reporter

    def _pending_added(self, pod: PodInfo) -> Events:
        if not self._is_ours(pod):
            return super()._pending_added(pod)
        self._queue.add(pod)
        if self._profiles.group_of(pod) is not None:
            self._bus.happened(UNSCHEDULABLE_POD_ADD, None, pod)  # others of its group may wait for it
        self._bus.wake()
        return _PENDING_ADD

    def _pending_updated(self, old: PodInfo, new: PodInfo) -> Events:
        if not (self._is_ours(old) or self._is_ours(new)):
            return super()._pending_updated(old, new)
        changes = pod_changes(old, new)
        if self._cache.state_of(new.uid) is PodState.ASSUMED:
            if self._queue.place_of(new.uid) is Place.IN_FLIGHT:
                self._queue.update(old, new, changes)  # it may come back
            if _began_to_go(old, new):
                self._assumed_is_going(new)
        else:
            nominated = old.pod.status.nominated_node_name
            self._queue.update(old, new, changes)
            if old.group != new.group and self._profiles.group_of(new) is not None:
                self._bus.happened(
                    UNSCHEDULABLE_POD_ADD, None, new
                )  # to the others of the group it comes anew
            self._bus.wake()
            if nominated and nominated != new.pod.status.nominated_node_name:
                self._bus.nomination_ended(old)
        # Under the general name in any case, as upstream.
        return tuple(dict.fromkeys((UNSCHEDULABLE_POD_UPDATE, *changes)))

    def _pending_deleted(self, pod: PodInfo) -> Events:
        if not self._is_ours(pod):
            return super()._pending_deleted(pod)
        self._leave_queue(pod)
        return _PENDING_DELETE

    def _forget_pending(self, pod: PodInfo) -> None:
        if self._is_ours(pod):
            self._queue.delete(pod)
        else:
            super()._forget_pending(pod)

    def _let_go(self, uid: str) -> None:
        if self._waiting_pods.holds(uid):
            self._waiting_pods.reject(uid, "", "pod is being deleted")
        else:
            super()._let_go(uid)

    def _undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        """Note a pod that nobody can read.

        It is not tried by an earlier version, which holds no more, and its user is told. It is tried again when it
        comes in a version that can be read.
        """
        super()._undecodable(identity, error)
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

    def _leave_queue(self, pod: PodInfo) -> None:
        nominated = self._nominator.node_of(pod.uid)
        if self._queue.place_of(pod.uid) is Place.GATED:  # of those the queue notes no nomination
            nominated = nominated or pod.pod.status.nominated_node_name
        self._queue.delete(pod)
        if nominated:
            self._bus.nomination_ended(pod.placed_on(nominated))


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
