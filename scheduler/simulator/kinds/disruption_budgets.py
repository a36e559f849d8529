"""Counting of pods for PodDisruptionBudgets.

Source:
    kube-controller-manager v1.36, pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, labels_of, with_condition
from scheduler.simulator.apimachinery.selectors import label_rule
from scheduler.simulator.apimachinery.strategy import Generic
from scheduler.simulator.kinds.pods import is_ready

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.simulator.apimachinery.objects import Object

ALLOWED: Final = "DisruptionAllowed"


class DisruptionBudgetStrategy(Generic):
    """The rules of budgets: they allow no disruption until a controller has counted pods."""


@dataclass(frozen=True, slots=True)
class Count:
    """The numbers in a budget's status, except the allowed disruptions."""

    expected_pods: int
    desired_healthy: int
    current_healthy: int

    @property
    def disruptions_allowed(self) -> int:
        if self.expected_pods <= 0:
            return 0
        return max(0, self.current_healthy - self.desired_healthy)


def covers(budget: Object, pod: Object) -> bool:
    """Return whether a budget covers a pod; no selector matches none, an empty one all of the namespace."""
    selector = budget.get("spec", {}).get("selector")
    if selector is None or budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    return label_rule(selector).matches(labels_of(pod))


def needs_scale(budget: Object) -> bool:
    """Return whether a budget is relative to the number of replicas."""
    spec = budget.get("spec", {})
    return "maxUnavailable" in spec or isinstance(spec.get("minAvailable"), str)


def count(budget: Object, pods: Iterable[Object], scale: int) -> Count:
    """Count a budget's pods.

    Args:
        budget: the PodDisruptionBudget.
        pods: the pods that it covers.
        scale: total number of replicas of their controllers.
    """
    pods = list(pods)
    spec = budget.get("spec", {})
    disrupted = budget.get("status", {}).get("disruptedPods", {})
    if "maxUnavailable" in spec:
        expected = scale
        desired = max(0, expected - scaled(spec["maxUnavailable"], expected))
    elif isinstance(spec.get("minAvailable"), str):
        expected = scale
        desired = scaled(spec["minAvailable"], expected)
    else:
        expected = len(pods)
        desired = int(spec.get("minAvailable", 1))
    healthy = sum(
        is_ready(pod) for pod in pods if not is_terminating(pod) and pod["metadata"]["name"] not in disrupted
    )
    return Count(expected, desired, healthy)


def scaled(value: int | str, whole: int, *, round_up: bool = True) -> int:
    """Return a number, or a percentage of a whole as a number."""
    if not isinstance(value, str):
        return value
    hundredths = int(value.removesuffix("%")) * whole
    return -(-hundredths // 100) if round_up else hundredths // 100


def conditions(budget: Object, allowed: int, now: str) -> list[Object]:
    """Return the conditions of a budget: one, which tells whether any disruption is allowed."""
    new = {
        "type": ALLOWED,
        "status": "True" if allowed > 0 else "False",
        "observedGeneration": budget["metadata"].get("generation", 0),
        "reason": "SufficientPods" if allowed > 0 else "InsufficientPods",
        "message": "",
    }
    return with_condition(budget.get("status", {}).get("conditions"), new, now)
