"""What can be read of the queue: by metrics, by explanations, by people."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scheduler.queue.places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.queue.contents import Contents
    from scheduler.queue.places import Move


class PendingPod(NamedTuple):
    """One pod of the queue.

    Attributes:
        queued: the pod.
        place: where it is.
        since: when that was last decided, in seconds of the daemon's monotonic clock.
        why: for people.
    """

    queued: QueuedPodInfo
    place: Place
    since: float
    why: str


class QueueView:
    """The readable side of the scheduling queue."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    @property
    def can_pop(self) -> bool:
        """Whether a pod can be tried now."""
        return len(self._contents.active) > 0 or self._contents.backoff.can_pop

    @property
    def active(self) -> int:
        """How many pods are in activeQ."""
        return self._contents.places.count(Place.ACTIVE)

    @property
    def backoff(self) -> int:
        """How many pods are in backoffQ."""
        return self._contents.places.count(Place.BACKOFF)

    @property
    def unschedulable(self) -> int:
        """How many pods are unschedulable, without gated ones."""
        return self._contents.places.count(Place.UNSCHEDULABLE)

    @property
    def gated(self) -> int:
        """How many pods are gated."""
        return self._contents.places.count(Place.GATED)

    @property
    def in_flight(self) -> int:
        """How many pods are being scheduled or bound."""
        return self._contents.places.count(Place.IN_FLIGHT)

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

    def pods(self) -> Iterator[PendingPod]:
        """Yield all pods of the queue, those in flight too; nothing may be changed until the last was taken."""
        for uid, last in self._contents.places.inside():
            yield PendingPod(self._contents.pods[uid], last.end, last.at, last.why)

    def check(self) -> None:
        """Assert what always holds."""
        self._contents.check()
