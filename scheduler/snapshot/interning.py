"""Interns strings, and tuples of strings, as small integers, and the names that nodes have.

A cluster of thousands of nodes has few distinct taints or zones. A rule is evaluated once per distinct value, and one
array lookup copies the results to the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from scheduler.objects.selectors import parse_int64
from scheduler.snapshot.arrays import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from scheduler.snapshot.arrays import Bools, Int32s, Int64s, Rows

T = TypeVar("T", bound="Hashable")
S = TypeVar("S", bound=np.generic)


Numbers = tuple["Bools", "Int64s"]

_FEW_VALUES = 4
_MOST_FREE = 64
"""Number of unused values that does not cause a compaction."""


class InternedColumn(Generic[T]):
    """One value per row, stored as the value's number.

    Numbers of unused values are reused for new values. If most values are unused, all values are renumbered, so that
    the size of the table follows the number of distinct values.

    Attributes:
        codes: int32, one per row: positions in `values`.
        values: the distinct values; some positions hold unused values.
        code_of: value -> its position, without unused values.
    """

    __slots__ = ("_free", "_holders", "_numbers", "code_of", "codes", "values")

    def __init__(self, initial: T) -> None:
        self.codes: Column[np.int32] = Column(np.int32)
        self.values: list[T] = [initial]  # rows not yet set hold this one
        self.code_of: dict[T, int] = {initial: 0}
        self._holders: list[int] = [1]  # the initial value is never removed
        self._free: list[int] = []
        self._numbers: Numbers | None = None

    def set(self, row: int, value: T) -> None:
        """Put a value into a row."""
        code = self.code_of.get(value)
        if code is None:
            code = self._new_code(value)
        cells = self.codes.cells
        old = int(cells[row])
        if code != old:
            self._holders[code] += 1
            cells[row] = code
            self._release(old)
            self._compact_if_sparse()

    def shown(self, length: int) -> Interned[T]:
        """Return the first `length` rows for a snapshot."""
        return Interned(self.codes.view(length), self.values, self.code_of, self.numbers)

    def numbers(self) -> Numbers:
        """Return the numeric values; see `Interned.numbers`."""
        if self._numbers is None:
            self._numbers = _numbers(self.values)
        return self._numbers

    def clear(self, row: int) -> None:
        """Restore the initial value in a removed row."""
        old = int(self.codes.cells[row])
        self.codes.cells[row] = 0
        self._release(old)
        self._compact_if_sparse()

    def _new_code(self, value: T) -> int:
        self._numbers = None
        if self._free:
            code = self._free.pop()
            self.values[code] = value
            self._holders[code] = 0
        else:
            code = len(self.values)
            self.values.append(value)
            self._holders.append(0)
        self.code_of[value] = code
        return code

    def _release(self, code: int) -> None:
        if code == 0:
            return
        self._holders[code] -= 1
        if self._holders[code] == 0:
            del self.code_of[self.values[code]]
            self._free.append(code)

    def _compact_if_sparse(self) -> None:
        if len(self._free) > max(_MOST_FREE, len(self.values) // 2):
            self._compact()

    def _compact(self) -> None:
        """Drop the unused values."""
        self._numbers = None
        kept = sorted(self.code_of.values())
        new_code = np.zeros(len(self.values), dtype=np.int32)
        new_code[kept] = np.arange(len(kept))
        self.codes.cells[:] = new_code[self.codes.cells]
        self.values = [self.values[code] for code in kept]
        self.code_of = {value: code for code, value in enumerate(self.values)}
        self._holders = [self._holders[code] for code in kept]
        self._free = []


def _numbers(values: Sequence[Any]) -> Numbers:
    read = [parse_int64(value) if isinstance(value, str) else None for value in values]
    is_number = np.array([number is not None for number in read], dtype=np.bool_)
    return is_number, np.array([number or 0 for number in read], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Interned(Generic[T]):
    """One value per node, as a number into a table of the distinct ones.

    Attributes:
        codes: int32 (n_nodes,), positions in `values`.
        values: the distinct values, in no order; some may be unused.
        code_of: value -> its position, of all values in use; None if it is not available.
        find_numbers: returns the cached result of `numbers`; None if there is no cache.
    """

    codes: Int32s
    values: Sequence[T]
    code_of: Mapping[T, int] | None = None
    find_numbers: Callable[[], Numbers] | None = None

    def take(self, rows: Rows) -> Interned[T]:
        """Return the values of some nodes, in the order of `rows`."""
        return Interned(self.codes[rows], self.values, self.code_of, self.find_numbers)

    def numbers(self) -> Numbers:
        """Return which distinct values are 64-bit integers, parsed as in Go, and these integers.

        Returns:
            bool and int64, both by position in `values`; the integer is 0 for other values.
        """
        return _numbers(self.values) if self.find_numbers is None else self.find_numbers()

    def spread(self, verdicts: ArrayLike) -> NDArray[Any]:
        """Convert one result per distinct value into one per node, (n_nodes,)."""
        spread: NDArray[Any] = np.asarray(verdicts).take(self.codes)
        return spread

    def where(self, marked: Bools) -> Bools:
        """Return where a node's value is marked, bool (n_nodes,); `marked` is by position in `values`."""
        for found, answer in ((marked, True), (~marked, False)):
            if np.count_nonzero(found) <= _FEW_VALUES:
                # To compare the nodes with each of them takes less time.
                here = np.zeros(len(self.codes), dtype=np.bool_)
                for code in np.flatnonzero(found).tolist():
                    here |= self.codes == code
                return here if answer else ~here
        there: Bools = marked.take(self.codes)
        return there

    def among(self, values: Collection[T]) -> Bools:
        """Return where a node's value is among `values`, bool (n_nodes,); the cost is linear in the values or in n_nodes."""
        if self.code_of is None or len(values) > len(self.values):
            return self.judge(values.__contains__)
        verdicts = np.zeros(len(self.values), dtype=np.bool_)
        verdicts[[self.code_of[value] for value in values if value in self.code_of]] = True
        return self.where(verdicts)

    def judge(self, rule: Callable[[T], bool]) -> Bools:
        """Return a rule's result for each node's value, bool (n_nodes,); the rule runs once per distinct value."""
        return self._each(rule, np.bool_)

    def measure(self, rule: Callable[[T], int]) -> Int64s:
        """Return a rule's number for each node's value, int64 (n_nodes,); the rule runs once per distinct value."""
        return self._each(rule, np.int64)

    def _each(self, rule: Callable[[T], Any], dtype: type[S]) -> NDArray[S]:
        if len(self.codes) < len(self.values):  # few nodes of a cluster with many distinct values
            present, places = np.unique(self.codes, return_inverse=True)
            few = np.array([rule(self.values[code]) for code in present.tolist()], dtype=dtype)
            return few[places]
        verdicts = [rule(value) for value in self.values]
        if verdicts.count(verdicts[0]) == len(verdicts):
            return np.full(len(self.codes), verdicts[0], dtype=dtype)  # far cheaper than a lookup per node
        return np.array(verdicts, dtype=dtype).take(self.codes)


class NamesInUse:
    """Names, with the number of nodes that have each name."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def count(self, name: str) -> int:
        """Return the number of nodes that have a name."""
        return self._nodes.get(name, 0)

    def add(self, names: Iterable[str]) -> list[str]:
        """Count names of a node, and return the names that no node had before."""
        nodes, fresh = self._nodes, []
        for name in names:
            if name in nodes:
                nodes[name] += 1
            else:
                nodes[name] = 1
                fresh.append(name)
        return fresh

    def remove(self, names: Iterable[str]) -> list[str]:
        """Stop counting names of a node, and return the names that no node has any more."""
        nodes, gone = self._nodes, []
        for name in names:
            nodes[name] -= 1
            if not nodes[name]:
                del nodes[name]
                gone.append(name)
        return gone
