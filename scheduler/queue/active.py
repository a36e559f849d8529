"""activeQ: the pods to be tried, in the order of the QueueSort plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.queue.keyed_heap import KeyedHeap

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.queue.keyed_heap import Key


class ActiveQueue:
    """Uids of pods; the smallest key is tried first, equals in the order they came."""

    def __init__(self, sort_key: Callable[[QueuedPodInfo], Key]) -> None:
        self._sort_key = sort_key
        self._heap = KeyedHeap()

    def put(self, queued: QueuedPodInfo) -> None:
        """Add a pod, or give it the turn that its new version deserves."""
        self._heap.put(queued.pod.uid, self._sort_key(queued))

    def remove(self, uid: str) -> None:
        """Take a pod out, if it is there."""
        self._heap.remove(uid)

    def pop(self) -> str | None:
        """Take out the pod whose turn it is."""
        return self._heap.pop()

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, uid: object) -> bool:
        return uid in self._heap
