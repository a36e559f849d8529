"""Evaluates node selectors: each requirement is evaluated once for each distinct value of its label.

A requirement on a label that no node has needs no loop over nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scheduler.objects.selectors import Operator
from scheduler.snapshot.node_tally import NUMBERS, nodes_with_field, nodes_with_label

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from scheduler.objects.selectors import NodeRule, RequiredNodeAffinity, Requirement
    from scheduler.snapshot.arrays import Bools, Int64s, Rows
    from scheduler.snapshot.interning import Interned
    from scheduler.snapshot.snapshot import Snapshot


def nodes_required(snapshot: Snapshot, affinity: RequiredNodeAffinity) -> Bools:
    """Return bool (n_nodes,), the nodes that match a pod's nodeSelector and required node affinity."""
    chosen = nodes_with_labels(snapshot, affinity.labels)
    if affinity.terms is not None:
        chosen &= nodes_of_any(snapshot, affinity.terms)
    return chosen


def nodes_of_any(snapshot: Snapshot, rules: Iterable[NodeRule]) -> Bools:
    """Return bool (n_nodes,), the nodes that match any of the terms."""
    chosen = np.zeros(snapshot.n_nodes, dtype=np.bool_)
    for _, nodes in _nodes_of_each(snapshot, list(rules)):
        chosen[nodes] = True
        if nodes.dtype == np.bool_ and chosen.all():
            break
    return chosen


def nodes_of(snapshot: Snapshot, rule: NodeRule) -> Bools:
    """Return bool (n_nodes,), the nodes that match a node selector term."""
    chosen = nodes_with_labels(snapshot, rule.labels)
    for requirement in rule.fields:
        chosen &= nodes_with_field(snapshot, requirement)
    return chosen


def weigh_nodes(snapshot: Snapshot, rules: Iterable[tuple[int, NodeRule]]) -> Int64s:
    """Return int64 (n_nodes,), the sums of the weights of matching terms; `rules` are (weight, term)."""
    same_everywhere = 0
    of_labels: defaultdict[str, _Weights] = defaultdict(_Weights)
    others: Counter[NodeRule] = Counter()
    for weight, rule in rules:
        if len(rule.labels) == 1 and not rule.fields:
            same_everywhere += of_labels[rule.labels[0].key].add(weight, rule.labels[0])
        else:
            others[rule] += weight
    total = np.full(snapshot.n_nodes, same_everywhere, dtype=np.int64)
    for key, weights in of_labels.items():
        if snapshot.has_label(key):
            label = snapshot.label(key)
            total += label.measure(weights.of)
            if weights.bounds:
                total += label.spread(weights.of_numbers(*label.numbers()))
        else:
            total += weights.absent
    weights_of = list(others.values())
    for place, nodes in _nodes_of_each(snapshot, list(others)):
        total[nodes] += np.int64(weights_of[place])
    return total


@dataclass(slots=True)
class _Weights:
    """The weights of terms on a single label, without the constant part that all nodes have.

    Attributes:
        of_value: value of the label -> additional weight of a node with it.
        absent: additional weight of a node without the label.
        bounds: (operator, bound) -> additional weight of a node whose label is a number beyond the bound.
    """

    of_value: Counter[str] = field(default_factory=Counter)
    absent: int = 0
    bounds: Counter[tuple[Operator, int]] = field(default_factory=Counter)

    def add(self, weight: int, requirement: Requirement) -> int:
        """Add a term, and return the weight that it gives to all nodes."""
        operator = requirement.operator
        if operator in {Operator.IN, Operator.NOT_IN}:
            sign = 1 if operator is Operator.IN else -1
            for value in requirement.values:
                self.of_value[value] += sign * weight
        elif operator in NUMBERS:
            self.bounds[operator, requirement.bound] += weight
        else:
            self.absent += weight if operator is Operator.DOES_NOT_EXIST else -weight
        return weight if operator in {Operator.NOT_IN, Operator.EXISTS} else 0

    def of(self, value: str | None) -> int:
        return self.absent if value is None else self.of_value[value]

    def of_numbers(self, is_number: Bools, numbers: Int64s) -> Int64s:
        """Return int64, the additional weight for each number; 0 if `is_number` is false."""
        found = np.zeros(len(numbers), dtype=np.int64)
        for operator in NUMBERS:
            weighed = sorted(
                (bound, weight) for (its, bound), weight in self.bounds.items() if its is operator
            )
            bounds = np.array([bound for bound, _ in weighed], dtype=np.int64)
            sums = np.cumsum([0, *(weight for _, weight in weighed)], dtype=np.int64)
            if operator is Operator.GT:  # the sum of all bounds below a number
                found += sums[np.searchsorted(bounds, numbers, side="left")]
            else:
                found += sums[-1] - sums[np.searchsorted(bounds, numbers, side="right")]
        return found * is_number


_FEW_NODES = 4
"""A term with labels of at most this number of nodes is evaluated for these nodes only."""
_FEW_TERMS = 32
"""Up to this number of terms, all nodes are evaluated."""


def _nodes_of_each(snapshot: Snapshot, rules: Sequence[NodeRule]) -> Iterator[tuple[int, Bools | Rows]]:
    """Yield (position of a term, matching nodes as bool (n_nodes,) or as rows) of terms that may match any node.

    A pod may have thousands of terms. Most of them require labels of few nodes, and are evaluated only for these nodes.
    """
    rows_with: dict[str, _RowsOfValues] = {}
    for place, rule in enumerate(rules):
        if not _may_hold(snapshot, rule):
            continue
        named = _named(rule) if len(rules) > _FEW_TERMS else None
        if named is not None:
            if named.key not in rows_with:
                rows_with[named.key] = _RowsOfValues(snapshot.label(named.key))
            rows = rows_with[named.key].few(named.values)
            if rows is not None:
                nodes = [(row, snapshot.nodes[row]) for row in rows]
                holds = [row for row, node in nodes if rule.matches(node.name, node.labels)]
                if holds:
                    yield place, np.array(holds, dtype=np.intp)
                continue
        yield place, nodes_of(snapshot, rule)


def _named(rule: NodeRule) -> Requirement | None:
    """Return the In requirement of a term with the fewest values; None without such a requirement."""
    naming = [requirement for requirement in rule.labels if requirement.operator is Operator.IN]
    return min(naming, key=lambda requirement: len(requirement.values), default=None)


class _RowsOfValues:
    """The rows of nodes by value of a label."""

    def __init__(self, label: Interned[str | None]) -> None:
        self._label = label
        self._in_order = np.argsort(label.codes, kind="stable")
        self._starts = np.searchsorted(label.codes[self._in_order], np.arange(len(label.values) + 1)).tolist()

    def few(self, values: Collection[str]) -> list[int] | None:
        """Return the rows with one of the values; None if they may be more than _FEW_NODES."""
        code_of = self._label.code_of
        if code_of is None or len(values) > _FEW_NODES:
            return None
        codes = [code_of[value] for value in values if value in code_of]
        spans = [(self._starts[code], self._starts[code + 1]) for code in codes]
        if sum(end - start for start, end in spans) > _FEW_NODES:
            return None
        return [row for start, end in spans for row in self._in_order[start:end].tolist()]


def _may_hold(snapshot: Snapshot, rule: NodeRule) -> bool:
    """Return whether a term may match any node, without a loop over nodes."""
    return all(snapshot.has_label(requirement.key) or requirement.admits(None) for requirement in rule.labels)


def nodes_with_labels(snapshot: Snapshot, requirements: Iterable[Requirement]) -> Bools:
    """Return bool (n_nodes,), the nodes that match all requirements on labels; stops at one that matches no node."""
    chosen = np.ones(snapshot.n_nodes, dtype=np.bool_)
    for requirement in requirements:
        if snapshot.has_label(requirement.key):
            chosen &= nodes_with_label(snapshot.label(requirement.key), requirement)
        elif not requirement.admits(None):
            chosen[:] = False
            break
    return chosen
