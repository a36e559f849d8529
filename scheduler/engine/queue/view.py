"""The readable state of the queue, for metrics, explanations and people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.engine.queue.contents import QueueContents
    from scheduler.engine.queue.pod_places import Move, Place
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo


class QueueView:
    """The read-only side of the scheduling queue."""

    def __init__(self, contents: QueueContents) -> None:
        self._contents = contents

    def count(self, place: Place) -> int:
        """Return the number of pods in a place; OUTSIDE is not counted."""
        return self._contents.places.count(place)

    @property
    def in_flight_events(self) -> Mapping[str, int]:
        """Event label -> number of events recorded for pods in flight; PodPopped is the number of those pods."""
        return self._contents.in_flight.counts()

    @property
    def rejections(self) -> Mapping[tuple[str, str], int]:
        """(plugin, profile) -> number of waiting pods that it rejected or gates; 0 for plugins that had some."""
        return self._contents.rejections.counts

    def place_of(self, uid: str) -> Place:
        """Return the place of a pod; OUTSIDE if it is unknown."""
        return self._contents.places.of(uid)

    def history(self, uid: str) -> tuple[Move, ...]:
        """Return the history of a pod, oldest entry first; also of a pod that left recently."""
        return self._contents.places.history(uid)

    def get(self, uid: str) -> QueuedPodInfo | None:
        """Return a pod of the queue, in flight or not."""
        return self._contents.pods.get(uid)

    def newest(self, uid: str) -> PodInfo | None:
        """Return a pod's newest version; None if it is unknown or was deleted while in flight."""
        return self._contents.newest(uid)

    def turn_of(self, uid: str) -> int | None:
        """Return the number of pods of activeQ that are tried before this one; None if it is not in activeQ."""
        return self._contents.active.turn_of(uid)

    def backoff_left(self, uid: str, now: float) -> float | None:
        """Return how many seconds a pod of backoffQ still waits there; None if it is not in backoffQ."""
        backoff = self._contents.backoff
        return max(0.0, backoff.leaves_at(self._contents.pods[uid]) - now) if uid in backoff else None

    def holds(self, uid: str) -> bool:
        """Return whether a pod is consistent with `place_of`; False indicates a bug."""
        return self._contents.holds(uid)

    def pods(self) -> Iterable[QueuedPodInfo]:
        """Return all pods of the queue, including pods in flight; the queue must not change during the iteration."""
        return self._contents.pods.values()

    def in_turn(self) -> Iterator[QueuedPodInfo]:
        """Yield all pods that are not in flight, place by place, each in its order."""
        contents = self._contents
        active = [uid for uid, _ in contents.active.in_turn()]
        for uid in (*active, *contents.backoff.in_turn(), *contents.unschedulable.in_turn()):
            yield contents.pods[uid]

    def flushes(self) -> list[tuple[str, float]]:
        """Return the pods that are tried again without an event, and when, in order of time."""
        return self._contents.unschedulable.flushes()

    def check(self) -> None:
        """Assert the invariants."""
        self._contents.check()
