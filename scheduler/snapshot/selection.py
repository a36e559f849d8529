"""Which nodes a selector chooses: each requirement is judged once for each distinct value of its label.

What is asked of a label that no node has is known without looking at nodes, so a selector costs by what nodes have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scheduler.objects.selectors import METADATA_NAME, Operator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.selectors import NodeRule, RequiredNodeAffinity, Requirement
    from scheduler.snapshot.arrays import Bools, Int64s
    from scheduler.snapshot.snapshot import Snapshot


def nodes_required(snapshot: Snapshot, affinity: RequiredNodeAffinity) -> Bools:
    """Return bool (n_nodes,), where a pod's nodeSelector and required node affinity hold."""
    chosen = _all_labels(snapshot, affinity.labels)
    if affinity.terms is not None:
        chosen &= nodes_of_any(snapshot, affinity.terms)
    return chosen


def nodes_of_any(snapshot: Snapshot, rules: Iterable[NodeRule]) -> Bools:
    """Return bool (n_nodes,), where any of the terms holds."""
    chosen = np.zeros(snapshot.n_nodes, dtype=np.bool_)
    for rule in rules:
        if _may_hold(snapshot, rule):
            chosen |= nodes_of(snapshot, rule)
            if chosen.all():
                break
    return chosen


def nodes_of(snapshot: Snapshot, rule: NodeRule) -> Bools:
    """Return bool (n_nodes,), where a node selector term holds."""
    chosen = _all_labels(snapshot, rule.labels)
    for requirement in rule.fields:
        chosen &= _field(snapshot, requirement)
    return chosen


def weigh_nodes(snapshot: Snapshot, rules: Iterable[tuple[int, NodeRule]]) -> Int64s:
    """Return int64 (n_nodes,), the sum of the weights of the terms that hold; `rules` are (weight, term)."""
    same_everywhere = 0
    of_labels: defaultdict[str, _Weights] = defaultdict(_Weights)
    others: Counter[NodeRule] = Counter()
    for weight, rule in rules:
        if len(rule.labels) == 1 and not rule.fields and rule.labels[0].operator in _COUNTED:
            same_everywhere += of_labels[rule.labels[0].key].add(weight, rule.labels[0])
        elif _may_hold(snapshot, rule):
            others[rule] += weight
    total = np.full(snapshot.n_nodes, same_everywhere, dtype=np.int64)
    for key, weights in of_labels.items():
        if snapshot.has_label(key):
            total += snapshot.label(key).measure(weights.of)
        else:
            total += weights.absent
    for rule, weight in others.items():
        total += nodes_of(snapshot, rule) * np.int64(weight)
    return total


_COUNTED = frozenset({Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST})


@dataclass(slots=True)
class _Weights:
    """What terms about nothing but one label are worth, beside what is the same everywhere.

    Attributes:
        of_value: a node's label -> more for that.
        absent: more for a node without the label.
    """

    of_value: Counter[str] = field(default_factory=Counter)
    absent: int = 0

    def add(self, weight: int, requirement: Requirement) -> int:
        """Take in a term, and return what it is worth everywhere."""
        operator = requirement.operator
        if operator in {Operator.IN, Operator.NOT_IN}:
            sign = 1 if operator is Operator.IN else -1
            for value in requirement.values:
                self.of_value[value] += sign * weight
        else:
            self.absent += weight if operator is Operator.DOES_NOT_EXIST else -weight
        return weight if operator in {Operator.NOT_IN, Operator.EXISTS} else 0

    def of(self, value: str | None) -> int:
        return self.absent if value is None else self.of_value[value]


def _may_hold(snapshot: Snapshot, rule: NodeRule) -> bool:
    """Say whether a term holds anywhere, as far as that can be told without looking at nodes."""
    return all(snapshot.has_label(requirement.key) or requirement.admits(None) for requirement in rule.labels)


def _all_labels(snapshot: Snapshot, requirements: Iterable[Requirement]) -> Bools:
    chosen = np.ones(snapshot.n_nodes, dtype=np.bool_)
    for requirement in requirements:
        if not snapshot.has_label(requirement.key):
            if not requirement.admits(None):
                chosen[:] = False
                break
            continue
        label = snapshot.label(requirement.key)
        if requirement.operator is Operator.IN:
            chosen &= label.among(requirement.values)
        elif requirement.operator is Operator.NOT_IN:
            chosen &= ~label.among(requirement.values)
        else:
            chosen &= label.judge(requirement.admits)
    return chosen


def _field(snapshot: Snapshot, requirement: Requirement) -> Bools:
    """Judge the one field that nodes have, their name; of all others the value reads as empty."""
    if requirement.key != METADATA_NAME:
        return np.full(snapshot.n_nodes, requirement.admits(""), dtype=np.bool_)
    named = np.zeros(snapshot.n_nodes, dtype=np.bool_)
    for name in requirement.values:
        row = snapshot.row_of(name)
        if row is not None:
            named[row] = True
    return named if requirement.operator is Operator.IN else ~named
