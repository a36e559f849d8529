"""backoffQ: pods that are worth another try, but not so soon after the last.

Time is cut into windows of one second. A pod whose backoff ends within a window leaves when that window is over, so
that pods of one window leave together and priority decides among them.
"""

from __future__ import annotations

from math import floor, inf, ldexp
from typing import TYPE_CHECKING

from scheduler.queue.keyed_heap import KeyedHeap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.queue.surroundings import QueuePlugins

WINDOW_SECONDS = 1
_MOST_DOUBLINGS = 500  # beyond any maximum, and far from where a float ends


class BackoffQueue:
    """Uids of pods by when their backoff ends.

    Pods that failed with an error wait apart: they protect the API server from us, so they are never tried early. So do
    members of groups: trying a group takes long, and nobody else has a turn meanwhile.

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
        """Change how long pods back off; those that do are to be put anew."""
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds

    def duration(self, queued: QueuedPodInfo) -> float:
        """Return how long a pod backs off after its last attempt, in seconds.

        Doubles with each rejection, or with each error in a row if the last attempt ended in one, up to the maximum.
        One that was put aside waits for as long as that says.
        """
        if queued.put_aside_seconds:
            return queued.put_aside_seconds
        count = queued.consecutive_errors_count or queued.unschedulable_count
        if count == 0:
            return 0.0
        return min(ldexp(self._initial_seconds, min(count - 1, _MOST_DOUBLINGS)), self._max_seconds)

    def ends_in(self, queued: QueuedPodInfo) -> float:
        """Return the start of the window in which a pod's backoff ends; -inf if it has none."""
        if queued.put_aside_seconds:
            return _window(queued.timestamp + queued.put_aside_seconds)
        if self._max_seconds == 0 or not (queued.consecutive_errors_count or queued.unschedulable_count):
            return -inf
        return _window(queued.timestamp + self.duration(queued))

    def leaves_at(self, queued: QueuedPodInfo) -> float:
        """Return when `finished` has a pod at the latest."""
        return self.ends_in(queued) + WINDOW_SECONDS

    def is_backing_off(self, queued: QueuedPodInfo, now: float) -> bool:
        """Say whether a pod has to wait; it has until the window is over in which its backoff ends."""
        return self.ends_in(queued) >= _window(now)

    def put(self, queued: QueuedPodInfo) -> None:
        """Add a pod, or give it the turn that its new version deserves; who rejected it must not change here."""
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
        """Take a pod out, if it is there."""
        self._rejected.remove(uid)
        self._failed.remove(uid)

    def pop(self) -> str | None:
        """Take out, before its time, the pod that comes next; never one that failed with an error."""
        return self._rejected.pop()

    def finished(self, now: float) -> Iterator[str]:
        """Take out the pods whose backoff is over, one by one, in the order they are to be tried."""
        for heap in (self._rejected, self._failed):
            while (first := heap.peek()) is not None and first[0][0] < _window(now):
                heap.pop()
                yield first[1]

    def in_turn(self) -> list[str]:
        """Return all, who leaves first first."""
        return [uid for heap in (self._rejected, self._failed) for uid, _ in heap.in_turn()]

    def next_deadline(self) -> float | None:
        """Return when `finished` next has something to take out; None when nobody waits."""
        firsts = [first[0][0] for heap in (self._rejected, self._failed) if (first := heap.peek())]
        return min(firsts) + WINDOW_SECONDS if firsts else None

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def __contains__(self, uid: object) -> bool:
        return uid in self._rejected or uid in self._failed

    def check(self) -> None:
        """Assert what always holds."""
        twice = set(self._rejected) & set(self._failed)
        assert not twice, f"pods {sorted(twice)} back off twice"


def _window(at: float) -> float:
    return floor(at / WINDOW_SECONDS) * WINDOW_SECONDS
