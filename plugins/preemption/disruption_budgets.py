"""PodDisruptionBudgets: whose eviction would break one.

Source:
    kube-scheduler v1.36, plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.selectors import LabelSelector, SelectorError, parse_label_selector

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


def read_budgets(objects: Iterable[Mapping[str, Any]]) -> list[Budget]:
    """Return the budgets that protect anything; one without a selector, or with one that is no rule, does not."""
    return [budget for each in objects if (budget := _read(each)) is not None]


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


def split(pods: Iterable[PodInfo], budgets: Sequence[Budget]) -> tuple[list[PodInfo], list[PodInfo]]:
    """Return the pods whose eviction would break a budget, and the others, both in the order given.

    The pods are thought to go one after another, each using up every budget that protects it.
    """
    left = [budget.allowed for budget in budgets]
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        breaks = False
        for place, budget in enumerate(budgets):
            if budget.protects(pod):
                left[place] -= 1
                breaks = breaks or left[place] < 0
        (violating if breaks else others).append(pod)
    return violating, others
