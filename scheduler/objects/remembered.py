"""A cache of parsed values with a limit in bytes, because users control the length of the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

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
