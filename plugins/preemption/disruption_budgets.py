"""PodDisruptionBudgets: whose eviction would break one.

Source:
    kube-scheduler v1.36, plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.selectors import LabelSelector, SelectorError, parse_label_selector
from scheduler.snapshot import Objects
from scheduler.snapshot.rule_index import RuleIndex

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import LabelRule

BUDGETS = "policy/v1/poddisruptionbudgets"


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """One PodDisruptionBudget.

    Attributes:
        rule: which pods of its namespace it protects.
        allowed: how many of them may go.
        disrupted: names of pods whose eviction the API server has already counted.
    """

    rule: LabelRule
    allowed: int
    disrupted: Container[str]

    def protects(self, pod: PodInfo) -> bool:
        """Say whether a pod of its namespace is one of those."""
        return bool(pod.labels) and self.rule.matches(pod.labels) and pod.name not in self.disrupted


class DisruptionBudgets:
    """The budgets that protect anything, by namespace, read again where one of the namespace changed."""

    def __init__(self) -> None:
        self._objects = Objects()
        # namespace -> version of its objects, budgets
        self._read: dict[str, tuple[int, RuleIndex[Budget]]] = {}

    def look_at(self, objects: Objects) -> None:
        """Note where the PodDisruptionBudgets are."""
        if objects is not self._objects:
            self._objects = objects
            self._read.clear()

    def protecting(self, pod: PodInfo) -> list[Budget]:
        """Return those that protect a pod; one without a selector, or with one that is no rule, protects nothing."""
        namespace, version = pod.namespace, self._objects.version(pod.namespace)
        known = self._read.get(namespace)
        if known is None or known[0] != version:
            index: RuleIndex[Budget] = RuleIndex()
            for each in self._objects.in_namespace(namespace).values():
                budget = _read(each)
                if budget is not None:
                    index.add(budget.rule, budget)
            known = self._read[namespace] = version, index
        return [budget for budget in known[1].candidates(pod.labels) if budget.protects(pod)]


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
