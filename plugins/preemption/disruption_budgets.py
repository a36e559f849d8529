"""PodDisruptionBudgets: whose eviction would break one.

Source:
    kube-scheduler v1.36, plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.matchers import matcher
from scheduler.objects.selectors import LabelSelector, SelectorError, parse_label_selector
from scheduler.snapshot import Objects
from scheduler.snapshot.rule_index import RuleIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.objects.matchers import Matcher
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import LabelRule

BUDGETS = "policy/v1/poddisruptionbudgets"

_MOST_LABELS = 4096
"""Kinds of pods of a namespace whose budgets are kept; beyond that they are found anew."""


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """One PodDisruptionBudget.

    Attributes:
        rule: which pods of its namespace it protects.
        matches: says by the labels of a pod whether it is one of them.
        allowed: how many of them may go.
        disrupted: names of pods whose eviction the API server has already counted.
    """

    rule: LabelRule
    matches: Matcher
    allowed: int
    disrupted: AbstractSet[str]


class _Namespace:
    """The budgets of one namespace.

    Attributes:
        version: of the objects that they were read from.
        budgets: key of an object -> the object, and what it says; None where it protects nothing.
    """

    __slots__ = ("_by_labels", "_index", "budgets", "version")

    def __init__(
        self, version: int, found: Mapping[str, Mapping[str, Any]], before: _Namespace | None
    ) -> None:
        self.version = version
        known = {} if before is None else before.budgets
        self.budgets: dict[str, tuple[Mapping[str, Any], Budget | None]] = {}
        self._index: RuleIndex[Budget] | None = None
        self._by_labels: dict[frozenset[tuple[str, str]], Sequence[Budget]] = {}
        for key, obj in found.items():
            read = known.get(key)
            if read is None or read[0] is not obj:
                read = obj, _read(obj)
            self.budgets[key] = read
            if read[1] is not None:
                self._index = RuleIndex() if self._index is None else self._index
                self._index.add(read[1].rule, read[1])

    def matching(self, labels: Mapping[str, str]) -> Sequence[Budget]:
        """Return the budgets whose rule matches labels; pods alike ask once."""
        if self._index is None or not labels:
            return ()
        alike = frozenset(labels.items())
        found = self._by_labels.get(alike)
        if found is None:
            if len(self._by_labels) >= _MOST_LABELS:
                self._by_labels.clear()
            candidates = self._index.candidates(labels)
            found = [budget for budget in candidates if budget.matches(labels)]
            self._by_labels[alike] = found
        return found


class DisruptionBudgets:
    """The budgets that protect anything, by namespace, read again where one of the namespace changed."""

    def __init__(self) -> None:
        self._objects = Objects()
        self._read: dict[str, _Namespace] = {}

    def look_at(self, objects: Objects) -> None:
        """Note where the PodDisruptionBudgets are."""
        if objects is not self._objects:
            self._objects = objects
            self._read.clear()

    def protecting(self, pod: PodInfo) -> Sequence[Budget]:
        """Return those that protect a pod; one without a selector, or with one that is no rule, protects nothing."""
        namespace = pod.namespace
        version = self._objects.version(namespace)
        known = self._read.get(namespace)
        if known is None or known.version != version:
            found = self._objects.in_namespace(namespace)
            if not found:
                self._read.pop(namespace, None)
                return ()
            known = self._read[namespace] = _Namespace(version, found, known)
        matching = known.matching(pod.labels)
        if not any(budget.disrupted for budget in matching):
            return matching
        return [budget for budget in matching if pod.name not in budget.disrupted]


def _read(found: Mapping[str, Any]) -> Budget | None:
    status = found.get("status") or {}
    selector = (found.get("spec") or {}).get("selector")
    try:
        rule = parse_label_selector(msgspec.convert(selector, LabelSelector | None))
    except (SelectorError, msgspec.ValidationError):
        return None
    if not rule.requirements:
        return None
    return Budget(
        rule,
        matcher(rule),
        status.get("disruptionsAllowed") or 0,
        frozenset(status.get("disruptedPods") or ()),
    )


def split(pods: Iterable[PodInfo], budgets: DisruptionBudgets) -> tuple[list[PodInfo], list[PodInfo]]:
    """Return the pods whose eviction would break a budget, and the others, both in the order given.

    The pods are thought to go one after another, each using up every budget that protects it.
    """
    used: Counter[Budget] = Counter()  # how many of its pods have gone
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        breaks = False
        for budget in budgets.protecting(pod):
            used[budget] += 1
            breaks = breaks or used[budget] > budget.allowed
        (violating if breaks else others).append(pod)
    return violating, others
