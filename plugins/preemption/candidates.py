"""Finds nodes where preempting victims makes a pod fit, in one attempt or in several, and the message if there are none.

The cluster changes between two attempts. The result of a node is valid as long as neither the node nor its pods change;
a chosen node of an earlier attempt is tried once more. Equal pods share results that depend on one node at a time.

Source:
    kube-scheduler v1.36, framework/preemption/preemption.go, findCandidates and DryRunPreemption, and
    plugins/defaultpreemption/default_preemption.go, PodEligibleToPreemptOthers and SelectVictimsOnNode.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.preemption.disruption_budgets import Evictions, split
from plugins.preemption.protection import PROTECTED
from plugins.preemption.ranking import PreemptionCandidate, Unit, by_importance
from scheduler.framework import NeedsTime, Reason, Status
from scheduler.framework.diagnosis import NOT_EXAMINED
from scheduler.framework.reasons import Cause, causes_by_number, codes_of
from scheduler.framework.status import Code
from scheduler.snapshot import NominatedOthers
from scheduler.snapshot.arrays import Column

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Container,
        Generator,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from plugins.preemption.disruption_budgets import DisruptionBudgets
    from plugins.preemption.protection import ProtectionCheck
    from plugins.preemption.ranking import VictimUnits
    from scheduler.framework import CycleState, Diagnosis
    from scheduler.framework.preemption import PreemptionDryRun, Protected, VictimLimit
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot
    from scheduler.snapshot.arrays import Bools, ChangeLog

    Found = Status | PreemptionCandidate
    """Why preemption does not help on a node, or the node with its victims."""
    Choice = Callable[[int], Sequence[PodInfo] | Status]
    """Row -> the possible victims on that node, or why there is none."""


_MOST_SEARCHES: Final = 16
"""The number of kept searches; a pod without one starts again. Few are advanced at a time."""
_MOST_SHARED: Final = 4
"""The number of kinds of pods whose results are kept; they may have a result for each node."""
_SPARE: Final = 64
_NOBODY: Final[Mapping[int, Sequence[PodInfo]]] = MappingProxyType({})


class Results:
    """The results of nodes, by row.

    A result is valid until the node, its pods or the pods nominated to it change, or the protection of a pod there ends.

    Attributes:
        by_row: row -> result.
        protected: row -> the protected pod there whose protection ends first.
    """

    def __init__(self) -> None:
        self.by_row: dict[int, Found] = {}
        self.protected: dict[int, Protected] = {}
        self._refused: Column[np.bool_] = Column(np.bool_)
        self._with_nominated: set[int] = set()  # the rows whose result depends on nominated pods
        self._ends: list[tuple[float, int]] = []  # a heap: when a protection ends, and its row
        self._log: ChangeLog | None = None
        self._seen = 0
        self._nominations: ChangeLog | None = None
        self._seen_nominations = 0
        self._basis: Hashable = None

    def are_refused(self, rows: Rows) -> Bools:
        """Return bool (len(rows),): whether there is a result for the row, which is not a candidate."""
        found: Bools = self._refused.cells[rows]
        return found

    def put(
        self,
        found: Mapping[int, Found],
        protected: Mapping[int, Protected],
        nominated: Container[int] = (),
    ) -> None:
        """Keep results, the protections that they depend on, and on which rows they depend on nominated pods."""
        self.by_row.update(found)
        refused = [row for row, result in found.items() if isinstance(result, Status)]
        self._refused.reserve(max(refused, default=0) + 1)
        self._refused.cells[refused] = True
        self._with_nominated.update([row for row in found if row in nominated])
        for row in found.keys() & protected.keys():
            self.protected[row] = protected[row]
            heappush(self._ends, (protected[row].until, row))
        if len(self._ends) > 2 * len(self.protected) + _SPARE:
            self._ends = [(each.until, row) for row, each in self.protected.items()]
            heapify(self._ends)

    def forget(self, row: int) -> None:
        """Forget the result of a node."""
        if isinstance(self.by_row.pop(row, None), Status):
            self._refused.cells[row] = False
        self.protected.pop(row, None)
        self._with_nominated.discard(row)

    def follow(
        self,
        snapshot: Snapshot,
        basis: Hashable = None,
        nominated: Mapping[int, Sequence[PodInfo]] = _NOBODY,
        now: float = 0.0,
    ) -> None:
        """Forget the results that are no longer valid.

        Args:
            snapshot: the cluster; results of nodes that have changed are forgotten.
            basis: what else results depend on; if it differs, all are forgotten.
            nominated: row -> nominated pods; results of nodes to which other pods are nominated now are forgotten.
            now: the time, in seconds since 1970; results of nodes where a protection has ended are forgotten.
        """
        changes = snapshot.changes
        is_same = changes is not None and changes is self._log and basis == self._basis
        changed = changes.since(self._seen) if changes is not None and is_same else None
        if changed is None:
            self.by_row.clear()
            self.protected.clear()
            self._refused.cells[:] = False
            self._with_nominated.clear()
            self._ends.clear()
        else:
            for row in changed:
                self.forget(row)
        while self._ends and self._ends[0][0] <= now:
            self.forget(heappop(self._ends)[1])
        self._log, self._seen, self._basis = changes, 0 if changes is None else changes.end, basis
        self._refused.reserve(snapshot.n_nodes)
        self._follow_nominations(nominated)

    def _follow_nominations(self, nominated: Mapping[int, Sequence[PodInfo]]) -> None:
        log = nominated.pods.changes if isinstance(nominated, NominatedOthers) else None
        is_same = log is not None and log is self._nominations
        changed = log.since(self._seen_nominations) if log is not None and is_same else None
        for row in {*self._with_nominated, *nominated} if changed is None else changed:
            self.forget(row)
        self._nominations, self._seen_nominations = log, 0 if log is None else log.end


class Progress:
    """A search, which may be unfinished.

    Args:
        pod: the preemptor; a changed pod needs a new search.
        rows: the nodes, in the order of the search.
        enough: how many candidates to find.
        snapshot: the cluster.

    Attributes:
        own: the results of this search.
        shared: the results of all pods that are equal for preemption; None if results depend on more than the node.
    """

    def __init__(self, pod: PodInfo, rows: Sequence[int], enough: int, snapshot: Snapshot) -> None:
        self.pod, self.enough = pod, enough
        self.own = Results()
        self.shared: Results | None = None
        self._nominated: Mapping[int, Sequence[PodInfo]] = _NOBODY
        self._names = snapshot.names
        self._places = np.full(len(self._names), len(rows))  # of each row, in the order of the search
        self._places[rows] = np.arange(len(rows))

    def is_of(self, pod: PodInfo) -> bool:
        return (self.pod.uid, self.pod.pod.spec, self.pod.labels) == (pod.uid, pod.pod.spec, pod.labels)

    @property
    def _own_row(self) -> int:
        """The row to which the preemptor is nominated itself, as for no other pod; -1 if none."""
        row = self._nominated.own_row if isinstance(self._nominated, NominatedOthers) else None
        return -1 if row is None else row

    def note(self, tried: Mapping[int, Found], protected: Mapping[int, Protected]) -> None:
        """Keep results. That of the preemptor's nominated node, and errors, are of this search only."""
        self.own.put(tried, protected)
        if self.shared is not None:
            shared = {
                row: result
                for row, result in tried.items()
                if row != self._own_row and not (isinstance(result, Status) and result.code is Code.ERROR)
            }
            self.shared.put(shared, protected, self._nominated)

    def follow(
        self, snapshot: Snapshot, basis: Hashable, nominated: Mapping[int, Sequence[PodInfo]], now: float
    ) -> None:
        """Forget the results that are no longer valid; the arguments are those of `Results.follow`."""
        self._nominated = nominated
        self.own.follow(snapshot, now=now)
        if self.shared is not None:
            self.shared.follow(snapshot, basis, nominated, now)
            self.shared.forget(self._own_row)

    def protected(self) -> Iterator[Mapping[int, Protected]]:
        """Yield row -> the protection that the result of the row depends on: for the results of this search, then shared ones."""
        yield self.own.protected
        if self.shared is not None:
            yield self.shared.protected

    def in_turn(self, rows: Iterable[int], snapshot: Snapshot) -> list[int]:
        """Return nodes in the order of the search, nodes added since at the end."""
        if snapshot.names != self._names:
            places = dict(zip(self._names, self._places.tolist(), strict=True))
            last = len(self._names)
            self._places = np.array([places.get(name, last) for name in snapshot.names])
            self._names = snapshot.names
        there = np.fromiter(rows, dtype=np.intp)
        in_turn: list[int] = there[np.argsort(self._places[there], kind="stable")].tolist()
        return in_turn


class Searches:
    """The unfinished searches, by pod."""

    def __init__(self) -> None:
        self._under_way: OrderedDict[str, Progress] = OrderedDict()  # uid -> search
        self._shared: OrderedDict[Hashable, Results] = OrderedDict()  # kind of pods -> results

    def of(self, pod: PodInfo) -> Progress | None:
        """Return a pod's search; None if there is none, or the pod has changed."""
        progress = self._under_way.get(pod.uid)
        return progress if progress is not None and progress.is_of(pod) else None

    def shared(self, kind: Hashable) -> Results:
        """Return the results for all pods of a kind."""
        results = self._shared.setdefault(kind, Results())
        self._shared.move_to_end(kind)
        if len(self._shared) > _MOST_SHARED:
            self._shared.popitem(last=False)
        return results

    def end(self, uid: str) -> None:
        """Remove a pod's search."""
        self._under_way.pop(uid, None)

    def to_be_continued(self, progress: Progress) -> NeedsTime:
        """Keep a search until the pod is tried again; return the exception to raise."""
        uid = progress.pod.uid
        self.end(uid)
        self._under_way[uid] = progress
        if len(self._under_way) > _MOST_SEARCHES:
            self._under_way.popitem(last=False)
        pause = self._pause(uid)
        next(pause)  # so that its end is noticed
        return NeedsTime(pause)

    def _pause(self, uid: str) -> Generator[None, None, None]:
        """Do nothing: the search continues in the next attempt. If there is none, remove the search."""
        try:
            yield
        except GeneratorExit:
            self.end(uid)
            raise


NOT_HELPFUL: Final = "PreemptionNotHelpful"
NONE_LOWER: Final = "NoPreemptionVictims"
NOT_ENOUGH: Final = "PreemptionInsufficient"
ONGOING: Final = "PreemptionOngoing"
PREEMPTION_CODES: Final = {
    NOT_HELPFUL: "the node would not fit whichever pods were evicted, so preemption does not try it",
    NONE_LOWER: "the node, or for a group the cluster, has no pods that may be preempted",
    NOT_ENOUGH: "the pod or the group would not fit without all pods that may be preempted",
    ONGOING: "pods that were preempted for the pod, or for its group, have not ended yet",
    "PreemptionProtected": "the pods that could be preempted are protected",
    "PreemptionDelayed": "the pod does not preempt yet, since a node may be added",
    "PreemptionPolicyNever": "the preemptionPolicy of the pod is Never",
    "PreemptionOfGroupOnly": "a member of the group does not preempt by itself",
    "PreemptionRefused": "HTTP extenders refuse all nodes where preemption would help",
}
"""Reason code -> meaning, of the plugins that preempt pods."""

NEVER: Final = Reason("not eligible due to preemptionPolicy=Never.", "PreemptionPolicyNever")
VICTIMS_ARE_LEAVING: Final = Reason("not eligible due to a terminating pod on the nominated node.", ONGOING)

_ROWS_TOGETHER: Final = 512
"""The maximum number of nodes that are tried together: more nodes save little, and make steps longer."""
_PODS_A_STEP: Final = 100
"""The number of pods, and of nodes without pods, in one step: each pod may be protected by thousands of budgets."""

_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS = Status.unschedulable(
    Reason("No preemption victims found for incoming pod", NONE_LOWER), resolvable=False
)


@dataclass(slots=True)
class VictimSearch:
    """The result of the search for candidates.

    Attributes:
        candidates: those that violate no disruption budget come first.
        refusals: row -> why preemption does not help there, for rows that were tried. If a candidate was found now, results
            that are known from searches for equal pods are left out.
        stale: the rows of candidates that were found in an earlier attempt.
        protected: row -> the protected pod there whose protection ends first, for rows that were tried.
        is_complete: whether the search finished within its time limit.
    """

    candidates: list[PreemptionCandidate] = field(default_factory=list)
    refusals: dict[int, Status] = field(default_factory=dict)
    stale: set[int] = field(default_factory=set)
    protected: dict[int, Protected] = field(default_factory=dict)
    is_complete: bool = True

    def message(self, n_nodes: int) -> str:
        """Return the message without a candidate, in the form of FitError."""
        counts: Counter[str] = Counter()
        for status, number in self._numbers():
            for reason in status.reasons:
                counts[reason] += number
        if n_nodes > len(self.refusals):
            counts[_NOT_HELPFUL] += n_nodes - len(self.refusals)
        message = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        return f"0/{n_nodes} nodes are available: {message}."

    def causes(self, n_nodes: int, plugin: str) -> tuple[Cause, ...]:
        """Return how many nodes have which of `PREEMPTION_CODES`: where pods would leave, what still rejects the pod is one code."""
        nodes: Counter[tuple[str, str]] = Counter()
        for status, number in self._numbers():
            codes = (not status.plugin and codes_of(status.reasons, "")) or (NOT_ENOUGH,)
            nodes.update(dict.fromkeys([(code, plugin) for code in codes], number))
        if n_nodes > len(self.refusals):
            nodes[NOT_HELPFUL, plugin] += n_nodes - len(self.refusals)
        return tuple(Cause(*cause) for cause in causes_by_number(nodes))

    def _numbers(self) -> Iterable[tuple[Status, int]]:
        """Return each refusal with its number of nodes; most of thousands of nodes have the same object."""
        objects = {id(status): status for status in self.refusals.values()}
        return ((objects[each], number) for each, number in Counter(map(id, self.refusals.values())).items())


def why_not_eligible(
    pod: PodInfo,
    snapshot: Snapshot,
    diagnosis: Diagnosis,
    waits_for: Callable[[PodInfo], bool] | None = None,
) -> Reason | None:
    """Return why a pod may not preempt now; None if it may.

    While victims of an earlier preemption are still leaving the nominated node, the pod waits for them; `waits_for`
    identifies them among the pods there. By default they are preempted pods of lower priority.
    """
    if pod.pod.spec.preemption_policy == "Never":
        return NEVER
    row = snapshot.row_of(pod.pod.status.nominated_node_name)
    if row is None:
        return None
    found = diagnosis.outcome_of(row)
    # A node that was not examined counts as one where preemption does not help.
    hopeless = diagnosis.rejected_by[row] == NOT_EXAMINED and diagnosis.pre_filter_status is None
    if hopeless or (found is not None and found[1].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE):
        return None
    there = snapshot.pods_on(row)
    if waits_for is not None:
        leaving = any(map(waits_for, there))
    else:
        leaving = any(other.priority < pod.priority and was_preempted(other) for other in there)
    return VICTIMS_ARE_LEAVING if leaving else None


def was_preempted(pod: PodInfo) -> bool:
    """Return whether a pod is terminating because of preemption."""
    if not pod.is_terminating:
        return False
    for condition in pod.pod.status.conditions:
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return False


def rows_to_try(diagnosis: Diagnosis) -> Rows:
    """Return the nodes that rejected the pod for a reason that removing pods might resolve, ascending."""
    if diagnosis.pre_filter_status is not None:
        mendable = diagnosis.pre_filter_status.code is Code.UNSCHEDULABLE
        # The nodes outside of those to which the attempt is limited are not examined.
        return np.flatnonzero((diagnosis.rejected_by != NOT_EXAMINED) & mendable)
    found = np.zeros(diagnosis.n_nodes, dtype=bool)
    for place, table in enumerate(diagnosis.tables):
        resolvable = [outcome.code is Code.UNSCHEDULABLE for outcome in table]
        if any(resolvable):
            rows = np.flatnonzero(diagnosis.rejected_by == place)
            found[rows] = np.array(resolvable)[diagnosis.index[rows]]
    return np.flatnonzero(found)


def search(
    dry_run: PreemptionDryRun,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Iterable[int],
    *,
    budgets: DisruptionBudgets,
    nominated: Mapping[int, Sequence[PodInfo]],
    enough: int,
    choice: Choice | None = None,
    limit: VictimLimit | None = None,
    units: VictimUnits | None = None,
    check: ProtectionCheck | None = None,
    progress: Progress | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> Generator[None, None, VictimSearch]:
    """Try nodes in the given order, until there are enough candidates and one of them violates no budget.

    In steps, for `SlicedWork`. `choice` returns the possible victims on a node, by default pods of lower priority; `limit` is
    an additional condition beside Filter. `units` finds the pods that leave together; without it each pod leaves by itself.
    `check` has the protections that `choice` found, and the limits of evictions.
    Nodes whose result `progress` has are not tried again, and new results are added to it.
    Without time left, the search ends early, and some nodes stay unknown.

    Raises:
        PluginError: the attempt is over budget.
    """
    found = VictimSearch()
    harmless: list[PreemptionCandidate] = []
    harmful: list[PreemptionCandidate] = []
    todo, most = np.fromiter(rows, dtype=np.intp), max(enough, 1)
    together = min(most, _ROWS_TOGETHER)
    choice = _lower_priority(pod, snapshot) if choice is None else choice
    own = {} if progress is None else progress.own.by_row
    shared = {} if progress is None or progress.shared is None else progress.shared.by_row
    refused = todo[:0]
    if progress is not None and progress.shared is not None:
        are_refused = progress.shared.are_refused(todo)
        refused, todo = todo[are_refused], todo[~are_refused]
        found.protected |= _protected_on(refused.tolist(), check, progress)
    has_tried = False
    for start in range(0, len(todo), together):
        several = todo[start : start + together].tolist()
        unknown = [row for row in several if row not in own and row not in shared]
        if unknown and has_tried and not has_time():
            found.is_complete = False
            break
        tried = yield from _tried(
            dry_run, state, pod, snapshot, unknown, budgets, nominated, choice, limit, has_time, units, check
        )
        has_tried = has_tried or bool(tried)
        if progress is not None:
            progress.note(tried, {} if check is None else check.found)
        found.protected |= _protected_on(several, check, progress)
        if _are_enough(found, harmless, harmful, several, tried, shared, own, enough):
            found.is_complete = True
        elif found.is_complete:
            continue
        break
    found.candidates = harmless + harmful[:most]
    if all(each.row in found.stale for each in found.candidates):  # the message of a failure has all refusals
        known = {row: shared[row] for row in refused.tolist()}
        found.refusals |= {row: result for row, result in known.items() if isinstance(result, Status)}
    return found


def _are_enough(
    found: VictimSearch,
    harmless: list[PreemptionCandidate],
    harmful: list[PreemptionCandidate],
    rows: Sequence[int],
    tried: Mapping[int, Found],
    shared: Mapping[int, Found],
    earlier: Mapping[int, Found],
    enough: int,
) -> bool:
    """Note the results of rows in their order; return whether there are enough candidates, and leave out the other rows then."""
    for row in rows:
        result = tried.get(row) or shared.get(row)
        if result is None:
            result = earlier.get(row)
            if isinstance(result, PreemptionCandidate):
                found.stale.add(row)
        if result is None:
            found.is_complete = False
        elif isinstance(result, Status):
            found.refusals[row] = result
        else:
            (harmful if result.violations else harmless).append(result)
            if harmless and len(harmless) + len(harmful) >= enough:
                return True
    return False


def _protected_on(
    rows: Sequence[int], check: ProtectionCheck | None, progress: Progress | None
) -> dict[int, Protected]:
    """Return row -> the protection that its result depends on, of this search or of an earlier one."""
    if check is None:
        return {}
    known = [*(() if progress is None else progress.protected()), check.found]  # the newest last
    return {row: protected[row] for protected in known if protected for row in rows if row in protected}


def _lower_priority(pod: PodInfo, snapshot: Snapshot) -> Choice:
    def choose(row: int) -> Sequence[PodInfo] | Status:
        return [other for other in snapshot.pods_on(row) if other.priority < pod.priority] or NO_VICTIMS

    return choose


def _tried(
    dry_run: PreemptionDryRun,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Sequence[int],
    budgets: DisruptionBudgets,
    nominated: Mapping[int, Sequence[PodInfo]],
    choice: Choice,
    limit: VictimLimit | None,
    has_time: Callable[[], bool],
    units: VictimUnits | None,
    check: ProtectionCheck | None,
) -> Generator[None, None, dict[int, Found]]:
    """Return the results of rows, without the rows that the time limit left out."""
    found: dict[int, Found] = {}
    violating: dict[int, Mapping[str, int]] = {}
    wholes: dict[str, Unit] = {}  # uid of the pod that stands for a unit on a node -> the unit
    removable = yield from _removable(rows, budgets, choice, has_time, units, found, violating, wholes)
    if not removable:
        return found
    together = {uid: unit.pods for uid, unit in wholes.items()}
    tried = yield from dry_run.steps(state, pod, snapshot, removable, nominated, limit, has_time, together)
    looked_at = 0
    for row, result in tried.items():
        if looked_at > _PODS_A_STEP:
            looked_at = 0
            yield
        looked_at += 1 if isinstance(result, Status) else 1 + len(result)
        if isinstance(result, Status):
            found[row] = result
        elif not result:
            found[row] = Status.failed(f'expected at least one victim pod on node "{snapshot.name_of(row)}"')
        else:
            broken = sum(violating[row].get(victim.uid, 0) for victim in result)
            victims = _leaving(result, wholes) if wholes else by_importance(result)
            is_over = check is not None and check.exceeds_limit(victims, row)
            found[row] = PROTECTED if is_over else PreemptionCandidate(row, tuple(victims), broken)
    return found


def _removable(
    rows: Iterable[int],
    budgets: DisruptionBudgets,
    choice: Choice,
    has_time: Callable[[], bool],
    units: VictimUnits | None,
    found: dict[int, Found],
    violating: dict[int, Mapping[str, int]],
    wholes: dict[str, Unit],
) -> Generator[None, None, dict[int, list[PodInfo]]]:
    """Return row -> the possible victims in the order in which they return; those that violate budgets return first.

    Rows without victims are added to `found`, violated budgets to `violating`, and units to `wholes`. Without `units` each pod
    leaves by itself.
    """
    removable: dict[int, list[PodInfo]] = {}
    looked_at = 0
    for row in rows:
        if looked_at > _PODS_A_STEP:
            looked_at = 0
            yield
            if not has_time():
                break
        victims = choice(row)
        looked_at += 1 if isinstance(victims, Status) else 1 + len(victims)
        if isinstance(victims, Status):
            found[row] = victims
        elif units is None:
            protected, others = split(by_importance(victims), budgets)
            violating[row] = dict.fromkeys((victim.uid for victim in protected), 1)
            removable[row] = protected + others
        else:
            removable[row], violating[row] = _in_turn(victims, units, budgets, wholes)
    return removable


def _in_turn(
    victims: Iterable[PodInfo], units: VictimUnits, budgets: DisruptionBudgets, wholes: dict[str, Unit]
) -> tuple[list[PodInfo], dict[str, int]]:
    """Return one of the victims on a node for each unit, in the order in which units return, and uid -> violated budgets.

    Units that are not a single pod with its own priority are added to `wholes`.

    Source:
        kube-scheduler v1.37, plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode.
    """
    there = {pod.uid for pod in victims}
    evictions = Evictions(budgets)
    protected: list[PodInfo] = []
    others: list[PodInfo] = []
    violating: dict[str, int] = {}
    for unit in sorted(units.on_node(victims), key=lambda unit: unit.importance):
        first = next(pod for pod in unit.pods if pod.uid in there)
        if unit.is_group or unit.priority != first.priority:
            wholes[first.uid] = unit
        broken = sum([evictions.breaks(pod) for pod in unit.pods])
        if broken:
            violating[first.uid] = broken
        (protected if broken else others).append(first)
    return protected + others, violating


def _leaving(victims: Iterable[PodInfo], wholes: Mapping[str, Unit]) -> list[PodInfo]:
    """Return all pods that leave with the victims on a node, the most important first."""
    units = [wholes.get(pod.uid) or Unit((pod,), pod.priority) for pod in victims]
    units.sort(key=lambda unit: unit.importance)
    return [pod for unit in units for pod in unit.pods]
