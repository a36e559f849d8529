"""A heap whose entries can be changed and taken out by name."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Key = tuple[float, ...]

_SPARE = 64


class KeyedHeap:
    """Pod uids, the smallest key first; equals in the order they came.

    An entry that is changed or taken out stays in the heap as a husk until it surfaces or husks outnumber the
    rest, so every operation is O(log n) on average and the heap is never more than twice too large.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int, str]] = []
        self._entries: dict[str, tuple[Key, int, str]] = {}  # uid -> the entry that counts
        self._numbers = count()

    def put(self, uid: str, key: Key) -> None:
        """Add a pod, or change its key; one whose key stays keeps its turn among equals."""
        entry = self._entries.get(uid)
        if entry is not None and entry[0] == key:
            return
        entry = self._entries[uid] = (key, next(self._numbers), uid)
        heappush(self._heap, entry)
        self._sweep()

    def remove(self, uid: str) -> None:
        """Take a pod out, if it is there."""
        if self._entries.pop(uid, None) is not None:
            self._sweep()

    def peek(self) -> tuple[Key, str] | None:
        """Return (key, uid) of the first, which stays; None when empty."""
        heap, entries = self._heap, self._entries
        while heap:
            key, _, uid = heap[0]
            if entries.get(uid) is heap[0]:
                return key, uid
            heappop(heap)
        return None

    def pop(self) -> str | None:
        """Take out the first; None when empty."""
        first = self.peek()
        if first is None:
            return None
        heappop(self._heap)
        del self._entries[first[1]]
        return first[1]

    def turn_of(self, uid: str) -> int | None:
        """Return how many come before a pod; None if it is not there."""
        entry = self._entries.get(uid)
        return None if entry is None else sum(each < entry for each in self._entries.values())

    def in_turn(self) -> list[tuple[str, Key]]:
        """Return all with their keys, the first first."""
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
