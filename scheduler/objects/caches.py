"""Caches with a limit: by the number of entries, or by the bytes of parsed values."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """A dictionary that drops its oldest entry when it would exceed its limit.

    Setting an entry makes it the newest one. `move_to_end` does the same for a use, and thus keeps the entries that
    were used last. Every operation takes O(1); in a plain dictionary, finding the oldest entry takes O(n) after removals.

    Args:
        most: the maximum number of entries.
        dropped: is called with the key and the value of a dropped entry.
    """

    __slots__ = ("_dropped", "_most")

    def __init__(self, most: int, dropped: Callable[[K, V], object] | None = None) -> None:
        super().__init__()
        self._most, self._dropped = most, dropped

    def __setitem__(self, key: K, value: V) -> None:
        OrderedDict.__setitem__(self, key, value)  # super() takes longer
        self.move_to_end(key)
        if len(self) > self._most:
            oldest = self.popitem(last=False)
            if self._dropped is not None:
                self._dropped(*oldest)


ENTRY_BYTES: Final = 512
"""Approximate size of an entry, without its text."""
PARSED: Final = 8
"""Approximate ratio of a parsed Python object's size to the length of its text."""
_BUDGET: Final = 16 * 1024 * 1024
_LARGEST_SHARE: Final = 16


class Remembered(Generic[K, V]):
    """A cache by written value; when it is full, all entries are removed.

    Args:
        budget_bytes: limit of all entries together; an entry of more than a sixteenth of it is not kept.
    """

    __slots__ = ("_budget", "_values", "bytes", "get")

    def __init__(self, budget_bytes: int = _BUDGET) -> None:
        self._budget = budget_bytes
        self._values: dict[K, V] = {}
        self.bytes = 0
        self.get = self._values.get

    def keep(self, key: K, value: V, written: int) -> V:
        """Store a value, and return it; `written` is the number of characters it was parsed from."""
        size = ENTRY_BYTES + PARSED * written
        if size <= self._budget // _LARGEST_SHARE:
            if self.bytes + size > self._budget:
                self.clear()
            self._values[key] = value
            self.bytes += size
        return value

    def clear(self) -> None:
        """Remove all entries."""
        self._values.clear()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)
