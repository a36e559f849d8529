"""Units of preemption, a pod or a group that leaves as a whole, and the ranking of pods and of candidates.

Source:
    kube-scheduler v1.36, util/utils.go, MoreImportantPod and GetEarliestPodStartTime, and
    framework/preemption: preemption.go, pickOneNodeForPreemption; types.go; podgrouppreemption.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final

from scheduler.objects.pod_group import POD_GROUPS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from scheduler.framework import PodGroup, PodGroupMembers, PodGroupObjects
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import Snapshot

_NOBODY_IS_BELOW: Final = 1 << 31
"""Added to every priority of a sum, so that more victims of negative priority do not look better than fewer."""


@dataclass(frozen=True)
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

    @cached_property
    def named(self) -> tuple[tuple[str, ...], int]:
        """The `namespace/name` of the victims, and the number of violations."""
        return tuple(victim.key for victim in self.victims), self.violations

    @cached_property
    def harm(self) -> tuple[float, ...]:
        """The sort key; the least is best.

        Its parts are the violated budgets, the highest priority of a victim, the sum of priorities, the number of victims,
        and how long a victim of the highest priority has run at most; shorter is better.
        """
        victims = self.victims
        first = victims[0]  # of the highest priority; without groups also the one that started first
        began = started(first)
        if first.group is not None:
            began = min(started(victim) for victim in victims if victim.priority == first.priority)
        return (
            self.violations,
            first.priority,
            sum(victim.priority for victim in victims) + _NOBODY_IS_BELOW * len(victims),
            len(victims),
            -began,
        )


def started(pod: PodInfo) -> float:
    """Return when a pod started, in seconds since 1970; for a pod that has not started, later than any other."""
    text = pod.pod.status.start_time
    return datetime.fromisoformat(text).timestamp() if text else inf


def by_importance(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return pods, most important first: by priority, then the pod that has run longer."""
    return sorted(pods, key=lambda pod: (-pod.priority, started(pod)))


def best(candidates: Sequence[PreemptionCandidate]) -> list[PreemptionCandidate]:
    """Return the candidates that do the least harm; several if their keys are equal."""
    least = min((candidate.harm for candidate in candidates), default=())
    return [candidate for candidate in candidates if candidate.harm == least]


_PODS_A_STEP: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods that leave together or stay together.

    Attributes:
        pods: at least one.
        priority: the priority of the unit.
        is_group: whether it is a group, and not a single pod.
        is_composite: whether it is a group of groups.
    """

    pods: tuple[PodInfo, ...]
    priority: int
    is_group: bool = False
    is_composite: bool = False

    @property
    def is_leaving(self) -> bool:
        return all(pod.is_terminating for pod in self.pods)

    @property
    def importance(self) -> tuple[float, ...]:
        """The sort key; the most important unit has the least."""
        rank = 2 if self.is_composite else 1 if self.is_of_group else 0
        return (-self.priority, -rank, -len(self.pods), min(map(started, self.pods)))

    @property
    def is_of_group(self) -> bool:
        """Whether it is a PodGroup of Kubernetes, or a pod of one."""
        # Only Kubernetes' own field is immutable: a user could add a label or an annotation to gain importance.
        group = self.pods[0].group
        return group is not None and group.kind == POD_GROUPS


class VictimUnits:
    """Finds the units of pods."""

    def __init__(self, members: PodGroupMembers, groups: PodGroupObjects) -> None:
        self._members = members
        self._groups = groups

    def priority_of(self, pod: PodInfo) -> int:
        """Return the priority of a possible victim: that of the root of its group, if groups are entities."""
        lineage = () if pod.group is None else self._groups.lineage(pod.group)
        return _priority_in(lineage[-1] if lineage else None, pod)

    def of(self, snapshot: Snapshot) -> Generator[None, None, Sequence[Unit]]:
        """Return the units of all pods on nodes, in steps; only the first step reads the snapshot."""
        there = [pod for row in range(snapshot.n_nodes) for pod in snapshot.pods_on(row)]
        lineages: dict[GroupKey, Sequence[PodGroup]] = {}
        found: set[GroupKey] = set()  # the groups that leave as a whole
        units: list[Unit] = []
        for number, pod in enumerate(there):
            if number % _PODS_A_STEP == 0:
                yield
            key = pod.group
            if key is None:
                units.append(Unit((pod,), pod.priority))
                continue
            if key not in lineages:
                lineages[key] = self._groups.lineage(key)
            lineage = lineages[key]
            root, whole = lineage[-1] if lineage else None, _whole(lineage)
            if whole is None:
                units.append(Unit((pod,), _priority_in(root, pod)))
            elif whole.key not in found:
                found.add(whole.key)
                # The pods may have ended since the first step.
                pods = self._placed(whole) or (pod,)
                units.append(Unit(pods, priority_of(root, pods), True, whole.is_composite))
        return units

    def on_node(self, pods: Iterable[PodInfo]) -> list[Unit]:
        """Return the units of some pods of one node, each with all its pods on any node."""
        return [
            Unit(tuple(unit), self.priority_of(unit[0]), len(unit) > 1, self._is_of_composite(unit[0]))
            for unit in self.together(pods)
        ]

    def _is_of_composite(self, pod: PodInfo) -> bool:
        whole = self._whole_of(pod)
        return whole is not None and whole.is_composite

    def together(self, pods: Iterable[PodInfo]) -> Iterator[Sequence[PodInfo]]:
        """Yield pods in their order, each with all pods that leave with it, on any node; no pod twice."""
        seen: set[str] = set()
        for pod in pods:
            if pod.uid in seen:
                continue
            whole = self._whole_of(pod)
            unit = () if whole is None else self._placed(whole)
            unit = unit or (pod,)  # members are not counted in a hypothetical cluster
            seen.update(each.uid for each in unit)
            yield unit

    def _whole_of(self, pod: PodInfo) -> PodGroup | None:
        return None if pod.group is None else _whole(self._groups.lineage(pod.group))

    def _placed(self, group: PodGroup) -> tuple[PodInfo, ...]:
        """Return the pods of a group, or of all groups below it, on nodes."""
        tree = self._groups.tree(group.key) if group.is_composite else group
        leaves = () if tree is None else tree.leaves
        return tuple(pod for leaf in leaves for pod in self._members.placed(leaf.key))


def _whole(lineage: Sequence[PodGroup]) -> PodGroup | None:
    """Return the group whose pods leave together, the highest of those that leave as a whole; None if pods leave singly."""
    return next((group for group in reversed(lineage) if group.leaves_whole), None)


def _priority_in(group: PodGroup | None, pod: PodInfo) -> int:
    """Return the priority of one pod of a group: that of the group, if the group is an entity."""
    return pod.priority if group is None or not group.is_entity else priority_of(group, (pod,))


def priority_of(group: PodGroup | None, pods: Sequence[PodInfo]) -> int:
    """Return a group's priority: the admitted priority of its object, or of its pods.

    If its pods differ, the lowest priority counts, since preemption serves all of them; the object may lower it.
    """
    if group is not None and group.priority is not None:
        return group.priority
    lowest = min(pod.priority for pod in pods)
    highest = None if group is None else group.highest_priority
    return lowest if highest is None else min(lowest, highest)
