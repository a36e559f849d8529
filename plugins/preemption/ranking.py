"""Which pods matter more, and on which node preempting does the least harm.

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
"""Added to every priority of a sum, so that more victims of a negative priority do not look better than fewer."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would run the pod without some of its pods.

    Attributes:
        row: the node's.
        victims: who must go, most important first; at least one.
        violations: how many of them break a disruption budget.
    """

    row: int
    victims: tuple[PodInfo, ...]
    violations: int


def started(pod: PodInfo) -> float:
    """Return when a pod started, in seconds since 1970; of one that has not yet, later than any other."""
    text = pod.pod.status.start_time
    return datetime.fromisoformat(text).timestamp() if text else inf


def by_importance(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return pods, most important first: by priority, then the one that runs longer."""
    return sorted(pods, key=lambda pod: (-pod.priority, started(pod)))


def harm(candidate: Candidate) -> tuple[float, ...]:
    """Return what is compared, place by place; the least wins.

    Broken budgets, the highest priority of a victim, the sum of priorities, the number of victims; and then how long
    the first of the highest priority has been running, the shortest being best.
    """
    priorities = [victim.priority for victim in candidate.victims]
    highest = max(priorities)
    first = min(started(victim) for victim in candidate.victims if victim.priority == highest)
    return (
        candidate.violations,
        highest,
        sum(priority + _NOBODY_IS_BELOW for priority in priorities),
        len(priorities),
        -first,
    )


def best(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that do the least harm; several if nothing tells them apart."""
    ranked = [(harm(candidate), candidate) for candidate in candidates]
    least = min((measure for measure, _ in ranked), default=())
    return [candidate for measure, candidate in ranked if measure == least]
