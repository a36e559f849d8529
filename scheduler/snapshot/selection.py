"""Which nodes a selector chooses: each requirement is judged once for each distinct value of its label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.objects.selectors import METADATA_NAME, Operator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.selectors import NodeRule, RequiredNodeAffinity, Requirement
    from scheduler.snapshot.arrays import Bools
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
        chosen |= nodes_of(snapshot, rule)
    return chosen


def nodes_of(snapshot: Snapshot, rule: NodeRule) -> Bools:
    """Return bool (n_nodes,), where a node selector term holds."""
    chosen = _all_labels(snapshot, rule.labels)
    for requirement in rule.fields:
        chosen &= _field(snapshot, requirement)
    return chosen


def _all_labels(snapshot: Snapshot, requirements: Iterable[Requirement]) -> Bools:
    chosen = np.ones(snapshot.n_nodes, dtype=np.bool_)
    for requirement in requirements:
        label = snapshot.label(requirement.key)
        if requirement.operator is Operator.IN:
            chosen &= label.among(requirement.values)
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
