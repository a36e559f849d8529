"""Possible victims for a pod: pods of other queues up to what these have borrowed, and pods of lower priority in its own queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plugins.fair_queues.attempt import QueueAttempt
from plugins.preemption.disruption_budgets import split
from plugins.preemption.ranking import by_importance
from scheduler.framework import Status
from scheduler.framework.preemption import VictimLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from plugins.preemption.candidates import Choice
    from plugins.preemption.disruption_budgets import DisruptionBudgets
    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Snapshot

    Units = Callable[[Sequence[PodInfo]], Iterable[Sequence[PodInfo]]]
    """Pods in the preferred order of eviction -> units that leave together or not at all, in that order, including
    their pods on other nodes."""

ATTEMPT: Final = "FairQueues"
_NO_VICTIMS = "No preemption victims found for incoming pod"
_REFUSED = Status.unschedulable("Its queue exceeds its limits, whichever pods leave the node")


def one_by_one(pods: Sequence[PodInfo]) -> Iterable[Sequence[PodInfo]]:
    """Treat each pod as its own unit."""
    return ((pod,) for pod in pods)


class Reclaim:
    """Chooses possible victims for a pod, and counts what queues lose by that."""

    def __init__(self, attempt: QueueAttempt, priority: int) -> None:
        self._attempt, self._priority = attempt, priority
        self._standing = attempt.standing
        self._position = {place: level for level, place in enumerate(attempt.path)}
        self._within = [
            attempt.in_the_way(up_to=level, promised=False) is None for level in range(len(attempt.path) + 1)
        ]

    def may_leave(self, other: PodInfo, gone: dict[int, Int64s] | None = None) -> bool:
        """Return whether a pod may be a victim; `gone` is what leaves already, by queue, and is added to if it may."""
        attempt, standing = self._attempt, self._standing
        its = standing.tree.queue_of(other)
        if not attempt.leaf or its == attempt.leaf:
            return other.priority < self._priority
        path = standing.tree.paths[its] if its else ()
        below = next((n for n, place in enumerate(path) if place in self._position), len(path))
        common = self._position[path[below]] if below < len(path) else len(attempt.path)
        gone = {} if gone is None else gone
        taken = standing.amounts(other.resources.taken)
        if not path or not self._within[common] or not (taken[attempt.asked > 0] > 0).any():
            return False
        for place in path[:below]:
            left = standing.used[place] - standing.leaving[place] - taken - gone.get(place, 0)
            if standing.share(left) < standing.share(standing.deserved[place]):
                return False
        for place in path:
            gone[place] = gone.get(place, 0) + taken
        return True

    def choice(self, snapshot: Snapshot, budgets: DisruptionBudgets, units: Units = one_by_one) -> Choice:
        """Return the choice of possible victims on a node: first those without a protecting budget, then the least important.

        Pods that leave with them on other nodes are counted, and not returned.
        """

        def choose(row: int) -> Sequence[PodInfo] | Status:
            gone: dict[int, Int64s] = {}
            victims: list[PodInfo] = []
            there = snapshot.pods_on(row)
            uids = {pod.uid for pod in there}
            protected, others = split(by_importance(there), budgets)
            for unit in units([*reversed(others), *reversed(protected)]):
                with_unit = dict(gone)
                if all(self.may_leave(other, with_unit) for other in unit):
                    gone = with_unit
                    victims.extend(other for other in unit if other.uid in uids)
            if victims:
                return victims
            message = f"No pods on node {snapshot.name_of(row)} may be evicted for a pod of its queue"
            return Status.unschedulable(message if self._attempt.leaf else _NO_VICTIMS, resolvable=False)

        return choose


class WithinShares(VictimLimit):
    """Preemption keeps the pod's queue, and those above it, within max and fair share."""

    def refusal(self, state: CycleState, row: int) -> Status | None:
        return None if self.allows(state, row) else _REFUSED

    def allows(self, state: CycleState, row: int) -> bool:
        return state.read(ATTEMPT, QueueAttempt).in_the_way(row) is None
