"""Preempts pods of lower priority for a pod that fits nowhere, on the node where that does the least harm.

Source:
    kube-scheduler v1.36, plugins/defaultpreemption/default_preemption.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plugins.preemption.candidates import NO_VICTIMS, rows_to_try, was_preempted, why_not_eligible
from plugins.preemption.preempting import MOST_EXPLAINED, NEEDS, Preempting
from plugins.preemption.protection import PROTECTED, Cause, PreemptingArgs, Protection
from plugins.preemption.ranking import VictimUnits, best, priority_of
from scheduler.errors import FieldError
from scheduler.framework import (
    SUCCESS,
    ActionType,
    Change,
    Clock,
    ClusterEvent,
    Code,
    EventResource,
    EventWithHint,
    Features,
    PluginMetrics,
    PodGroupMembers,
    PodGroupObjects,
    QueuedPods,
    QueueingHint,
    SlicedWork,
    Status,
    no_event_keys,
    no_pod_key,
)
from scheduler.framework.preemption import (  # noqa: TC001  # constructor annotations are read at runtime
    PreemptionDryRun,
    Preemptions,
    VictimReview,
)
from scheduler.loop_work import run_to_end
from scheduler.objects.label_index import some_of

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
    from typing import Any

    from plugins.preemption.candidates import Choice
    from plugins.preemption.protection import ProtectionCheck
    from plugins.preemption.ranking import Unit
    from scheduler.framework import CycleState, Diagnosis, PodGroup, Reason
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

_UNITS_A_STEP: Final = 512
_HIGHEST_OF_USERS: Final = 1_000_000_000
"""The highest priority that is not of the system.

Source:
    kube-scheduler v1.36, pkg/apis/scheduling/types.go, HighestUserDefinablePriority.
"""
_PERCENTAGE, _ABSOLUTE = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"


class DefaultPreemptionArgs(PreemptingArgs, frozen=True):
    """The number of candidates that is enough.

    Attributes:
        min_candidate_nodes_percentage: percentage of the nodes where preemption might help, 0 to 100.
        min_candidate_nodes_absolute: the minimum number of candidates.

    Source:
        kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidateDefaultPreemptionArgs, and
        plugins/defaultpreemption/default_preemption.go, calculateNumCandidates.
    """

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def faults(self) -> Iterator[FieldError]:
        percentage, absolute = self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute
        if not 0 <= percentage <= 100:
            yield FieldError(_PERCENTAGE, f"Invalid value: {percentage}: not in valid range [0, 100]")
        if absolute < 0:
            yield FieldError(_ABSOLUTE, f"Invalid value: {absolute}: not in valid range [0, inf)")
        if percentage == 0 and absolute == 0:
            for path, other in ((_PERCENTAGE, _ABSOLUTE), (_ABSOLUTE, _PERCENTAGE)):
                yield FieldError(path, f"Invalid value: 0: cannot be zero at the same time as {other}")
        yield from super().faults()

    def enough(self, n_nodes: int) -> int:
        """Return how many candidates to find among that many nodes."""
        share = n_nodes * self.min_candidate_nodes_percentage // 100
        return min(max(share, self.min_candidate_nodes_absolute), n_nodes)


class DefaultPreemption(Preempting):
    """Preempts pods of lower priority."""

    name = "DefaultPreemption"
    api_version = 1
    evaluates_resizes = True
    Args = DefaultPreemptionArgs
    needs = NEEDS

    def __init__(
        self,
        *,
        args: DefaultPreemptionArgs,
        dry_run: PreemptionDryRun,
        review: VictimReview,
        preemptions: Preemptions,
        work: SlicedWork,
        members: PodGroupMembers,
        groups: PodGroupObjects,
        features: Features,
        clock: Clock,
        queued: QueuedPods,
        metrics: PluginMetrics,
    ) -> None:
        protection = Protection.of(args, clock, queued, preemptions, metrics)
        super().__init__(dry_run, review, preemptions, work, VictimUnits(members, groups), protection)
        self._args = args
        self._says_success = features.enabled("PreemptionMessage")
        self.searches_units = features.enabled("PodGroupVictims")
        self._begin = 0  # where the next search starts, so that all nodes have the same chance

    def events(self) -> Sequence[EventWithHint]:
        """Register for deleted pods, so that PreEnqueue checks pods again whose preemption has ended.

        The hint itself requeues no pod: the plugins that rejected the pod decide which deletions help.
        """
        deleted = ClusterEvent(EventResource.POD, ActionType.DELETE)
        return (EventWithHint(deleted, _helps_nobody, no_pod_key, no_event_keys),)

    def success(self, node_name: str, n_victims: int) -> Status:
        """Return the status of a successful preemption; up to 1.36 without a message.

        Source:
            Pull request #140180 for kube-scheduler v1.37, plugins/defaultpreemption.
        """
        if not self._says_success:
            return SUCCESS
        reason = f"found a potential placement for pod on node {node_name}, preempting {n_victims} victims"
        return Status(Code.SUCCESS, (f"preemption: {reason}",))

    def why_not_eligible(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Reason | None:
        if not self.searches_units:
            return why_not_eligible(pod, snapshot, diagnosis)

        def is_victim(other: PodInfo) -> bool:
            return was_preempted(other) and self._units.priority_of(other) < pod.priority

        return why_not_eligible(pod, snapshot, diagnosis, is_victim)

    def choice(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, check: ProtectionCheck | None
    ) -> Choice | None:
        if check is not None:
            return self._unprotected(pod, snapshot, check)
        if not self.searches_units:
            return None
        priority_of = self._units.priority_of

        def choose(row: int) -> Sequence[PodInfo] | Status:
            lower = [
                other
                for other in snapshot.pods_on(row)
                if (other.priority if other.group is None else priority_of(other)) < pod.priority
            ]
            return lower or NO_VICTIMS

        return choose

    def _unprotected(self, pod: PodInfo, snapshot: Snapshot, check: ProtectionCheck) -> Choice:
        """Return the choice of pods of lower priority that are not protected."""
        units = self._units

        def choose(row: int) -> Sequence[PodInfo] | Status:
            there = snapshot.pods_on(row)
            if self.searches_units:
                lower = [other for other in there if units.priority_of(other) < pod.priority]
                open_to = check.unprotected(units.together(lower), Cause.PREEMPTION, row)
            else:
                lower = [other for other in there if other.priority < pod.priority]
                open_to = check.unprotected(((other,) for other in lower), Cause.PREEMPTION, row)
            found = [other for other in lower if other.uid in open_to]
            return found or (PROTECTED if lower else NO_VICTIMS)

        return choose

    def kind(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        key = None if self.searches_units else self._dry_run.kind(state, pod)
        return None if key is None else (key, pod.priority)

    def remedy(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Change | None:
        """Return the lowest priority with which the pod would preempt others, on one of the first nodes."""
        higher = pod.with_spec(priority=_HIGHEST_OF_USERS)
        if self.why_not_eligible(state, higher, snapshot, diagnosis):
            return None
        rows = rows_to_try(diagnosis)[:MOST_EXPLAINED].tolist()
        check = self._check(higher.priority, snapshot)
        candidates = best(run_to_end(self._tried(state, higher, snapshot, rows, check)).candidates)
        if not candidates:
            return None
        row, victims = candidates[0].row, candidates[0].victims
        needed = 1 + max(self._units.priority_of(each) for each in victims)
        if check is not None:
            needed = max(needed, check.least_priority(victims))
        if needed <= pod.priority:
            return None  # the pod preempts already
        names = some_of([each.key for each in victims])
        text = f"its priority were {needed} or more (now {pod.priority}), since it would preempt {names} on {snapshot.name_of(row)}"
        return Change(row, text, higher)

    def removable(
        self,
        units: Iterable[Unit],
        group: PodGroup,
        members: Sequence[PodInfo],
        snapshot: Snapshot,
        check: ProtectionCheck | None,
    ) -> Generator[None, None, Sequence[Unit]]:
        priority = priority_of(group, members)
        found = []
        for number, unit in enumerate(units):
            if number % _UNITS_A_STEP == 0:
                yield
            if unit.priority < priority and not (check and check.protects(unit.pods, Cause.PREEMPTION)):
                found.append(unit)
        return found

    def in_turn(self, state: CycleState, rows: list[int]) -> tuple[list[int], int]:
        if not rows or state.exhaustive:
            return rows, len(rows)
        enough = self._args.enough(len(rows))
        begin = self._begin % len(rows)
        self._begin += enough
        return rows[begin:] + rows[:begin], enough

    def saved_state(self) -> int:
        return self._begin

    def resume_state(self, saved: int) -> None:
        self._begin = saved


def _helps_nobody(*_: Any) -> QueueingHint:
    return QueueingHint.SKIP
