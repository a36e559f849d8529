"""What all preempting plugins share: find candidates, call the extenders, and evict the victims.

The dry run uses the current cluster. The preemption is carried out in the background, and until it is done the pod is
not tried again.

Source:
    kube-scheduler v1.36, framework/preemption/preemption.go, Evaluator.Preempt.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Final

from plugins.preemption.candidates import NEVER, rows_to_try, search
from plugins.preemption.disruption_budgets import BUDGETS, DisruptionBudgets
from plugins.preemption.group_victims import choose_victims
from plugins.preemption.progress import Progress, Searches
from plugins.preemption.ranking import PreemptionCandidate, best, by_importance
from scheduler.errors import SchedulerError
from scheduler.framework import (
    Code,
    Needs,
    PodGroupPostFilterPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    Status,
)
from scheduler.framework.preemption import REPORT, PreemptionReport
from scheduler.framework.status import SUCCESS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from plugins.preemption.candidates import Choice, VictimSearch
    from plugins.preemption.units import Unit, VictimUnits
    from scheduler.framework import CycleState, Diagnosis, GroupDryRuns, PodGroup, SlicedWork
    from scheduler.framework.preemption import PreemptionDryRun, Preemptions, VictimLimit, VictimReview
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects, Snapshot

NEEDS: Final = Needs(kinds=frozenset({BUDGETS}), rights=frozenset({"delete v1/pods"}))
"""What preemption needs."""

_BUDGETS_A_STEP: Final = 8
_UNITS_A_STEP: Final = 256
_WAITING = "waiting for the preemption for this pod to be finished"
_GROUP_WAITING = "waiting for the preemption for this pod group to be finished"
_AS_ONE = "not eligible due to workload aware preemption enabled"
_IN_ONE_DOMAIN = "not eligible due to placement-based pod group scheduling limitation"


class Preempting(PreEnqueuePlugin, PostFilterPlugin, PodGroupPostFilterPlugin):
    """Preempts for pods and for groups; the subclass determines the possible victims.

    Attributes:
        takes_whole_groups: whether a group that leaves as a whole does so for a single pod too.
    """

    takes_whole_groups: ClassVar[bool] = False

    def __init__(
        self,
        dry_run: PreemptionDryRun,
        review: VictimReview,
        preemptions: Preemptions,
        work: SlicedWork,
        units: VictimUnits,
    ) -> None:
        self._dry_run = dry_run
        self._review = review
        self._preemptions = preemptions
        self._work = work
        self._units = units
        self._budgets = DisruptionBudgets()
        self._searches = Searches()

    @abstractmethod
    def why_not_eligible(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> str:
        """Return why the pod may not preempt now; "" if it may."""

    def search(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Generator[None, None, VictimSearch]:
        """Find nodes that would run the pod without some of their pods, in steps."""
        progress = self._searches.of(pod)
        rows = self.rows_with_victims(state, pod, rows_to_try(diagnosis).tolist())
        if progress is None:
            rows, enough = self.in_turn(state, rows)
            progress = Progress.begun(pod, rows, enough, snapshot)
        else:
            progress.follow(snapshot)
            rows = progress.in_turn(rows, snapshot)
        if not self._budgets.read(snapshot.objects(BUDGETS), self._work.has_time):
            raise self._searches.to_be_continued(progress)
        found = yield from self._tried(state, pod, snapshot, rows, progress)
        if not found.is_complete:
            raise self._searches.to_be_continued(progress)
        self._searches.end(pod.uid)
        return found

    def _tried(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Sequence[int],
        progress: Progress | None = None,
    ) -> Generator[None, None, VictimSearch]:
        """Try nodes, within the time limit if the search may continue in another attempt."""
        self._budgets.look_at(snapshot.objects(BUDGETS))
        found = yield from search(
            self._dry_run,
            state,
            pod,
            snapshot,
            rows,
            budgets=self._budgets,
            nominated=state.nominated,
            enough=len(rows) if progress is None else progress.enough,
            choice=self.choice(state, pod, snapshot),
            limit=self.limit(pod),
            known=None if progress is None else progress.known,
            has_time=_always if progress is None else self._work.has_time,
        )
        return found

    def rows_with_victims(self, state: CycleState, pod: PodInfo, rows: list[int]) -> list[int]:
        """Return the nodes that may have victims; the search leaves out the others."""
        return rows

    def in_turn(self, state: CycleState, rows: list[int]) -> tuple[list[int], int]:
        """Return nodes in the order in which they are tried, and how many candidates are enough."""
        return rows, len(rows)

    def choice(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Choice | None:
        """Return the choice of possible victims on a node; None for pods of lower priority."""
        return None

    def limit(self, pod: PodInfo) -> VictimLimit | None:
        """Return the additional condition beside Filter."""
        return None

    @abstractmethod
    def removable(
        self, units: Iterable[Unit], group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> Generator[None, None, Sequence[Unit]]:
        """Return the units that may be victims for a group, all of them together if needed, in steps."""

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if self._preemptions.is_running(pod.uid):
            is_member = self._preemptions.is_for_group(pod.uid)
            return Status.unschedulable(_GROUP_WAITING if is_member else _WAITING, resolvable=False)
        return None

    async def post_filter_group(
        self, group: PodGroup, members: Sequence[PodInfo], dry_runs: GroupDryRuns
    ) -> Sequence[PodInfo] | Status:
        self._preemptions.attempted()
        if any(pod.pod.spec.preemption_policy == "Never" for pod in members):
            return Status.unschedulable(NEVER)
        await dry_runs.done(self._read_budgets(dry_runs.snapshot().objects(BUDGETS)))
        units = await dry_runs.done(self._units.of(dry_runs.snapshot()))
        # Quotas read their usage in every step, so the cluster must not change meanwhile.
        removable = await self._work.done(self.removable(units, group, members, dry_runs.snapshot()))
        ranked = await dry_runs.done(_by_importance(removable))
        return await choose_victims(ranked, members, self._budgets, dry_runs)

    def _read_budgets(self, objects: Objects) -> Generator[None, None, None]:
        """Read the budgets, which may change between two steps."""
        while not self._budgets.read(objects, partial(next, chain(repeat(True, _BUDGETS_A_STEP), (False,)))):
            yield

    async def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        if self._searches.of(pod) is None:
            self._preemptions.attempted()
        why_not = _in_group(state) or self.why_not_eligible(state, pod, snapshot, diagnosis)
        if why_not:
            self._searches.end(pod.uid)
            return _nothing(why_not)
        found = await self._work.done(self.search(state, pod, snapshot, diagnosis))
        try:
            chosen = await self._chosen(state, pod, snapshot, found)
        except SchedulerError as error:
            return PostFilterResult(Status.failed(f"preemption: {error}", error))
        if not found.candidates:
            return _not_found(found, snapshot.n_nodes)
        if not chosen:
            return _nothing("no candidate node for preemption")
        node_name = snapshot.name_of(chosen[0].row)
        self._preemptions.start(pod, node_name, self.leaving_with(chosen[0].victims), self.name)
        return PostFilterResult(SUCCESS, node_name)

    async def _chosen(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, found: VictimSearch
    ) -> Sequence[PreemptionCandidate]:
        """Return the best candidates; the first was tried on the current cluster.

        A candidate of an earlier attempt is tried again before any pod is evicted: its pods and nominated pods may have
        changed.

        Raises:
            SchedulerError: a required extender failed.
        """
        while True:
            chosen: Sequence[PreemptionCandidate] = best(found.candidates)
            state.write(REPORT, _report(found.candidates, chosen))
            if not found.candidates:
                return ()
            reviewed = await self._reviewed(pod, snapshot, found.candidates)
            if reviewed is not found.candidates:
                chosen = best(reviewed)
            if not chosen or chosen[0].row not in found.stale:
                return chosen
            row = chosen[0].row
            again = await self._work.done(self._tried(state, pod, snapshot, [row]))
            found.stale.discard(row)
            found.refusals |= again.refusals
            place = next(place for place, each in enumerate(found.candidates) if each.row == row)
            found.candidates[place : place + 1] = again.candidates

    def leaving_with(self, victims: Sequence[PodInfo]) -> Sequence[PodInfo]:
        """Return all pods that are evicted when a pod preempts these victims."""
        if not self.takes_whole_groups:
            return victims
        return [pod for unit in self._units.together(victims) for pod in unit]

    async def _reviewed(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Sequence[PreemptionCandidate]
    ) -> Sequence[PreemptionCandidate]:
        victims = {candidate.row: (candidate.victims, candidate.violations) for candidate in candidates}
        left = await self._review.review(pod, snapshot, victims)
        if left is victims:
            return candidates
        return [
            PreemptionCandidate(row, tuple(by_importance(pods)), violations)
            for row, (pods, violations) in left.items()
        ]


def _always() -> bool:
    return True


def _in_group(state: CycleState) -> str:
    """Return why a member of a group may not preempt by itself; "" if it may."""
    if state.group is None:
        return ""
    if state.group.preempts_as_one:
        return _AS_ONE
    return _IN_ONE_DOMAIN if state.group.topology_key else ""


def _by_importance(units: Sequence[Unit]) -> Generator[None, None, Sequence[Unit]]:
    """Return units with the most important first; equal ones keep their order."""
    ranked: list[tuple[tuple[float, ...], Unit]] = []
    for begin in range(0, len(units), _UNITS_A_STEP):
        some = [(unit.importance, unit) for unit in units[begin : begin + _UNITS_A_STEP]]
        ranked += sorted(some, key=itemgetter(0))
        yield
    ranked.sort(key=itemgetter(0))  # merges the sorted parts
    return [unit for _, unit in ranked]


def _nothing(reason: str, *, nominated_node_name: str | None = None) -> PostFilterResult:
    return PostFilterResult(Status.unschedulable(f"preemption: {reason}"), nominated_node_name)


def _not_found(found: VictimSearch, n_nodes: int) -> PostFilterResult:
    failed = [status for status in found.refusals.values() if status.code is Code.ERROR]
    if failed:
        text = ", ".join(messages := dict.fromkeys(status.message for status in failed))
        text = f"[{text}]" if len(messages) > 1 else text  # as upstream's aggregates have it
        return PostFilterResult(Status.failed(f"preemption: {text}", failed[0].error))
    return _nothing(found.message(n_nodes), nominated_node_name="")


def _report(
    candidates: Sequence[PreemptionCandidate], chosen: Sequence[PreemptionCandidate]
) -> PreemptionReport:
    return PreemptionReport(
        {candidate.row: (candidate.victims, candidate.violations) for candidate in candidates},
        [candidate.row for candidate in chosen],
    )
