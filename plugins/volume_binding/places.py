"""From which nodes a thing can be reached, and which of many things each node reaches.

A local volume is reached from one node, so a cluster of thousands of nodes has thousands of them. They are filed by the
labels that choose their node, and each node knows where its own are; nobody compares nodes with volumes pair by pair.
"""

from __future__ import annotations

from bisect import insort
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.objects.selectors import NodeRule, NodeSelector, Operator, node_rules
from scheduler.snapshot import nodes_of_any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.storage import PersistentVolume
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot
    from scheduler.snapshot.change_log import ChangeLog

Reach = tuple[NodeRule, ...] | None
"""The nodes that reach something: any of the rules has to hold. None is all of them."""

NONE: Final = (1 << 62) - 1
"""No number: beyond all others."""


def reach_of(volume: PersistentVolume) -> Reach:
    """Return the nodes that reach a volume.

    Source:
        kube-scheduler v1.36, component-helpers/storage/volume/helpers.go, CheckNodeAffinity.
    """
    affinity = volume.spec.node_affinity
    return None if affinity is None or affinity.required is None else rules_of(affinity.required)


@lru_cache(maxsize=16_384)
def rules_of(selector: NodeSelector) -> tuple[NodeRule, ...]:
    """Return the rules about labels: storage is compared with nodes that have nothing else, and no name to be refused for."""
    return tuple(NodeRule(rule.labels) for rule in node_rules(selector))


def reaches(reach: Reach, labels: Mapping[str, str]) -> bool:
    """Say whether a node with these labels is one of them."""
    return reach is None or any(rule.matches("", labels) for rule in reach)


def nodes_in(snapshot: Snapshot, reach: Reach) -> Bools:
    """Return bool (n_nodes,), where a node is one of them."""
    return np.ones(snapshot.n_nodes, dtype=np.bool_) if reach is None else nodes_of_any(snapshot, reach)


class Places:
    """Numbered things, filed by the nodes that reach them."""

    __slots__ = ("_by_labels", "_nodes", "_others")

    def __init__(self) -> None:
        self._by_labels: dict[tuple[str, ...], _Drawer] = {}  # by the keys of the labels that choose nodes
        self._others: dict[Reach, list[int]] = {}  # ascending, at least one
        # When the rows were found, and the rows.
        self._nodes: dict[Reach, tuple[tuple[ChangeLog, int, int], Rows]] = {}

    def add(self, number: int, reach: Reach) -> None:
        """File a thing."""
        rule = _exact_rule(reach)
        if rule is None:
            insort(self._others.setdefault(reach, []), number)
            return
        drawer = self._by_labels.get(_keys(rule))
        if drawer is None:
            drawer = self._by_labels[_keys(rule)] = _Drawer(_keys(rule))
        for values in _values(rule):
            drawer.add(number, values)

    def first(self, snapshot: Snapshot, fitting: Bools, numbers: Int64s | int = 0) -> Int64s:
        """Return the smallest number each node reaches, int64 (n_nodes,); NONE where there is none.

        Args:
            snapshot: the cluster.
            fitting: bool (n,), by number, the things that count.
            numbers: the smallest numbers that count, of all nodes or of each, (n_nodes,).
        """
        if isinstance(numbers, int):
            fitting = fitting.copy()
            fitting[:numbers] = False
        at_least = None if isinstance(numbers, int) else np.minimum(numbers, _LAST)
        found = np.full(snapshot.n_nodes, NONE, dtype=np.int64)
        for drawer in self._by_labels.values():
            np.minimum(found, drawer.first(snapshot, fitting, at_least), out=found)
        for reach, filed in self._others.items():
            there = np.array(filed, dtype=np.int64)
            there = np.append(there[fitting[there]], NONE)
            if len(there) > 1:
                nodes = self._nodes_in(snapshot, reach)
                places = 0 if at_least is None else np.searchsorted(there, at_least[nodes])
                found[nodes] = np.minimum(found[nodes], there[places])
        return found

    def highest(self, snapshot: Snapshot, values: Int64s) -> Int64s:
        """Return int64 (n_nodes,), the highest value of what each node reaches; -1 where that is nothing.

        Args:
            snapshot: the cluster.
            values: int64 (n,), by number; -1 or higher.
        """
        found = np.full(snapshot.n_nodes, -1, dtype=np.int64)
        for drawer in self._by_labels.values():
            np.maximum(found, drawer.highest(snapshot, values), out=found)
        for reach, filed in self._others.items():
            nodes = self._nodes_in(snapshot, reach)
            found[nodes] = np.maximum(found[nodes], values[filed].max())
        return found

    def _nodes_in(self, snapshot: Snapshot, reach: Reach) -> Rows:
        """Return the rows that reach what is filed under it, looked for again when nodes changed."""
        log = snapshot.node_changes
        if log is None:
            return np.flatnonzero(nodes_in(snapshot, reach))
        seen = log, log.end, snapshot.n_nodes  # that the last node goes is in no log
        known = self._nodes.get(reach)
        if known is None or known[0] != seen:
            known = self._nodes[reach] = seen, np.flatnonzero(nodes_in(snapshot, reach))
        return known[1]


_BITS: Final = 31
_LAST: Final = (1 << _BITS) - 1
"""No number is larger."""
_MOST_COMBINATIONS = 64
"""Rules that more values fulfil than so many are asked one by one."""

Values = tuple[str | None, ...]
"""The values of some labels, in the order of their keys; None where a node has none."""


class _Drawer:
    """Things on nodes with certain values of some labels.

    Each combination of values has a column, and of each node is known which is its own.
    """

    __slots__ = ("_column_of_row", "_columns", "_entries", "_keys", "_log", "_numbers", "_seen")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._numbers: dict[Values, list[int]] = {}  # ascending, at least one
        self._columns: dict[Values, int] = {}
        self._entries: Int64s | None = None  # columns and numbers, ascending; see `_entry`
        self._column_of_row: Rows = np.zeros(0, dtype=np.intp)
        self._log: ChangeLog | None = None  # what was followed
        self._seen = 0

    def add(self, number: int, values: Values) -> None:
        insort(self._numbers.setdefault(values, []), number)
        self._entries = None

    def first(self, snapshot: Snapshot, fitting: Bools, at_least: Int64s | None) -> Int64s:
        """Return int64 (n_nodes,); see `Places.first`. Without smallest numbers of each node all that fit count."""
        columns = self._columns_of(snapshot)  # which may add some
        entries = self._all_entries()
        entries = entries[fitting[entries & _LAST]]
        if at_least is None:
            best = np.full(len(self._columns), NONE, dtype=np.int64)
            entries = entries[::-1]  # of several in a column the one written last stays
            best[entries >> _BITS] = entries & _LAST
            return best[columns]
        wanted = columns.astype(np.int64)
        entries = np.append(entries, -1)
        found = entries[np.searchsorted(entries[:-1], wanted << _BITS | at_least)]
        return np.where(found >> _BITS == wanted, found & _LAST, NONE)

    def highest(self, snapshot: Snapshot, values: Int64s) -> Int64s:
        """Return int64 (n_nodes,); see `Places.highest`."""
        columns = self._columns_of(snapshot)
        entries = self._all_entries()
        of_column = np.full(len(self._columns), -1, dtype=np.int64)
        np.maximum.at(of_column, entries >> _BITS, values[entries & _LAST])
        return of_column[columns]

    def _all_entries(self) -> Int64s:
        """Return int64, one for each thing in each column, ascending: the column, and in the lower bits the number."""
        if self._entries is None:
            entries = [
                self._column(values) << _BITS | number
                for values, numbers in self._numbers.items()
                for number in numbers
            ]
            self._entries = np.sort(np.array(entries, dtype=np.int64))
        return self._entries

    def _column(self, values: Values) -> int:
        return self._columns.setdefault(values, len(self._columns))

    def _columns_of(self, snapshot: Snapshot) -> Rows:
        """Return the column of each node; only nodes that changed are looked at again."""
        n_nodes, log = snapshot.n_nodes, snapshot.node_changes
        if log is None:
            return np.array([self._column(self._values_of(node)) for node in snapshot.nodes], dtype=np.intp)
        if len(self._columns) > 1024 + 4 * (n_nodes + len(self._numbers)):
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
        """Let go of the values of nodes that are gone."""
        self._columns.clear()
        self._entries = None
        self._log = None


def _exact_rule(reach: Reach) -> NodeRule | None:
    """Return the rule that is all there is, and names the values of labels; None where it is said in another way."""
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
