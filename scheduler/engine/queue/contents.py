"""The parts of the queue, and the single way by which pods move between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.engine.queue.in_flight import InFlight
from scheduler.engine.queue.keyed_heap import KeyedHeap
from scheduler.engine.queue.pod_places import Place, Places
from scheduler.engine.queue.rejections import Rejections
from scheduler.engine.queue.unschedulable import UnschedulablePods

if TYPE_CHECKING:
    from scheduler.engine.queue.backoff import BackoffQueue
    from scheduler.engine.queue.ports import QueueObserver, QueuePlugins
    from scheduler.engine.state.pod_groups import PodGroups
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo

POP_FROM_BACKOFF_Q = "PopFromBackoffQ"

_ENTERED = {
    Place.ACTIVE: "active",
    Place.BACKOFF: "backoff",
    Place.UNSCHEDULABLE: "unschedulable",
    Place.GATED: "unschedulable",
}  # place -> label in metrics


class QueueContents:
    """Every pod of the queue, in the part that belongs to its place.

    Attributes:
        pods: uid -> pod, including pods in flight.
        places: the place and the history of each pod.
        active: activeQ, the pods in ACTIVE: by the key of QueueSort, equal keys in arrival order.
        backoff: the pods in BACKOFF.
        unschedulable: the pods in UNSCHEDULABLE and GATED.
        in_flight: the pods in IN_FLIGHT.
        groups: the group membership of pods.
        rejections: the plugins that rejected the waiting pods.
    """

    def __init__(
        self,
        *,
        plugins: QueuePlugins,
        backoff: BackoffQueue,
        groups: PodGroups,
        observer: QueueObserver,
    ) -> None:
        self.pods: dict[str, QueuedPodInfo] = {}
        self.places = Places()
        self.active = KeyedHeap()
        self.backoff = backoff
        self.unschedulable = UnschedulablePods(plugins)
        self.in_flight = InFlight()
        self.groups = groups
        self.rejections = Rejections()
        self._plugins = plugins
        self._observer = observer

    def put(
        self,
        queued: QueuedPodInfo,
        place: Place,
        *,
        at: float,
        label: str,
        why: str = "",
        flush_at: float | None = None,
        shown: int | None = None,
    ) -> Place:
        """Move a pod from its current place to a place where it waits; return that place.

        Args:
            queued: the pod, its attempt ended if it was in flight.
            place: the new place.
            at: the current time.
            label: the event's label in metrics.
            why: the reason for people; defaults to the label.
            flush_at: when an unschedulable or gated pod is tried again without an event; None for never.
            shown: the number of the last event that such a pod was checked against; None for the latest event.
        """
        uid = queued.pod.uid
        start = self.places.of(uid)
        self._remove(uid, start)
        if place is Place.ACTIVE and queued.initial_attempt_timestamp is None:
            queued.initial_attempt_timestamp = at
        self._insert(queued, place, flush_at, shown)
        if start is place:
            self.places.note(uid, at=at, why=why or label)
        else:
            self.places.move(uid, place, at=at, why=why or label)
            self._observer.incoming(_ENTERED[place], label)
        return place

    def resume(self, queued: QueuedPodInfo, place: Place) -> None:
        """Add a pod that waited in another queue, in the same place."""
        self._insert(queued, place)
        self.places.resume(queued.pod.uid, place, at=queued.timestamp)

    def _insert(
        self, queued: QueuedPodInfo, place: Place, flush_at: float | None = None, shown: int | None = None
    ) -> None:
        """Insert a pod into the part that belongs to a place."""
        uid = queued.pod.uid
        self.pods[uid] = queued
        if place is Place.ACTIVE:
            self.active.put(uid, self._plugins.sort_key(queued))
        elif place is Place.BACKOFF:
            self.backoff.put(queued)
        else:
            self.unschedulable.put(queued, flush_at, shown=shown)
        self.rejections.note(queued)

    def renew(self, queued: QueuedPodInfo) -> None:
        """Reorder a pod in activeQ or backoffQ by its new version."""
        place = self.places.of(queued.pod.uid)
        if place is Place.ACTIVE:
            self.active.put(queued.pod.uid, self._plugins.sort_key(queued))
        elif place is Place.BACKOFF:
            self.backoff.put(queued)

    def pop(self, at: float) -> QueuedPodInfo | None:
        """Move the next pod of activeQ, else of backoffQ, in flight and return it."""
        uid, why = self.active.pop(), "popped"
        if uid is None:
            uid, why = self.backoff.pop(), POP_FROM_BACKOFF_Q
            if uid is None:
                return None
            self._observer.incoming(_ENTERED[Place.ACTIVE], POP_FROM_BACKOFF_Q)
        return self._begin(uid, at=at, why=why)

    def pop_with(self, uid: str, first: QueuedPodInfo, at: float) -> QueuedPodInfo:
        """Move a pod of activeQ or backoffQ in flight together with another pod of its group."""
        self._remove(uid, self.places.of(uid))
        return self._begin(uid, at=at, why=f"popped with {first.pod.key}")

    def _begin(self, uid: str, *, at: float, why: str) -> QueuedPodInfo:
        queued = self.pods[uid]
        queued.attempts += 1
        self.rejections.forget(uid)
        self.places.move(uid, Place.IN_FLIGHT, at=at, why=why)
        self.in_flight.begin(queued.pod)
        return queued

    def drop(self, uid: str, *, at: float, why: str) -> None:
        """Remove a pod from the queue, its attempt ended if it was in flight."""
        self._remove(uid, self.places.of(uid))
        self.rejections.forget(uid)
        self.groups.drop_pending(uid)
        del self.pods[uid]
        self.places.move(uid, Place.OUTSIDE, at=at, why=why)

    def holds(self, uid: str) -> bool:
        """Return whether a pod is consistent: known, and in the part that belongs to its place."""
        place = self.places.of(uid)
        if place is Place.OUTSIDE:
            return uid not in self.pods
        return uid in self.pods and uid in self._part(place)

    def discard(self, uid: str, *, at: float, why: str) -> None:
        """Remove all remains of a pod from every part."""
        for part in (self.active, self.backoff, self.unschedulable):
            part.remove(uid)
        if uid in self.in_flight:
            self.in_flight.end(uid)
        self.rejections.forget(uid)
        self.groups.drop_pending(uid)
        self.pods.pop(uid, None)
        if self.places.of(uid) is not Place.OUTSIDE:
            self.places.move(uid, Place.OUTSIDE, at=at, why=why)

    def newest(self, uid: str) -> PodInfo | None:
        """Return a pod's newest version; None if it is unknown or was deleted while in flight."""
        if uid in self.in_flight:
            return self.in_flight.newest(uid)
        queued = self.pods.get(uid)
        return None if queued is None else queued.pod

    def check(self) -> None:
        """Assert the invariants."""
        for checked in (self.places, self.backoff, self.unschedulable, self.in_flight, self.rejections):
            checked.check()
        self.groups.check()
        inside = {uid: move.end for uid, move in self.places.inside()}
        assert inside.keys() == self.pods.keys(), f"{inside.keys() ^ self.pods.keys()} are half inside"
        parts = (self.active, self.backoff, self.unschedulable, self.in_flight)
        for uid, place in inside.items():
            holders = [part for part in parts if uid in part]
            assert holders == [self._part(place)], self.places.objection(uid, f"is in {holders}")
            gated = self.pods[uid].is_gated
            assert gated == (place is Place.GATED), self.places.objection(uid, f"is_gated is {gated}")
        held = sum(len(part) for part in parts)
        assert held == len(inside), f"the parts hold {held} pods, {len(inside)} are inside"

    def _remove(self, uid: str, place: Place) -> None:
        if place is Place.ACTIVE:
            self.active.remove(uid)
        elif place is Place.BACKOFF:
            self.backoff.remove(uid)
        elif place in {Place.UNSCHEDULABLE, Place.GATED}:
            self.unschedulable.remove(uid)

    def _part(self, place: Place) -> KeyedHeap | BackoffQueue | UnschedulablePods | InFlight:
        if place is Place.ACTIVE:
            return self.active
        if place is Place.BACKOFF:
            return self.backoff
        return self.in_flight if place is Place.IN_FLIGHT else self.unschedulable
