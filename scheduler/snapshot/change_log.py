"""A log of changed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORTEST = 1024
"""Minimum number of logged changes; the log keeps at least one change per node. Later readers must read all rows."""


class ChangeLog:
    """Row numbers in the order of their changes; each change adds an entry.

    Attributes:
        end: the number of changes so far; a reader passes it to `since` the next time.
    """

    __slots__ = ("_rows", "_start", "end")

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._start = 0  # the number of dropped changes
        self.end = 0

    def note(self, row: int, n_nodes: int) -> None:
        """Log the change of a row; `n_nodes` is the number of nodes."""
        self._rows.append(row)
        self.end += 1
        if len(self._rows) > 2 * max(_SHORTEST, n_nodes):
            forgotten = len(self._rows) // 2
            del self._rows[:forgotten]
            self._start += forgotten

    def since(self, seen: int) -> Sequence[int] | None:
        """Return the rows that changed since `end` was `seen`; None if these changes are no longer logged."""
        if seen < self._start:
            return None
        return self._rows[seen - self._start :]
