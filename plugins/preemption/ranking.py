"""Ranks pods by importance, and candidates by the harm of preemption.

Source:
    kube-scheduler v1.36, util/utils.go, MoreImportantPod and GetEarliestPodStartTime, and
    framework/preemption/preemption.go, pickOneNodeForPreemption.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.pod import PodInfo

_NOBODY_IS_BELOW: Final = 1 << 31
"""Added to every priority of a sum, so that more victims of negative priority do not look better than fewer."""


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """A node that would run the pod without some of its pods.

    Attributes:
        row: the node's row.
        victims: the pods to evict, most important first; at least one.
        violations: how many of them violate a disruption budget.
    """

    row: int
    victims: tuple[PodInfo, ...]
    violations: int


def started(pod: PodInfo) -> float:
    """Return when a pod started, in seconds since 1970; for a pod that has not started, later than any other."""
    text = pod.pod.status.start_time
    return datetime.fromisoformat(text).timestamp() if text else inf


def by_importance(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return pods, most important first: by priority, then the pod that has run longer."""
    return sorted(pods, key=lambda pod: (-pod.priority, started(pod)))


def harm(candidate: PreemptionCandidate) -> tuple[float, ...]:
    """Return the sort key of a candidate; the least is best.

    Its parts are the violated budgets, the highest priority of a victim, the sum of priorities, the number of victims,
    and how long the first victim of the highest priority has run; shorter is better.
    """
    victims = candidate.victims
    first = victims[0]  # of the highest priority, and started before the others of this priority
    return (
        candidate.violations,
        first.priority,
        sum(victim.priority for victim in victims) + _NOBODY_IS_BELOW * len(victims),
        len(victims),
        -started(first),
    )


def best(candidates: Iterable[PreemptionCandidate]) -> list[PreemptionCandidate]:
    """Return the candidates that do the least harm; several if their keys are equal."""
    ranked = [(harm(candidate), candidate) for candidate in candidates]
    least = min((measure for measure, _ in ranked), default=())
    return [candidate for measure, candidate in ranked if measure == least]
