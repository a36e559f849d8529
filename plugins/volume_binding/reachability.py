"""An index of numbered objects by the nodes that reach them.

A local volume is reached from one node, so a cluster of thousands of nodes has thousands of them. The index stores
them by the labels that select their node, and finds the objects of each node without comparing all pairs.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

from scheduler.objects.selectors import NodeRule, NodeSelector, Operator, node_rules
from scheduler.snapshot import nodes_of_any

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.storage import PersistentVolume
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot
    from scheduler.snapshot.arrays import ChangeLog

Reach = tuple[NodeRule, ...] | None
"""The nodes that reach an object: one of the rules has to match. None means all nodes."""

NONE: Final = (1 << 62) - 1
"""No number: larger than all numbers."""


def reach_of(volume: PersistentVolume) -> Reach:
    """Return the nodes that reach a volume.

    Source:
        kube-scheduler v1.36, component-helpers/storage/volume/helpers.go, CheckNodeAffinity.
    """
    affinity = volume.spec.node_affinity
    return None if affinity is None or affinity.required is None else rules_of(affinity.required)


@lru_cache(maxsize=16_384)
def rules_of(selector: NodeSelector) -> tuple[NodeRule, ...]:
    """Return the rules about labels: storage is matched against labels only, without node names."""
    return tuple(NodeRule(rule.labels) for rule in node_rules(selector))


def reaches(reach: Reach, labels: Mapping[str, str]) -> bool:
    """Return whether the rules include a node with these labels."""
    return reach is None or any(rule.matches("", labels) for rule in reach)


def nodes_in(snapshot: Snapshot, reach: Reach) -> Bools:
    """Return bool (n_nodes,), which nodes the rules include."""
    return np.ones(snapshot.n_nodes, dtype=np.bool_) if reach is None else nodes_of_any(snapshot, reach)


class ReachabilityIndex:
    """Numbered objects, indexed by the nodes that reach them."""

    __slots__ = ("_by_labels", "_others")

    def __init__(self) -> None:
        self._by_labels: dict[tuple[str, ...], _Drawer] = {}  # by the keys of the labels that choose nodes
        self._others = _Others()

    def add(self, number: int, reach: Reach) -> None:
        """Add an object."""
        rule = _exact_rule(reach)
        if rule is None:
            self._others.add(number, reach)
            return
        drawer = self._by_labels.get(_keys(rule))
        if drawer is None:
            drawer = self._by_labels[_keys(rule)] = _Drawer(_keys(rule))
        for values in _values(rule):
            drawer.add(number, values)

    def renumber(self, new: Int64s) -> None:
        """Renumber all objects, in the same order: `new` is int64 (n,), by old number."""
        for drawer in self._by_labels.values():
            drawer.renumber(new)
        self._others.renumber(new)

    def select(self, snapshot: Snapshot, fitting: Bools) -> Generator[None, None, Selection]:
        """Return, in steps, a selection of the objects: `fitting` is bool (n,), by number. Valid until nodes or numbers change."""
        found = [drawer.select(snapshot, fitting) for drawer in self._by_labels.values()]
        others = yield from self._others.select(snapshot, fitting)
        return Selection(snapshot.n_nodes, found, others)

    def first_on(self, snapshot: Snapshot, row: int, fitting: Bools, at_least: int) -> int | None:
        """Return the smallest number on one node, NONE if there is none; None if objects have to be compared with the node.

        Args:
            snapshot: the cluster.
            row: the node.
            fitting: bool (n,), the objects that count, by number.
            at_least: the smallest number that counts.
        """
        if self._others:
            return None
        found = [drawer.first_on(snapshot, row, fitting, at_least) for drawer in self._by_labels.values()]
        return min(found, default=NONE)

    def highest(self, snapshot: Snapshot, values: Int64s) -> Generator[None, None, Int64s]:
        """Return, in steps, the highest value among the objects that each node reaches, int64 (n_nodes,); -1 without objects.

        Args:
            snapshot: the cluster.
            values: int64 (n,), by number; -1 or higher.
        """
        found = np.full(snapshot.n_nodes, -1, dtype=np.int64)
        for drawer in self._by_labels.values():
            np.maximum(found, drawer.highest(snapshot, values), out=found)
        for nodes, numbers in (
            yield from self._others.select(snapshot, np.ones(len(values), dtype=np.bool_))
        ):
            found[nodes] = np.maximum(found[nodes], values[numbers].max())
            yield
        return found


class Selection:
    """A selection of the objects in `ReachabilityIndex`.

    Args:
        n_nodes: the number of nodes.
        on_labels: the objects on nodes with certain labels.
        others: rows, and the ascending numbers of the objects that these nodes reach.
    """

    __slots__ = ("_n_nodes", "_on_labels", "_others")

    def __init__(
        self, n_nodes: int, on_labels: Sequence[_InColumns], others: Sequence[tuple[Rows, Int64s]]
    ) -> None:
        self._n_nodes = n_nodes
        self._on_labels = on_labels
        self._others = [(nodes, np.append(numbers, NONE)) for nodes, numbers in others]

    def first(self, numbers: Int64s | int = 0) -> Generator[None, None, Int64s]:
        """Return, in steps, the smallest number that each node reaches, int64 (n_nodes,); NONE if there is none.

        Args:
            numbers: the smallest numbers that count, of all nodes or of each, (n_nodes,).
        """
        at_least = numbers if isinstance(numbers, int) else np.minimum(numbers, _LAST)
        found: Int64s | None = None
        for some in self._on_labels:
            best = some.first(at_least)
            found = best if found is None else np.minimum(found, best, out=found)
            yield
        if found is None:
            found = np.full(self._n_nodes, NONE, dtype=np.int64)
        for nodes, filed in self._others:
            starts = at_least if isinstance(at_least, int) else at_least[nodes]
            found[nodes] = np.minimum(found[nodes], filed[np.searchsorted(filed, starts)])
            yield
        return found


_BITS: Final = 31
_LAST: Final = (1 << _BITS) - 1
"""No number is larger."""
_MOST_COMBINATIONS = 64
"""A rule that more combinations of values match than this is evaluated by itself."""

Values = tuple[str | None, ...]
"""The values of some labels, in the order of their keys; None where a node has none."""
K = TypeVar("K", bound="Hashable")


class _Filed(Generic[K]):
    """Objects in columns, each of which has a key."""

    __slots__ = ("_added", "_columns", "_entries")

    def __init__(self) -> None:
        self._columns: dict[K, int] = {}
        # Columns, and numbers in the lower bits; ascending.
        self._entries: Int64s = np.zeros(0, dtype=np.int64)
        self._added: list[int] = []  # entries that are not merged yet

    def __len__(self) -> int:
        return len(self._entries) + len(self._added)

    def add(self, number: int, key: K) -> None:
        self._added.append(self._column(key) << _BITS | number)

    def renumber(self, new: Int64s) -> None:
        entries = self._all_entries()
        self._entries = entries & ~_LAST | new[entries & _LAST]

    def _all_entries(self) -> Int64s:
        if self._added:
            added = np.array(self._added, dtype=np.int64)
            self._entries = np.sort(np.concatenate((self._entries, added)))
            self._added = []
        return self._entries

    def _column(self, key: K) -> int:
        return self._columns.setdefault(key, len(self._columns))


class _Drawer(_Filed[Values]):
    """Objects on nodes with certain values of some labels.

    Each combination of values has a column, and each node belongs to one column.
    """

    __slots__ = ("_column_of_row", "_keys", "_log", "_seen")

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__()
        self._keys = keys
        self._column_of_row: Rows = np.zeros(0, dtype=np.intp)
        self._log: ChangeLog | None = None  # the log that was read
        self._seen = 0

    def select(self, snapshot: Snapshot, fitting: Bools) -> _InColumns:
        columns = self._columns_of(snapshot)  # may add columns
        entries = self._all_entries()
        return _InColumns(entries[fitting[entries & _LAST]], columns, len(self._columns))

    def first_on(self, snapshot: Snapshot, row: int, fitting: Bools, at_least: int) -> int:
        """Return the smallest number on one node; see `ReachabilityIndex.first_on`."""
        column = int(self._columns_of(snapshot)[row])
        entries = self._all_entries()
        start = entries.searchsorted(column << _BITS | at_least)
        numbers = entries[start : entries.searchsorted((column + 1) << _BITS)] & _LAST
        found = numbers[fitting[numbers]]
        return int(found[0]) if len(found) else NONE

    def highest(self, snapshot: Snapshot, values: Int64s) -> Int64s:
        """Return int64 (n_nodes,); see `ReachabilityIndex.highest`."""
        columns = self._columns_of(snapshot)
        entries = self._all_entries()
        of_column = np.full(len(self._columns), -1, dtype=np.int64)
        np.maximum.at(of_column, entries >> _BITS, values[entries & _LAST])
        return of_column[columns]

    def _columns_of(self, snapshot: Snapshot) -> Rows:
        """Return the column of each node; only nodes that have changed are read again."""
        n_nodes, log = snapshot.n_nodes, snapshot.node_changes
        if log is None:
            return np.array([self._column(self._values_of(node)) for node in snapshot.nodes], dtype=np.intp)
        if len(self._columns) > 1024 + 4 * (n_nodes + len(self._entries)):
            self._forget_values()
        rows = log.since(self._seen) if self._log is log else None
        self._log, self._seen = log, log.end
        if len(self._column_of_row) < n_nodes:
            self._column_of_row = np.resize(self._column_of_row, 2 * n_nodes)
        for row in range(n_nodes) if rows is None else rows:
            if row < n_nodes:
                self._column_of_row[row] = self._column(self._values_of(snapshot.nodes[row]))
        return self._column_of_row[:n_nodes]

    def _values_of(self, node: NodeObject) -> Values:
        return tuple([node.labels.get(key) for key in self._keys])

    def _forget_values(self) -> None:
        """Remove the values of deleted nodes."""
        entries = self._all_entries()
        used = np.unique(entries >> _BITS)
        values = list(self._columns)  # by column
        self._columns = {values[column]: new for new, column in enumerate(used.tolist())}
        self._entries = np.searchsorted(used, entries >> _BITS) << _BITS | entries & _LAST
        self._log = None


class _InColumns:
    """A selection of the objects in a drawer.

    Args:
        entries: the entries of the objects.
        column_of_row: (n_nodes,), the column of each node.
        n_columns: the number of columns.
    """

    __slots__ = ("_at_least", "_column_of_row", "_entries", "_n_columns", "_numbers", "_places")

    def __init__(self, entries: Int64s, column_of_row: Rows, n_columns: int) -> None:
        self._column_of_row, self._n_columns = column_of_row, n_columns
        self._entries = np.empty(len(entries) + 1, dtype=np.int64)
        self._entries[:-1], self._entries[-1] = entries, NONE
        self._numbers = self._entries & _LAST
        self._numbers[-1] = NONE
        # The arguments of the last call, and (n_nodes,), the indexes that it found.
        self._at_least: Int64s | int = 0
        self._places: Rows | None = None

    def first(self, at_least: Int64s | int) -> Int64s:
        """Return int64 (n_nodes,); see `Selection.first`."""
        columns = self._column_of_row
        if isinstance(at_least, int):
            places = np.arange(len(self._entries) - 1)[::-1]
            if at_least:
                places = places[self._numbers[places] >= at_least]
            first = np.full(self._n_columns, len(self._entries) - 1, dtype=np.intp)
            # Of several entries in a column the last one remains.
            first[self._entries[places] >> _BITS] = places
            self._at_least, self._places = at_least, first[columns]
            return self._numbers[self._places]
        self._places = self._places_from(columns << _BITS | at_least, at_least)
        self._at_least = at_least
        is_there = self._entries[self._places] >> _BITS == columns
        return np.where(is_there, self._numbers[self._places], NONE)

    def _places_from(self, wanted: Int64s, at_least: Int64s) -> Rows:
        """Return the indexes of the first entries not below the wanted ones; usually the next entry or the same one."""
        if self._places is not None and (at_least >= self._at_least).all():
            places = self._places + (self._entries[self._places] < wanted)
            if (self._entries[places] >= wanted).all():
                return places
        return np.searchsorted(self._entries, wanted)


class _Others(_Filed[Reach]):
    """Objects whose nodes are not selected by values of labels."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        super().__init__()
        # The version of the nodes, and the rows.
        self._nodes: dict[Reach, tuple[tuple[ChangeLog, int], Rows]] = {}

    def select(
        self, snapshot: Snapshot, fitting: Bools
    ) -> Generator[None, None, Sequence[tuple[Rows, Int64s]]]:
        """Return, in steps, rows and the numbers of the objects that they reach."""
        entries = self._all_entries()
        if not len(entries):
            return ()
        entries = entries[fitting[entries & _LAST]]
        columns, starts = np.unique(entries >> _BITS, return_index=True)
        reaches = list(self._columns) if len(columns) else []  # by column
        found = []
        for column, numbers in zip(columns.tolist(), np.split(entries & _LAST, starts[1:]), strict=False):
            found.append((self._nodes_in(snapshot, reaches[column]), numbers))
            yield
        return found

    def _nodes_in(self, snapshot: Snapshot, reach: Reach) -> Rows:
        """Return the rows that a reach includes; cached until nodes change."""
        log = snapshot.node_changes
        if log is None:
            return np.flatnonzero(nodes_in(snapshot, reach))
        seen = log, log.end
        known = self._nodes.get(reach)
        if known is None or known[0] != seen:
            known = self._nodes[reach] = seen, np.flatnonzero(nodes_in(snapshot, reach))
        return known[1]


def _exact_rule(reach: Reach) -> NodeRule | None:
    """Return the only rule if it selects values of labels; None otherwise."""
    if reach is None or len(reach) != 1 or not reach[0].labels:
        return None
    requirements = reach[0].labels
    if any(requirement.operator is not Operator.IN for requirement in requirements):
        return None
    if len({requirement.key for requirement in requirements}) < len(requirements):
        return None
    combinations = prod(len(requirement.values) for requirement in requirements)
    return reach[0] if combinations <= _MOST_COMBINATIONS else None


def _keys(rule: NodeRule) -> tuple[str, ...]:
    return tuple(requirement.key for requirement in rule.labels)


def _values(rule: NodeRule) -> Iterable[Values]:
    return product(*(requirement.values for requirement in rule.labels))
