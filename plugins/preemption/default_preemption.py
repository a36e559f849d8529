"""Makes room for a pod that fits nowhere: pods of lower priority have to leave the node where that does least harm.

Who would have to leave is tried on the cluster as it is; the choice is carried out in the background, and until that
is done the pod is not tried again.

Source:
    kube-scheduler v1.36, plugins/defaultpreemption/default_preemption.go, and framework/preemption/preemption.go,
    Evaluator.Preempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.preemption.candidates import rows_to_try, search, why_not_eligible
from plugins.preemption.disruption_budgets import BUDGETS, DisruptionBudgets
from plugins.preemption.ranking import Candidate, best, by_importance
from scheduler.errors import FieldError, SchedulerError
from scheduler.framework import (
    ActionType,
    ClusterEvent,
    Code,
    EventResource,
    EventWithHint,
    LongWork,
    Needs,
    PluginArgs,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    QueueingHint,
    Status,
    brings_nothing,
    reads_nothing,
)
from scheduler.framework.preemption import (
    REPORT,
    PreemptionDryRun,
    PreemptionReport,
    Preemptions,
    VictimReview,
)
from scheduler.framework.status import SUCCESS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from typing import Any

    from plugins.preemption.candidates import Search
    from scheduler.framework import CycleState, Diagnosis
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

_PERCENTAGE, _ABSOLUTE = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
_WAITING = "waiting for the preemption for this pod to be finished"


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """How many candidates are enough.

    Attributes:
        min_candidate_nodes_percentage: of the nodes where preemption might help, 0 to 100.
        min_candidate_nodes_absolute: at least that many, if there are.

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

    def enough(self, n_nodes: int) -> int:
        """Return how many candidates to look for among that many nodes."""
        share = n_nodes * self.min_candidate_nodes_percentage // 100
        return min(max(share, self.min_candidate_nodes_absolute), n_nodes)


class DefaultPreemption(PreEnqueuePlugin, PostFilterPlugin):
    """Preempts pods of lower priority."""

    name = "DefaultPreemption"
    api_version = 1
    Args = DefaultPreemptionArgs
    needs = Needs(kinds=frozenset({BUDGETS}), rights=frozenset({"delete v1/pods"}))

    def __init__(
        self,
        *,
        args: DefaultPreemptionArgs,
        dry_run: PreemptionDryRun,
        review: VictimReview,
        preemptions: Preemptions,
        work: LongWork,
    ) -> None:
        self._args = args
        self._dry_run = dry_run
        self._review = review
        self._preemptions = preemptions
        self._work = work
        self._budgets = DisruptionBudgets()
        self._begin = 0  # where the next search begins, so that all nodes have the same chance

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if self._preemptions.is_running(pod.uid):
            return Status.unschedulable(_WAITING, resolvable=False)
        return None

    def events(self) -> Sequence[EventWithHint]:
        """Listen to pods that leave, so that a pod whose preemption has ended is asked again whether it may in.

        The hint itself helps nobody: which pods leaving lets the pod fit is for those to say that refused it.
        """
        deleted = ClusterEvent(EventResource.POD, ActionType.DELETE)
        return (EventWithHint(deleted, _helps_nobody, reads_nothing, brings_nothing),)

    async def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        self._preemptions.attempted()
        why_not = why_not_eligible(pod, snapshot, diagnosis)
        if why_not:
            return _nothing(why_not)
        found = await self._work.done(self._search(state, pod, snapshot, diagnosis))
        chosen = best(found.candidates)
        state.write(REPORT, _report(found.candidates, chosen))
        if not found.candidates:
            return _not_found(found, snapshot.n_nodes)
        try:
            reviewed = await self._reviewed(pod, snapshot, found.candidates)
        except SchedulerError as error:
            return PostFilterResult(Status.failed(f"preemption: {error}", error))
        if reviewed is not found.candidates:
            chosen = best(reviewed)
        if not chosen:
            return _nothing("no candidate node for preemption")
        node_name = snapshot.name_of(chosen[0].row)
        self._preemptions.start(pod, node_name, chosen[0].victims, self.name)
        return PostFilterResult(SUCCESS, node_name)

    def _search(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Generator[None, None, Search]:
        rows = rows_to_try(diagnosis).tolist()
        enough = len(rows)
        if rows and not state.exhaustive:
            enough = self._args.enough(len(rows))
            begin = self._begin % len(rows)
            rows = rows[begin:] + rows[:begin]
            self._begin += enough
        self._budgets.look_at(snapshot.objects(BUDGETS))
        return search(
            self._dry_run,
            state,
            pod,
            snapshot,
            rows,
            budgets=self._budgets,
            nominated=state.nominated,
            enough=enough,
        )

    async def _reviewed(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        victims = {candidate.row: (candidate.victims, candidate.violations) for candidate in candidates}
        left = await self._review.review(pod, snapshot, victims)
        if left is victims:
            return candidates
        return [
            Candidate(row, tuple(by_importance(pods)), violations) for row, (pods, violations) in left.items()
        ]


def _helps_nobody(*_: Any) -> QueueingHint:
    return QueueingHint.SKIP


def _nothing(reason: str, *, nominated_node_name: str | None = None) -> PostFilterResult:
    return PostFilterResult(Status.unschedulable(f"preemption: {reason}"), nominated_node_name)


def _not_found(found: Search, n_nodes: int) -> PostFilterResult:
    failed = next((status for status in found.refusals.values() if status.code is Code.ERROR), None)
    if failed is not None:
        return PostFilterResult(Status.failed(f"preemption: {failed.message}", failed.error))
    return _nothing(found.message(n_nodes), nominated_node_name="")


def _report(candidates: Sequence[Candidate], chosen: Sequence[Candidate]) -> PreemptionReport:
    return PreemptionReport(
        {candidate.row: (candidate.victims, candidate.violations) for candidate in candidates},
        [candidate.row for candidate in chosen],
    )
