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

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import LabelRule

BUDGETS = "policy/v1/poddisruptionbudgets"


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget.

    Attributes:
        namespace: of the pods it protects.
        rule: which pods those are.
        allowed: how many of them may go.
        disrupted: names of pods whose eviction the API server has already counted.
    """

    namespace: str
    rule: LabelRule
    allowed: int
    disrupted: Container[str]

    def protects(self, pod: PodInfo) -> bool:
        return (
            pod.namespace == self.namespace
            and bool(pod.labels)
            and self.rule.matches(pod.labels)
            and pod.name not in self.disrupted
        )


class DisruptionBudgets:
    """The budgets that protect anything, by namespace, read again where one of the namespace changed."""

    def __init__(self) -> None:
        self._objects = Objects()
        self._read: dict[
            str, tuple[int, Sequence[Budget]]
        ] = {}  # namespace -> version of its objects, budgets

    def look_at(self, objects: Objects) -> None:
        """Note where the PodDisruptionBudgets are."""
        if objects is not self._objects:
            self._objects = objects
            self._read.clear()

    def of(self, namespace: str) -> Sequence[Budget]:
        """Return those of a namespace; one without a selector, or with one that is no rule, protects nothing."""
        version = self._objects.version(namespace)
        known = self._read.get(namespace)
        if known is None or known[0] != version:
            objects = self._objects.in_namespace(namespace).values()
            known = version, [budget for each in objects if (budget := _read(each)) is not None]
            self._read[namespace] = known
        return known[1]


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
        found["metadata"]["namespace"],
        rule,
        status.get("disruptionsAllowed") or 0,
        frozenset(status.get("disruptedPods") or ()),
    )


def split(pods: Iterable[PodInfo], budgets: DisruptionBudgets) -> tuple[list[PodInfo], list[PodInfo]]:
    """Return the pods whose eviction would break a budget, and the others, both in the order given.

    The pods are thought to go one after another, each using up every budget that protects it.
    """
    used: Counter[int] = Counter()  # id of a budget -> how many of its pods have gone
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        breaks = False
        for budget in budgets.of(pod.namespace):
            if budget.protects(pod):
                used[id(budget)] += 1
                breaks = breaks or used[id(budget)] > budget.allowed
        (violating if breaks else others).append(pod)
    return violating, others
