"""Type aliases of arrays in interfaces, a column that grows, and a log of changed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Bools = NDArray[np.bool_]
UInt16s = NDArray[np.uint16]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Rows = NDArray[np.intp]
"""Row numbers, ascending."""

S = TypeVar("S", bound=np.generic)

_SMALLEST = 16


class Column(Generic[S]):
    """A contiguous array with free capacity; rows beyond the length are zero.

    Attributes:
        cells: all cells, writable; growth replaces the array.
    """

    __slots__ = ("_shown", "cells")

    def __init__(self, dtype: type[S], length: int = 0) -> None:
        self.cells: NDArray[S] = np.zeros(max(length, _SMALLEST), dtype=dtype)
        self._shown: NDArray[S] = self.cells[:0]

    def reserve(self, length: int) -> None:
        """Ensure capacity for `length` rows; after a growth, earlier views show the old cells."""
        if length > len(self.cells):
            grown = np.zeros(max(length, 2 * len(self.cells)), dtype=self.cells.dtype)
            grown[: len(self.cells)] = self.cells
            self.cells = grown

    def view(self, length: int) -> NDArray[S]:
        """Return a read-only view of the first `length` rows; it shows later writes until the column grows."""
        if len(self._shown) != length or self._shown.base is not self.cells:
            self._shown = self.cells[:length]
            self._shown.flags.writeable = False
        return self._shown


def selected(values: NDArray[S], mask: Bools) -> NDArray[S]:
    """Return `values[mask]`. NumPy's own selection takes ten times as long if the mask has no pattern, because it branches on each bit."""
    return values.take(mask.nonzero()[0])


def put_where(numbers: NDArray[Any], mask: Bools, values: NDArray[Any] | int) -> None:
    """Assign `numbers[mask] = values[mask]` without a branch for each element, for the same reason as in `selected`."""
    numbers *= ~mask
    numbers += np.multiply(values, mask, dtype=numbers.dtype, casting="unsafe")


def own(numbers: NDArray[Any], highest: int = 0) -> NDArray[Any]:
    """Return an array that may be changed: the same one, or a copy if it is read-only, because it is shared.

    Args:
        numbers: one or two bytes each.
        highest: a number that it must have room for.
    """
    if highest > _MOST_IN_A_BYTE and highest > np.iinfo(numbers.dtype).max:
        return numbers.astype(f"{numbers.dtype.kind}2")
    return numbers if numbers.flags.writeable else numbers.copy()


_MOST_IN_A_BYTE = 127


def shared(numbers: NDArray[S]) -> NDArray[S]:
    """Make an array read-only, so that several owners can share it, and return it; `own` returns a copy to change."""
    numbers.flags.writeable = False
    return numbers


def wrapped(number: int) -> int:
    """Return a number as a 64-bit integer that wraps around as in Go; NumPy would warn."""
    if -(1 << 63) <= number < 1 << 63:
        return number
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


_KEPT_BYTES = 256 * 1024 * 1024
_FEWEST_KEPT = 16


def most_kept(most: int, n_nodes: int, bytes_of_a_node: int) -> int:
    """Return how many results for all nodes a cache keeps: `most`, and in a large cluster as many as fit in 256 MiB.

    Args:
        most: the limit in small clusters, where more would not be found again before they are outdated.
        n_nodes: the number of nodes.
        bytes_of_a_node: the memory of one result for one node.
    """
    return min(most, max(_FEWEST_KEPT, _KEPT_BYTES // (bytes_of_a_node * max(1, n_nodes))))


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
        """Return the rows that changed since `end` was `seen`, some of which may have been removed since.

        None if these changes are no longer logged.
        """
        if seen < self._start:
            return None
        return self._rows[seen - self._start :]
