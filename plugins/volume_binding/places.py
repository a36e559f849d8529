"""From which nodes a thing can be reached, and which of many things each node reaches.

A local volume is reached from one node, so a cluster of thousands of nodes has thousands of them. They are filed by the
labels that choose their node, and each node knows where its own are; nobody compares nodes with volumes pair by pair.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import lru_cache, reduce
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from scheduler.objects.selectors import NodeRule, NodeSelector, Operator, node_rules
from scheduler.snapshot import nodes_of_any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.storage import PersistentVolume
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot
    from scheduler.snapshot.change_log import ChangeLog

K = TypeVar("K")

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

    __slots__ = ("_by_labels", "_others")

    def __init__(self) -> None:
        self._by_labels: dict[tuple[str, ...], _Drawer] = {}  # by the keys of the labels that choose nodes
        self._others: dict[Reach, list[int]] = {}  # ascending, at least one

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

    def remove(self, number: int, reach: Reach) -> None:
        """Take a thing out that was filed so."""
        rule = _exact_rule(reach)
        if rule is None:
            _take_out(self._others, reach, number)
            return
        for values in _values(rule):
            self._by_labels[_keys(rule)].remove(number, values)

    def first(self, snapshot: Snapshot, count: int = 1) -> Int64s:
        """Return the smallest numbers each node reaches: int64 (count, n_nodes), ascending, NONE where there are fewer."""
        parts = [drawer.first(snapshot, count) for drawer in self._by_labels.values()]
        for reach, numbers in self._others.items():
            there = np.full((count, snapshot.n_nodes), NONE, dtype=np.int64)
            for place, number in enumerate(numbers[:count]):
                there[place, nodes_in(snapshot, reach)] = number
            parts.append(there)
        return reduce(_smallest, parts or [np.full((count, snapshot.n_nodes), NONE, dtype=np.int64)])


_MOST_COMBINATIONS = 64
"""Rules that more values fulfil than so many are asked one by one."""

Values = tuple[str | None, ...]
"""The values of some labels, in the order of their keys; None where a node has none."""


class _Drawer:
    """Things on nodes with certain values of some labels.

    Each combination of values has a column, and of each node is known which is its own.
    """

    __slots__ = ("_best", "_column_of_row", "_columns", "_keys", "_log", "_numbers", "_seen")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._numbers: dict[Values, list[int]] = {}  # ascending, at least one
        self._columns: dict[Values, int] = {}
        self._best: Int64s = np.full((1, 64), NONE, dtype=np.int64)  # by column: the first numbers, or NONE
        self._column_of_row: Rows = np.zeros(0, dtype=np.intp)
        self._log: ChangeLog | None = None  # what was followed
        self._seen = 0

    def add(self, number: int, values: Values) -> None:
        insort(self._numbers.setdefault(values, []), number)
        self._show(values)

    def remove(self, number: int, values: Values) -> None:
        _take_out(self._numbers, values, number)
        self._show(values)

    def first(self, snapshot: Snapshot, count: int) -> Int64s:
        """Return int64 (count, n_nodes); see `Places.first`."""
        if count > len(self._best):
            self._best = np.full((count, self._best.shape[1]), NONE, dtype=np.int64)
            for values in self._numbers:
                self._show(values)
        columns = self._columns_of(snapshot)  # which may add some
        return self._best[:count, columns]

    def _show(self, values: Values) -> None:
        """Put the first numbers of a combination into its column."""
        column = self._column(values)
        shown = self._numbers.get(values, [])[: len(self._best)]
        self._best[: len(shown), column] = shown
        self._best[len(shown) :, column] = NONE

    def _column(self, values: Values) -> int:
        column = self._columns.setdefault(values, len(self._columns))
        if column == self._best.shape[1]:
            self._best = np.concatenate([self._best, np.full_like(self._best, NONE)], axis=1)
        return column

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
        self._best[:] = NONE
        self._log = None
        for values in self._numbers:
            self._show(values)


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


def _take_out(filed: dict[K, list[int]], place: K, number: int) -> None:
    numbers = filed[place]
    del numbers[bisect_left(numbers, number)]
    if not numbers:
        del filed[place]


def _smallest(some: Int64s, more: Int64s) -> Int64s:
    """Return the smallest numbers of two arrays (count, n_nodes), each ascending."""
    if len(some) == 1:
        return np.minimum(some, more)
    both: Int64s = np.sort(np.concatenate([some, more]), axis=0)[: len(some)]
    return both
