"""backoffQ: pods that are tried again only after a backoff.

Time is divided into windows of one second. A pod whose backoff ends within a window leaves when that window is over.
Pods of one window therefore leave together, and priority decides among them.
"""

from __future__ import annotations

from math import floor, inf, ldexp
from typing import TYPE_CHECKING

from scheduler.engine.queue.keyed_heap import KeyedHeap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.engine.queue.ports import QueuePlugins
    from scheduler.framework.queued_pod import QueuedPodInfo

WINDOW_SECONDS = 1
_MOST_DOUBLINGS = 500  # beyond any maximum, and far below the largest float


class BackoffQueue:
    """Uids of pods, ordered by the end of their backoff.

    Pods that failed with an error wait separately and are never tried early: their backoff protects the API server. Members
    of groups wait with them, because an attempt at a group takes long and blocks all other pods.

    Source:
        kube-scheduler v1.36, backend/queue/backoff_queue.go.
    """

    def __init__(self, *, initial_seconds: float, max_seconds: float, plugins: QueuePlugins) -> None:
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._plugins = plugins
        self._rejected = KeyedHeap()
        self._failed = KeyedHeap()

    def configure(self, *, initial_seconds: float, max_seconds: float) -> None:
        """Change the backoff durations; the caller must put the pods in backoff again."""
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds

    def duration(self, queued: QueuedPodInfo) -> float:
        """Return how long a pod backs off after its last attempt, in seconds.

        The backoff doubles with each rejection, up to the maximum. If the last attempt ended with an error, it doubles with
        each error in a row. A quarantined pod waits for its quarantine.
        """
        if queued.quarantine_seconds:
            return queued.quarantine_seconds
        count = queued.consecutive_errors_count or queued.unschedulable_count
        if count == 0:
            return 0.0
        return min(ldexp(self._initial_seconds, min(count - 1, _MOST_DOUBLINGS)), self._max_seconds)

    def ends_in(self, queued: QueuedPodInfo) -> float:
        """Return the start of the window in which a pod's backoff ends; -inf if it has none."""
        if queued.quarantine_seconds:
            return _window(queued.timestamp + queued.quarantine_seconds)
        if self._max_seconds == 0 or not (queued.consecutive_errors_count or queued.unschedulable_count):
            return -inf
        return _window(queued.timestamp + self.duration(queued))

    def leaves_at(self, queued: QueuedPodInfo) -> float:
        """Return the latest time at which `finished` yields a pod."""
        return self.ends_in(queued) + WINDOW_SECONDS

    def is_backing_off(self, queued: QueuedPodInfo, now: float) -> bool:
        """Return whether a pod has to wait: it does until the window in which its backoff ends is over."""
        return self.ends_in(queued) >= _window(now)

    def put(self, queued: QueuedPodInfo) -> None:
        """Add a pod, or reorder it by its new version; the plugins that rejected it must not change here."""
        uid = queued.pod.uid
        ends_in = self.ends_in(queued)
        was_rejected = queued.unschedulable_plugins or queued.pending_plugins
        if was_rejected and self._plugins.group_of(queued.pod) is None:
            self._failed.remove(uid)  # it may have left its group
            self._rejected.put(uid, (ends_in, *self._plugins.sort_key(queued)))
        else:
            self._rejected.remove(uid)
            self._failed.put(uid, (ends_in,))

    def remove(self, uid: str) -> None:
        """Remove a pod, if present."""
        self._rejected.remove(uid)
        self._failed.remove(uid)

    def pop(self) -> str | None:
        """Remove and return the next pod before its backoff ends; never one that failed with an error."""
        return self._rejected.pop()

    def finished(self, now: float) -> Iterator[str]:
        """Remove and yield the pods whose backoff is over, in the order in which they are tried."""
        for heap in (self._rejected, self._failed):
            while (first := heap.peek()) is not None and first[0][0] < _window(now):
                heap.pop()
                yield first[1]

    def in_turn(self) -> list[str]:
        """Return all pods in the order in which their backoff ends."""
        return [uid for heap in (self._rejected, self._failed) for uid, _ in heap.in_turn()]

    def next_deadline(self) -> float | None:
        """Return the next time at which `finished` has a pod to yield; None if no pod backs off."""
        firsts = [first[0][0] for heap in (self._rejected, self._failed) if (first := heap.peek())]
        return min(firsts) + WINDOW_SECONDS if firsts else None

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def __contains__(self, uid: object) -> bool:
        return uid in self._rejected or uid in self._failed

    def check(self) -> None:
        """Assert the invariants."""
        twice = set(self._rejected) & set(self._failed)
        assert not twice, f"pods {sorted(twice)} back off twice"


def _window(at: float) -> float:
    return floor(at / WINDOW_SECONDS) * WINDOW_SECONDS
