"""Which rows changed since somebody last looked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORTEST = 1024
"""So many changes are remembered at least; beyond that, as many as there are nodes: whoever missed more looks at all."""


class ChangeLog:
    """Row numbers in the order in which the rows changed; a row is there as often as it changed.

    Attributes:
        end: how many changes there were; whoever looks remembers it until the next time.
    """

    __slots__ = ("_rows", "_start", "end")

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._start = 0  # how many changes are forgotten
        self.end = 0

    def note(self, row: int, n_nodes: int) -> None:
        """Note that a row changed; `n_nodes` is how many nodes there are."""
        self._rows.append(row)
        self.end += 1
        if len(self._rows) > 2 * max(_SHORTEST, n_nodes):
            forgotten = len(self._rows) // 2
            del self._rows[:forgotten]
            self._start += forgotten

    def since(self, seen: int) -> Sequence[int] | None:
        """Return the rows that changed since `end` was `seen`; None if that is too long ago to tell."""
        if seen < self._start:
            return None
        return self._rows[seen - self._start :]
