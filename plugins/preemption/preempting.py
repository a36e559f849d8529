"""The common code of all preempting plugins: find candidates or the victims of a group, call extenders, and evict the victims.

The dry run uses the current cluster. The preemption is carried out in the background, and until it is done the pod is
not tried again.

Source:
    kube-scheduler v1.36, framework/preemption/preemption.go, Evaluator.Preempt.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from plugins.preemption.candidates import (
    NEVER,
    NONE_LOWER,
    NOT_ENOUGH,
    ONGOING,
    PREEMPTION_CODES,
    Progress,
    Searches,
    rows_to_try,
    search,
    was_preempted,
)
from plugins.preemption.disruption_budgets import BUDGETS, DisruptionBudgets, Evictions
from plugins.preemption.protection import PRIORITY_CLASSES, PROTECTED, ROUNDING_SECONDS
from plugins.preemption.ranking import PreemptionCandidate, best, by_importance, priority_of
from scheduler.errors import SchedulerError
from scheduler.framework import (
    Code,
    Needs,
    PodGroupPostFilterPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    Reason,
    Status,
)
from scheduler.framework.preemption import REPORT, Evaluation, PreemptionReport
from scheduler.framework.status import SUCCESS
from scheduler.loop_work import run_to_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Mapping, Sequence

    from plugins.preemption.candidates import Choice, VictimSearch
    from plugins.preemption.protection import Cause, Protection, ProtectionCheck
    from plugins.preemption.ranking import Unit, VictimUnits
    from scheduler.framework import CycleState, Diagnosis, GroupDryRuns, PodGroup, SlicedWork
    from scheduler.framework.preemption import (
        PreemptionDryRun,
        Preemptions,
        Protected,
        VictimLimit,
        VictimReview,
    )
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects, Snapshot

    _FitsWithout = Callable[[Sequence[PodInfo]], Awaitable[frozenset[str] | None]]

NO_VICTIMS: Final = Reason("No preemption victims found for incoming preemptor", NONE_LOWER)
STILL_UNSCHEDULABLE: Final = Reason("pod group is unschedulable", NOT_ENOUGH)

_FEW: Final = 256
"""Up to this number units of all nodes are considered; above it, those on the nodes where they do the least harm."""
_UNITS_A_STEP: Final = 512
_NODES_A_STEP: Final = 32
_MOST_DECISIONS: Final = 20_000
"""After this number of decisions about members, units on the members' nodes that are not reprieved become victims."""


async def choose_victims(
    units: Sequence[Unit],
    members: Sequence[PodInfo],
    budgets: DisruptionBudgets,
    dry_runs: GroupDryRuns,
) -> Sequence[PodInfo] | Status:
    """Return the victims, or why preemption would not help.

    Args:
        units: the possible victims, the most important first.
        members: the members of the group.
        budgets: the disruption budgets; units that violate none leave first.
        dry_runs: the cluster, and whether the group fits without some pods.

    Source:
        kube-scheduler v1.36, framework/preemption/podgrouppreemption.go, which tries every unit separately. Ranges of
        units are tried here, and halved if one of them is needed. The result is the same, since a group that fits
        beside many units also fits beside few.
    """
    if not units:
        return Status.unschedulable(NO_VICTIMS, resolvable=False)
    leaving = [pod for unit in units if unit.is_leaving for pod in unit.pods]
    staying = [unit for unit in units if not unit.is_leaving]
    widening = await dry_runs.done(_widening(staying, members, dry_runs.snapshot()))
    if leaving and await dry_runs.fits_without(leaving) is not None:
        return leaving  # terminating pods free enough capacity
    for chosen in widening:
        if await dry_runs.fits_without([*leaving, *_pods(chosen)]) is not None:
            search = _Search(leaving, dry_runs.fits_without, max(1, _MOST_DECISIONS // len(members)))
            violating, others = await dry_runs.done(_split(chosen, budgets))
            return [*leaving, *_pods(await search.needed([*violating, *others]))]
    return Status.unschedulable(STILL_UNSCHEDULABLE)


async def choose_victims_of_entity(
    units: Sequence[Unit],
    members: Sequence[PodInfo],
    budgets: DisruptionBudgets,
    dry_runs: GroupDryRuns,
    evaluation: Evaluation,
) -> Sequence[PodInfo] | Status:
    """Return what `choose_victims` returns; the members get their nodes once, on the cluster without all units.

    What is chosen is noted in `evaluation`.

    Source:
        kube-scheduler v1.37, framework/preemption/podgrouppreemption.go, selectVictimsOnDomain, which tries every
        unit separately; see `choose_victims`.
    """
    if not units:
        return Status.unschedulable(NO_VICTIMS, resolvable=False)
    if await dry_runs.fits_without(_pods(units)) is None:
        evaluation.code = dry_runs.refusal.code
        return dry_runs.refusal
    violating, others = await dry_runs.done(_split(units, budgets))
    search = _Search((), dry_runs.stays_without, max(1, _MOST_DECISIONS // len(members)))
    chosen = await search.needed([*violating, *others])
    evaluation.code = Code.SUCCESS
    evaluation.violations = sum(violating.get(unit, 0) for unit in chosen)
    evaluation.group_units = sum(unit.is_of_group for unit in chosen)
    return _pods(chosen)


class _Search:
    """Reprieves units as long as the group fits beside them."""

    def __init__(self, leaving: Sequence[PodInfo], fits_without: _FitsWithout, most_trials: int) -> None:
        self._leaving = leaving
        self._fits_without = fits_without
        self._victims: list[Unit] = []
        self._most_trials = most_trials
        self._trials = 0

    async def needed(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Return the units that cannot be reprieved; the first ones are reprieved first."""
        left = [units]  # ranges still to be reprieved, the next one last
        while left:
            stretch = left.pop()
            if self._trials >= self._most_trials:
                await self._settle([*stretch, *(unit for later in reversed(left) for unit in later)])
                break
            away = [*self._victims, *(unit for later in left for unit in later)]
            if await self._fits(away) is not None:
                continue
            if len(stretch) == 1:
                self._victims.append(stretch[0])
                continue
            half = len(stretch) // 2
            left += [stretch[half:], stretch[:half]]
        return self._victims

    async def _settle(self, undecided: Sequence[Unit]) -> None:
        """Make victims of the units on the members' nodes if that is enough; else of all."""
        nodes = await self._fits([*self._victims, *undecided]) or frozenset()
        there = [unit for unit in undecided if any(pod.node_name in nodes for pod in unit.pods)]
        enough = await self._fits([*self._victims, *there]) is not None
        self._victims += there if enough else undecided

    async def _fits(self, away: Sequence[Unit]) -> frozenset[str] | None:
        self._trials += 1
        return await self._fits_without([*self._leaving, *_pods(away)])


def _pods(units: Sequence[Unit]) -> list[PodInfo]:
    return [pod for unit in units for pod in unit.pods]


def _split(
    units: Sequence[Unit], budgets: DisruptionBudgets
) -> Generator[None, None, tuple[dict[Unit, int], list[Unit]]]:
    """Return the units whose eviction would violate a disruption budget, and the others, both in the given order.

    The first ones have the number of their violating pods.
    """
    violating: dict[Unit, int] = {}
    others: list[Unit] = []
    evictions = Evictions(budgets)
    for unit in units:
        broken = 0
        for pod in unit.pods:
            broken += evictions.breaks(pod)
            yield
        if broken:
            violating[unit] = broken
        else:
            others.append(unit)
    return violating, others


def _widening(
    units: Sequence[Unit], members: Sequence[PodInfo], snapshot: Snapshot
) -> Generator[None, None, Sequence[Sequence[Unit]]]:
    """Return growing sets of units, all of them in the end: first those on the nodes where preemption costs least.

    Only the first step reads the snapshot.

    A node costs as much as its most important unit. The first set would hold the group twice, the next one is twice as
    large, and so on.
    """
    if len(units) <= _FEW:
        return [units]
    demand = _sum(members)
    rows = {snapshot.name_of(row): row for row in range(snapshot.n_nodes)}
    free = {name: snapshot.allocatable[name] - snapshot.requested[name] for name in demand}
    found: list[Sequence[Unit]] = []
    yield
    by_node = yield from _places(units)
    nodes = sorted(by_node, key=lambda name: -by_node[name][0])
    end, wanted, room = 0, 2.0, dict.fromkeys(demand, 0)
    while end < len(nodes):
        while end < len(nodes) and any(room[name] < wanted * demand[name] for name in demand):
            if end % _NODES_A_STEP == 0:
                yield
            name = nodes[end]
            row = rows.get(name)
            if row is not None:
                freed = _sum(
                    [pod for place in by_node[name] for pod in units[place].pods if pod.node_name == name]
                )
                for resource in demand:
                    room[resource] += int(free[resource][row]) + freed.get(resource, 0)
            end += 1
        wanted *= 2
        if end < len(nodes):
            places = sorted({place for name in nodes[:end] for place in by_node[name]})
            found.append([units[place] for place in places])
            yield
    return [*found, units]


def _places(units: Sequence[Unit]) -> Generator[None, None, dict[str, list[int]]]:
    """Return name of a node -> the places of its units in `units`."""
    found: dict[str, list[int]] = {}
    for place, unit in enumerate(units):
        if place % _UNITS_A_STEP == 0:
            yield
        for pod in unit.pods:
            found.setdefault(pod.node_name, []).append(place)
    return found


def _sum(pods: Sequence[PodInfo]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for resource, amount in pod.resources.taken.items():
            total[resource] = total.get(resource, 0) + amount
    return total


NEEDS: Final = Needs(kinds=frozenset({BUDGETS}), rights=frozenset({"delete v1/pods"}))
"""The kind that preemption reads, and its right to evict pods."""

MOST_EXPLAINED: Final = 16
"""The number of nodes on which victims are searched for an explanation."""
_BUDGETS_A_STEP: Final = 8
_UNITS_SORTED_A_STEP: Final = 256
_WAITING = Reason("waiting for the preemption for this pod to be finished", ONGOING)
_GROUP_WAITING = Reason("waiting for the preemption for this pod group to be finished", ONGOING)
_ONGOING = "ongoing preemption on nominated nodes"
_OF_GROUP: Final = "PreemptionOfGroupOnly"
_AS_ONE = Reason("not eligible due to workload aware preemption enabled", _OF_GROUP)
_IN_ONE_DOMAIN = Reason("not eligible due to placement-based pod group scheduling limitation", _OF_GROUP)
_REFUSED: Final = Reason("no candidate node for preemption", "PreemptionRefused")


class Preempting(PreEnqueuePlugin, PostFilterPlugin, PodGroupPostFilterPlugin):
    """Preempts for pods and for groups; the subclass determines the possible victims.

    Attributes:
        takes_whole_groups: whether a group that leaves as a whole does so for a single pod too, after its pods on the node
            were chosen.
        searches_units: whether the search for victims on a node removes and returns such a group as a whole.
    """

    reason_codes = MappingProxyType(PREEMPTION_CODES)
    takes_whole_groups: ClassVar[bool] = False
    searches_units: bool = False

    def __init__(
        self,
        dry_run: PreemptionDryRun,
        review: VictimReview,
        preemptions: Preemptions,
        work: SlicedWork,
        units: VictimUnits,
        protection: Protection | None,
    ) -> None:
        self._dry_run = dry_run
        self._review = review
        self._preemptions = preemptions
        self._work = work
        self._units = units
        self._protection = protection
        if protection is not None:
            self.needs = replace(  # type: ignore[misc]  # per instance
                self.needs,
                kinds=self.needs.kinds | {PRIORITY_CLASSES},
                bound_pod_annotations=self.needs.bound_pod_annotations or protection.reads_pods,
            )
        self._budgets = DisruptionBudgets()
        self._searches = Searches()

    @abstractmethod
    def why_not_eligible(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Reason | None:
        """Return why the pod may not preempt now; None if it may."""

    def search(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Generator[None, None, VictimSearch]:
        """Find nodes that would run the pod without some of their pods, in steps."""
        progress = self._searches.of(pod)
        rows = self.rows_with_victims(state, pod, rows_to_try(diagnosis).tolist())
        if progress is None:
            rows, enough = self.in_turn(state, rows)
            progress = Progress(pod, rows, enough, snapshot)
        else:
            rows = progress.in_turn(rows, snapshot)
        if not self._budgets.read(snapshot.objects(BUDGETS), self._work.has_time):
            raise self._searches.to_be_continued(progress)
        kind = self.kind(state, pod)
        progress.shared = None if kind is None else self._searches.shared(kind)
        check = self._check(pod.priority, snapshot)
        settings = None if self._protection is None else self._protection.version(snapshot)
        now = 0.0 if check is None else check.now + ROUNDING_SECONDS
        progress.follow(snapshot, (self._budgets.version, settings), state.nominated, now)
        found = yield from self._tried(state, pod, snapshot, rows, check, progress)
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
        check: ProtectionCheck | None,
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
            choice=self.choice(state, pod, snapshot, check),
            limit=self.limit(pod),
            units=self._units if self.searches_units else None,
            check=check,
            progress=progress,
            has_time=_always if progress is None else self._work.has_time,
        )
        return found

    def rows_with_victims(self, state: CycleState, pod: PodInfo, rows: list[int]) -> list[int]:
        """Return the nodes that may have victims; the search leaves out the others."""
        return rows

    def in_turn(self, state: CycleState, rows: list[int]) -> tuple[list[int], int]:
        """Return nodes in the order in which they are tried, and how many candidates are enough."""
        return rows, len(rows)

    def choice(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, check: ProtectionCheck | None
    ) -> Choice | None:
        """Return the choice of possible victims on a node, of those that `check` does not protect; None for pods of lower priority."""
        return None

    def time_of_queue(self, pod: PodInfo, cause: Cause) -> tuple[float, str] | None:
        """Return the seconds that the queue or quota of a pod sets as its minimum run time, and the title of the queue."""
        return None

    def _check(self, priority: int, snapshot: Snapshot) -> ProtectionCheck | None:
        """Return the check of protections for a preemptor of a priority; None if no pods are protected."""
        if self._protection is None:
            return None
        return self._protection.check(priority, snapshot, self.time_of_queue, self.leaving_with)

    def kind(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """Return a key of the pods with the same victims on each node; None if these depend on more than the node."""
        return None

    def limit(self, pod: PodInfo) -> VictimLimit | None:
        """Return the additional condition beside Filter."""
        return None

    @abstractmethod
    def removable(
        self,
        units: Iterable[Unit],
        group: PodGroup,
        members: Sequence[PodInfo],
        snapshot: Snapshot,
        check: ProtectionCheck | None,
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
        if not group.is_entity:
            self._preemptions.attempted()
            return await self._victims_for_group(group, members, dry_runs)
        found = await self._victims_for_group(group, members, dry_runs)
        self._preemptions.attempted_for_group(found.code if isinstance(found, Status) else Code.SUCCESS)
        return found

    async def _victims_for_group(
        self, group: PodGroup, members: Sequence[PodInfo], dry_runs: GroupDryRuns
    ) -> Sequence[PodInfo] | Status:
        if any(pod.pod.spec.preemption_policy == "Never" for pod in members):
            return Status.unschedulable(NEVER)
        if group.is_entity and self._is_ongoing(group, members, dry_runs.snapshot()):
            return Status(Code.SUCCESS, (_ONGOING,))
        why_wait = None if self._protection is None else self._protection.why_wait(members)
        if why_wait:
            return Status.unschedulable(why_wait)
        await dry_runs.done(self._read_budgets(dry_runs.snapshot().objects(BUDGETS)))
        units = await dry_runs.done(self._units.of(dry_runs.snapshot()))
        # Quotas read their usage in every step, so the cluster must not change meanwhile.
        snapshot = dry_runs.snapshot()
        check = self._check(priority_of(group, members), snapshot)
        removable = await self._work.done(self.removable(units, group, members, snapshot, check))
        ranked = await dry_runs.done(_by_importance(removable))
        if not group.is_entity:
            found = await choose_victims(ranked, members, self._budgets, dry_runs)
            return self._unless_protected(found, members, dry_runs, check)
        with self._preemptions.evaluation("podgroup") as evaluation:
            found = await choose_victims_of_entity(ranked, members, self._budgets, dry_runs, evaluation)
            found = self._unless_protected(found, members, dry_runs, check)
            if found is PROTECTED:
                evaluation.code = Code.UNSCHEDULABLE
            return found

    def _unless_protected(
        self,
        found: Sequence[PodInfo] | Status,
        members: Sequence[PodInfo],
        dry_runs: GroupDryRuns,
        check: ProtectionCheck | None,
    ) -> Sequence[PodInfo] | Status:
        """Return the result of the search for a group; without victims, it is tried again when a protection ends."""
        if self._protection is None or check is None:
            return found
        if not isinstance(found, Status) and check.exceeds_limit(found):
            found = PROTECTED
        if isinstance(found, Status):
            first = self._protection.found_none(members, check.found.values())
            if first is not None:
                dry_runs.note_protected(first)
                found = PROTECTED if found.message == NO_VICTIMS else found
        return found

    def _is_ongoing(self, group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot) -> bool:
        """Return whether victims of lower priority are still terminating on the members' nominated nodes.

        Source:
            kube-scheduler v1.37, framework/preemption/podgrouppreemption.go, isOngoingPreemption.
        """
        priority = priority_of(group, members)
        nodes = dict.fromkeys(pod.pod.status.nominated_node_name for pod in members)
        return any(
            was_preempted(pod) and self._units.priority_of(pod) < priority
            for row in map(snapshot.row_of, nodes)
            if row is not None
            for pod in snapshot.pods_on(row)
        )

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
        if self._protection is not None and not why_not and not pod.node_name and rows_to_try(diagnosis).size:
            why_not = self._protection.why_wait((pod,))
        if why_not:
            self._searches.end(pod.uid)
            return _nothing(why_not)
        with self._preemptions.evaluation("pod") as evaluation:
            found = await self._work.done(self.search(state, pod, snapshot, diagnosis))
            try:
                chosen = await self._chosen(state, pod, snapshot, found)
            except SchedulerError as error:
                evaluation.code = Code.ERROR
                return PostFilterResult(Status.failed(f"preemption: {error}", error))
            leaving = self.leaving_with(chosen[0].victims) if chosen else ()
            if chosen:
                evaluation.code, evaluation.violations = Code.SUCCESS, chosen[0].violations
                evaluation.group_units = sum(unit.is_of_group for unit in self._units.on_node(leaving))
        if not found.candidates:
            if self._protection is not None:
                self._protection.found_none((pod,), found.protected.values())
            return _not_found(found, snapshot.n_nodes, self.name)
        if not chosen:
            return _nothing(_REFUSED)
        node_name = snapshot.name_of(chosen[0].row)
        self._preemptions.start(pod, node_name, leaving, self.name, self.quota_of(pod))
        return PostFilterResult(self.success(node_name, len(leaving)), node_name)

    def success(self, node_name: str, n_victims: int) -> Status:
        """Return the status of a successful preemption."""
        return SUCCESS

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
            state.write(REPORT, _report(found, chosen))
            if not found.candidates:
                return ()
            reviewed = await self._reviewed(pod, snapshot, found.candidates)
            if reviewed is not found.candidates:
                chosen = best(reviewed)
            if not chosen or chosen[0].row not in found.stale:
                return chosen
            row = chosen[0].row
            check = self._check(pod.priority, snapshot)
            again = await self._work.done(self._tried(state, pod, snapshot, [row], check))
            found.stale.discard(row)
            found.refusals |= again.refusals
            found.protected |= again.protected
            place = next(place for place, each in enumerate(found.candidates) if each.row == row)
            found.candidates[place : place + 1] = again.candidates

    def preview(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PreemptionReport | None:
        """Return the candidates among the first nodes; extenders are not called."""
        if _in_group(state) or self.why_not_eligible(state, pod, snapshot, diagnosis):
            return None
        rows = self.rows_with_victims(state, pod, rows_to_try(diagnosis).tolist())[:MOST_EXPLAINED]
        found = run_to_end(self._tried(state, pod, snapshot, rows, self._check(pod.priority, snapshot)))
        return _report(found, best(found.candidates))

    def protections(self, pod: PodInfo, snapshot: Snapshot) -> Mapping[str, Protected]:
        """Return what protects a pod from each cause, with all pods that leave with it, from the least priority above its own."""
        check = self._check(pod.priority + 1, snapshot)
        if check is None or self._protection is None:
            return {}
        together = (
            self._units.together((pod,)) if self.takes_whole_groups or self.searches_units else [(pod,)]
        )
        unit = next(iter(together))
        found = {cause.text: check.protection_of(unit, cause) for cause in self._protection.causes}
        return {text: each for text, each in found.items() if each is not None}

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


def _in_group(state: CycleState) -> Reason | None:
    """Return why a member of a group may not preempt by itself; None if it may."""
    if state.group is None:
        return None
    if state.group.topology_key:
        return _IN_ONE_DOMAIN
    return _AS_ONE if state.group.preempts_as_one else None


def _by_importance(units: Sequence[Unit]) -> Generator[None, None, Sequence[Unit]]:
    """Return units with the most important first; equal ones keep their order."""
    ranked: list[tuple[tuple[float, ...], Unit]] = []
    for begin in range(0, len(units), _UNITS_SORTED_A_STEP):
        some = [(unit.importance, unit) for unit in units[begin : begin + _UNITS_SORTED_A_STEP]]
        ranked += sorted(some, key=itemgetter(0))
        yield
    ranked.sort(key=itemgetter(0))  # merges the sorted parts
    return [unit for _, unit in ranked]


def _nothing(why: Reason) -> PostFilterResult:
    return PostFilterResult(Status.unschedulable(Reason(f"preemption: {why}", why.code)))


def _not_found(found: VictimSearch, n_nodes: int, plugin: str) -> PostFilterResult:
    failed = [status for status in found.refusals.values() if status.code is Code.ERROR]
    if failed:
        text = ", ".join(messages := dict.fromkeys(status.message for status in failed))
        text = f"[{text}]" if len(messages) > 1 else text  # as upstream's aggregates have it
        return PostFilterResult(Status.failed(f"preemption: {text}", failed[0].error))
    reasons, causes = (f"preemption: {found.message(n_nodes)}",), found.causes(n_nodes, plugin)
    return PostFilterResult(Status(Code.UNSCHEDULABLE, reasons, origins=causes), "")


def _report(found: VictimSearch, chosen: Sequence[PreemptionCandidate]) -> PreemptionReport:
    return PreemptionReport(
        {candidate.row: (candidate.victims, candidate.violations) for candidate in found.candidates},
        [candidate.row for candidate in chosen],
        found.protected,
        {candidate.row: candidate.named for candidate in found.candidates},
    )
