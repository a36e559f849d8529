"""What was computed before, for who writes the same: kept up to a number of bytes, since users say how long things are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

ENTRY_BYTES: Final = 512
"""What an entry takes beside what was written, about."""
PARSED: Final = 8
"""How many times as long as what is written is what it means, as objects of Python, about."""
_BUDGET: Final = 16 * 1024 * 1024
_LARGEST_SHARE: Final = 16


class Remembered(Generic[K, V]):
    """Values by what is written; when it is full, all go.

    Args:
        budget_bytes: for all of them together; one that takes a sixteenth of it is not kept.
    """

    __slots__ = ("_budget", "_values", "bytes", "get")

    def __init__(self, budget_bytes: int = _BUDGET) -> None:
        self._budget = budget_bytes
        self._values: dict[K, V] = {}
        self.bytes = 0
        self.get = self._values.get

    def keep(self, key: K, value: V, written: int) -> V:
        """Keep a value, and return it; `written` is how many characters it was read from."""
        size = ENTRY_BYTES + PARSED * written
        if size <= self._budget // _LARGEST_SHARE:
            if self.bytes + size > self._budget:
                self.clear()
            self._values[key] = value
            self.bytes += size
        return value

    def clear(self) -> None:
        """Let go of all."""
        self._values.clear()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)
