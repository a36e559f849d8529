"""What can be read of the queue: by metrics, by explanations, by people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.queue.contents import Contents
    from scheduler.queue.places import Move, Place


class QueueView:
    """The readable side of the scheduling queue."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def count(self, place: Place) -> int:
        """Return how many pods are there; OUTSIDE is not counted."""
        return self._contents.places.count(place)

    @property
    def in_flight_events(self) -> Mapping[str, int]:
        """Event label -> how many are kept for pods in flight; those count as PodPopped."""
        return self._contents.in_flight.counts()

    @property
    def rejections(self) -> Mapping[tuple[str, str], int]:
        """(plugin, profile) -> how many waiting pods it rejected or gates; 0 for those that had some."""
        return self._contents.rejections.counts

    def place_of(self, uid: str) -> Place:
        """Return where a pod is; OUTSIDE if it is not known."""
        return self._contents.places.of(uid)

    def story(self, uid: str) -> tuple[Move, ...]:
        """Return what happened to a pod, oldest first; also of one that left not long ago."""
        return self._contents.places.story(uid)

    def get(self, uid: str) -> QueuedPodInfo | None:
        """Return a pod of the queue, in flight or not."""
        return self._contents.pods.get(uid)

    def newest(self, uid: str) -> PodInfo | None:
        """Return a pod's newest version; None if it is not here or was deleted while in flight."""
        return self._contents.newest(uid)

    def turn_of(self, uid: str) -> int | None:
        """Return how many pods of activeQ are tried before this one; None for a pod that is elsewhere."""
        return self._contents.active.turn_of(uid)

    def backoff_left(self, uid: str, now: float) -> float | None:
        """Return how many seconds a pod of backoffQ still waits there; None for a pod that is elsewhere."""
        backoff = self._contents.backoff
        return max(0.0, backoff.leaves_at(self._contents.pods[uid]) - now) if uid in backoff else None

    def holds(self, uid: str) -> bool:
        """Say whether a pod is whole where `place_of` says it is; false is a mistake of ours."""
        return self._contents.holds(uid)

    def pods(self) -> Iterable[QueuedPodInfo]:
        """Return all pods of the queue, those in flight too; nothing may be changed until the last was taken."""
        return self._contents.pods.values()

    def in_turn(self) -> Iterator[QueuedPodInfo]:
        """Yield all pods but those in flight: of each place, who came or is tried first comes first."""
        contents = self._contents
        active = [uid for uid, _ in contents.active.in_turn()]
        for uid in (*active, *contents.backoff.in_turn(), *contents.unschedulable.in_turn()):
            yield contents.pods[uid]

    def flushes(self) -> list[tuple[str, float]]:
        """Return the pods that are tried again although nothing happens, and when, the first first."""
        return self._contents.unschedulable.flushes()

    def check(self) -> None:
        """Assert what always holds."""
        self._contents.check()
