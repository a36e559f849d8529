"""A heap whose entries can be changed and removed by pod uid."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Key = tuple[float, ...]

_SPARE = 64


class KeyedHeap:
    """Pod uids, the smallest key first; equal keys in arrival order.

    A changed or removed entry stays in the heap as a tombstone until it reaches the top or tombstones outnumber the other
    entries. Every operation is O(log n) on average, and the heap is never more than twice too large.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int, str]] = []
        self._entries: dict[str, tuple[Key, int, str]] = {}  # uid -> its valid entry
        self._numbers = count()

    def put(self, uid: str, key: Key) -> None:
        """Add a pod, or change its key; a pod whose key is unchanged keeps its position among equal keys."""
        entry = self._entries.get(uid)
        if entry is not None and entry[0] == key:
            return
        entry = self._entries[uid] = (key, next(self._numbers), uid)
        heappush(self._heap, entry)
        self._sweep()

    def remove(self, uid: str) -> None:
        """Remove a pod, if present."""
        if self._entries.pop(uid, None) is not None:
            self._sweep()

    def peek(self) -> tuple[Key, str] | None:
        """Return (key, uid) of the first entry without removing it; None when empty."""
        heap, entries = self._heap, self._entries
        while heap:
            key, _, uid = heap[0]
            if entries.get(uid) is heap[0]:
                return key, uid
            heappop(heap)
        return None

    def pop(self) -> str | None:
        """Remove and return the first uid; None when empty."""
        first = self.peek()
        if first is None:
            return None
        heappop(self._heap)
        del self._entries[first[1]]
        return first[1]

    def turn_of(self, uid: str) -> int | None:
        """Return the number of entries before a pod; None if it is absent."""
        entry = self._entries.get(uid)
        return None if entry is None else sum(each < entry for each in self._entries.values())

    def in_turn(self) -> list[tuple[str, Key]]:
        """Return all pods with their keys, in order."""
        return [(uid, key) for key, _, uid in sorted(self._entries.values())]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _SPARE:
            self._heap = list(self._entries.values())
            heapify(self._heap)
