"""A dictionary with a limit, for caches whose keys users or clients choose."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

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
