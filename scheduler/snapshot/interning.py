"""Strings, and tuples of them, as small integers.

A cluster of thousands of nodes has a handful of distinct taints or zones. A rule is then judged once per
distinct value, and the verdict spread over the nodes by one array look-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from scheduler.snapshot.arrays import Column

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T", bound="Hashable")


class InternedColumn(Generic[T]):
    """One value per row, stored as the value's number.

    Numbers of values that no row holds any more are given to new values, so that the table stays as small as
    the cluster was ever diverse at one moment.

    Attributes:
        codes: int32, one per row: places in `values`.
        values: the distinct values; a place that no row points to holds a value of the past.
    """

    __slots__ = ("_code_of", "_free", "_holders", "codes", "values")

    def __init__(self, initial: T) -> None:
        self.codes: Column[np.int32] = Column(np.int32)
        self.values: list[T] = [initial]  # rows not yet set hold this one
        self._code_of: dict[T, int] = {initial: 0}
        self._holders: list[int] = [1]  # the initial value is never given up
        self._free: list[int] = []

    def set(self, row: int, value: T) -> None:
        """Put a value into a row."""
        code = self._code_of.get(value)
        if code is None:
            code = self._new_code(value)
        cells = self.codes.cells
        old = int(cells[row])
        if code != old:
            self._holders[code] += 1
            self._release(old)
            cells[row] = code

    def clear(self, row: int) -> None:
        """Put the initial value back into a row that goes away."""
        self._release(int(self.codes.cells[row]))
        self.codes.cells[row] = 0

    def _new_code(self, value: T) -> int:
        if self._free:
            code = self._free.pop()
            self.values[code] = value
            self._holders[code] = 0
        else:
            code = len(self.values)
            self.values.append(value)
            self._holders.append(0)
        self._code_of[value] = code
        return code

    def _release(self, code: int) -> None:
        if code == 0:
            return
        self._holders[code] -= 1
        if self._holders[code] == 0:
            del self._code_of[self.values[code]]
            self._free.append(code)
