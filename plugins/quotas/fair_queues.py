"""A tree of queues shares a cluster: each has a fair share, lends what it does not use, and gets it back.

Shares are divided from the roots down, between siblings by weighted dominant-resource fairness: `ledger.py`. A pod that
would exceed its queue's share waits; to take back what other queues borrowed, pods within their share preempt. No pod
waits without end: `waiting_order.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from plugins.preemption.candidates import (
    NONE_LOWER,
    NOT_HELPFUL,
    PREEMPTION_CODES,
    rows_to_try,
    why_not_eligible,
)
from plugins.preemption.disruption_budgets import split
from plugins.preemption.preempting import NEEDS, Preempting
from plugins.preemption.protection import PROTECTED, Cause, PreemptingArgs, Protection
from plugins.preemption.ranking import VictimUnits, by_importance, priority_of
from plugins.quotas.history import HistoryArgs, UsageHistory
from plugins.quotas.ledger import Ledger, report, usages
from plugins.quotas.queue_statuses import QueueStatuses
from plugins.quotas.queues import QUEUES, STATUS_RIGHT
from plugins.quotas.remedies import fewest_ended, higher_limit, limit_clause
from plugins.quotas.waiting_order import WaitingOrder
from scheduler.errors import FieldError
from scheduler.framework import (
    ActionType,
    Clock,
    ClusterEvent,
    ClusterObjects,
    EventResource,
    EventWithHint,
    Needs,
    NodesExplanation,
    PluginMetrics,
    PodActivator,
    PodGroupMembers,
    PodGroupObjects,
    PreFilterPlugin,
    PreFilterResult,
    QueuedPods,
    QueueingHint,
    Reason,
    ReservePlugin,
    Sleep,
    SlicedWork,
    Status,
    no_event_keys,
)
from scheduler.framework.preemption import (
    REPORT,  # the constructor's types are read
    NominatedPods,  # the constructor's types are read
    PreemptionDryRun,  # the constructor's types are read
    PreemptionReport,  # the constructor's types are read
    Preemptions,  # the constructor's types are read
    VictimLimit,
    VictimReview,  # the constructor's types are read
)
from scheduler.loop_work import run_to_end
from scheduler.objects.quantity import readable_amounts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from plugins.preemption.candidates import Choice
    from plugins.preemption.disruption_budgets import DisruptionBudgets
    from plugins.preemption.protection import ProtectionCheck
    from plugins.preemption.ranking import Unit
    from plugins.quotas.ledger import QueueReport, QueueUsage
    from scheduler.framework import (
        CycleState,
        Diagnosis,
        PodGroup,
        PostFilterResult,
        QuotaUsage,
        Remedy,
        StatusAccess,
        StatusSource,
    )
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot

    Units = Callable[[Sequence[PodInfo]], Iterable[Sequence[PodInfo]]]
    """Pods in the preferred order of eviction -> units that leave together or not at all, in that order, including
    their pods on other nodes."""


@dataclass(frozen=True, slots=True)
class InTheWay:
    """A queue that would exceed a limit.

    Attributes:
        place: index of the queue.
        resource: the resource.
        is_max: whether the queue would exceed its max, else its fair share.
        used: what the queue uses; milliCPU, bytes or a count.
        promised: what pods that preempted will use in addition.
        most: the limit.
        asked: what the pod requests.
    """

    place: int
    resource: str
    is_max: bool
    used: int
    promised: int
    most: int
    asked: int

    def message(self, standing: QueueUsage) -> str:
        """Return the reason for users, with the title of the queue and readable amounts."""
        title, kind = standing.tree.title(self.place), "max" if self.is_max else "fair"
        used, most, asked, promised = readable_amounts(
            self.resource, self.used, self.most, self.asked, self.promised
        )
        description = f"queue {title} has {used} of its {kind} {most} {self.resource}"
        if self.promised:
            description += f" and keeps {promised} for pods that preempted"
        return Reason(f"{description}, the pod requests {asked}", ABOVE_MAX if self.is_max else ABOVE_SHARE)


@dataclass(frozen=True, slots=True)
class QueueAttempt:
    """The state of the queues in one attempt.

    Attributes:
        standing: the state of the queues.
        leaf: the pod's queue; "" for none.
        path: the indexes of the queues from the leaf to its root.
        asked: (n_resources,), what the pod requests.
        promised: (len(path), n_resources), what nominated pods will use of these queues.
        is_overdue: whether the pod has waited so long that its queue may exceed its share for it.
        changed: row -> (len(path), n_resources), what pods added to the row use in addition, or removed pods use no
            longer.
        with_it: (n_resources,), what other members of the pod's group use that are placed in the same attempt: for an
            overdue group the share limits the whole group as it limits one pod.
    """

    standing: QueueUsage
    leaf: str
    path: tuple[int, ...]
    asked: Int64s
    promised: Int64s
    is_overdue: bool
    changed: dict[int, Int64s] = field(default_factory=dict)
    with_it: Int64s | int = 0

    def clone(self) -> Self:
        return replace(self, changed=dict(self.changed))

    def count(self, pods: Iterable[tuple[int, PodInfo]], sign: int) -> None:
        """Count (row, pod) pairs as added, or with a sign of -1 as removed."""
        for row, pod in pods:
            its = self.standing.tree.queue_of(pod)
            if not its or not self.path:
                continue
            above = set(self.standing.tree.paths[its])
            shared = np.array([place in above for place in self.path])
            amounts = shared[:, None] * self.standing.amounts(pod.resources.taken)
            before = self.changed.get(row)
            self.changed[row] = sign * amounts + (0 if before is None else before)

    def in_the_way(
        self, row: int | None = None, *, up_to: int | None = None, promised: bool = True
    ) -> InTheWay | None:
        """Return the first queue, from the leaf up, that would exceed a limit with the pod; None if there is none.

        Args:
            row: count the changes on this row.
            up_to: how many queues of the path to check; all if not given.
            promised: whether to count what is promised to other pods.
        """
        wanted = np.flatnonzero(self.asked > 0)
        if not wanted.size or not self.path:
            return None
        path = list(self.path[:up_to])
        kept = self.promised[: len(path)] * promised
        used = self.standing.used[path] + kept
        if row is not None and row in self.changed:
            used = used + self.changed[row][: len(path)]
        with_pod = used + self.asked
        limit, deserved = self.standing.limit[path], self.standing.deserved[path]
        beyond_max = with_pod > limit
        beyond_share = (with_pod > deserved) & (used - self.with_it >= deserved if self.is_overdue else True)
        for beyond, most, is_max in ((beyond_max, limit, True), (beyond_share, deserved, False)):
            found = np.argwhere(beyond[:, wanted])
            if found.size:
                level, column = int(found[0, 0]), int(wanted[found[0, 1]])
                name = list(self.standing.resources)[column]
                amounts = (
                    used[level, column] - kept[level, column],
                    kept[level, column],
                    most[level, column],
                    self.asked[column],
                )
                return InTheWay(path[level], name, is_max, *map(int, amounts))
        return None

    def fits_ever(self) -> bool:
        """Return whether no max is smaller than the pod itself."""
        return not (self.standing.limit[list(self.path)] < self.asked).any()


ABOVE_MAX: Final = "QueueMaxExceeded"
ABOVE_SHARE: Final = "QueueShareExceeded"
TURN_OF_OTHER: Final = "QueueTurnOfOtherPod"

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

    def cause(self, other: PodInfo) -> Cause:
        """Return why the pod would preempt another, which may leave for it."""
        is_own = not self._attempt.leaf or self._standing.tree.queue_of(other) == self._attempt.leaf
        return Cause.PREEMPTION if is_own else Cause.FAIR_SHARE_RECLAIM

    def choice(
        self,
        snapshot: Snapshot,
        budgets: DisruptionBudgets,
        units: Units = one_by_one,
        check: ProtectionCheck | None = None,
    ) -> Choice:
        """Return the choice of possible victims on a node: first those without a protecting budget, then the least important.

        Pods that leave with them on other nodes are counted, and not returned.
        """

        def choose(row: int) -> Sequence[PodInfo] | Status:
            gone: dict[int, Int64s] = {}
            victims: list[PodInfo] = []
            has_protected = False
            there = snapshot.pods_on(row)
            uids = {pod.uid for pod in there}
            protected, others = split(by_importance(there), budgets)
            for unit in units([*reversed(others), *reversed(protected)]):
                with_unit = dict(gone)
                if all(self.may_leave(other, with_unit) for other in unit):
                    if check is not None and check.protects(unit, self.cause(unit[0]), row):
                        has_protected = True
                        continue
                    gone = with_unit
                    victims.extend(other for other in unit if other.uid in uids)
            if victims:
                return victims
            if has_protected:
                return PROTECTED
            message = f"No pods on node {snapshot.name_of(row)} may be evicted for a pod of its queue"
            reason = Reason(message if self._attempt.leaf else _NO_VICTIMS, NONE_LOWER)
            return Status.unschedulable(reason, resolvable=False)

        return choose


class WithinShares(VictimLimit):
    """Preemption keeps the pod's queue, and those above it, within max and fair share."""

    def refusal(self, state: CycleState, row: int) -> Status | None:
        return None if self.allows(state, row) else _REFUSED

    def allows(self, state: CycleState, row: int) -> bool:
        return state.read(ATTEMPT, QueueAttempt).in_the_way(row) is None


_MOST_LIMITS: Final = 8
"""The number of limits that are raised together in an explanation."""
_MOST_QUEUES: Final = 1000
"""The number of queues up to which an explanation computes the shares with higher limits."""
_WOKEN_A_TIME = 64
"""How many pods of one queue are checked once a second for whether they may be tried again."""


class FairQueuesArgs(PreemptingArgs, frozen=True, kw_only=True):
    """The plugin's arguments.

    Attributes:
        longest_wait_seconds: after this time no younger pod overtakes a waiting pod.
        history: how the use of the past counts; None for not at all.
    """

    CAUSES: ClassVar[tuple[Cause, ...]] = (Cause.PREEMPTION, Cause.FAIR_SHARE_RECLAIM)

    longest_wait_seconds: float = 60.0
    history: HistoryArgs | None = None

    def faults(self) -> Iterable[FieldError]:
        if self.longest_wait_seconds < 0:
            yield FieldError(
                "longestWaitSeconds", f"at least 0 is expected, was {self.longest_wait_seconds:g}"
            )
        for fault in () if self.history is None else self.history.faults():
            yield FieldError(f"history.{fault.path}", fault.problem)
        yield from super().faults()


class FairQueues(PreFilterPlugin, ReservePlugin, Preempting):
    """Keeps queues within their fair shares, and preempts by them, instead of DefaultPreemption."""

    name = "FairQueues"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            **PREEMPTION_CODES,
            ABOVE_MAX: "the queue of the pod, or one above it, would exceed its `max`",
            ABOVE_SHARE: "the queue of the pod, or one above it, would exceed its fair share",
            TURN_OF_OTHER: "the queue of the pod keeps its next place for a pod that has waited longer",
        }
    )
    Args = FairQueuesArgs
    keeps_rows_apart = True
    takes_whole_groups = True
    needs = Needs(kinds=NEEDS.kinds | {QUEUES}, rights=NEEDS.rights | {STATUS_RIGHT})
    refresh_seconds = 1.0
    refreshes_in_simulations = True

    def __init__(
        self,
        *,
        args: FairQueuesArgs,
        dry_run: PreemptionDryRun,
        review: VictimReview,
        preemptions: Preemptions,
        nominated: NominatedPods,
        work: SlicedWork,
        members: PodGroupMembers,
        groups: PodGroupObjects,
        clock: Clock,
        queued: QueuedPods,
        cluster: ClusterObjects,
        activator: PodActivator,
        sleep: Sleep,
        metrics: PluginMetrics,
    ) -> None:
        protection = Protection.of(args, clock, queued, preemptions, metrics)
        super().__init__(dry_run, review, preemptions, work, VictimUnits(members, groups), protection)
        self._members = members
        self._nominated = nominated
        self._clock, self._queued, self._cluster, self._activator = clock, queued, cluster, activator
        self._sleep = sleep
        self._ledger = Ledger(None if args.history is None else UsageHistory(args.history, clock))
        self._evicting: dict[str, Sequence[PodInfo]] = {}  # uid of a preemptor -> its victims
        self._pending = self._ledger.pending
        self._waiting_order = WaitingOrder(clock, queued, self._pending, args.longest_wait_seconds)

    def statuses(self, plugins: Sequence[Self], access: StatusAccess) -> Sequence[StatusSource]:
        return [QueueStatuses(plugins, access)]

    def events(self) -> Sequence[EventWithHint]:
        frees = ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN
        grows = ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE
        return (
            EventWithHint(ClusterEvent(EventResource.POD, frees), self._may_fit, self._alike),
            EventWithHint(ClusterEvent(EventResource.NODE, grows), self._may_fit, self._alike),
            EventWithHint(ClusterEvent(EventResource.of(QUEUES), ActionType.ALL)),
            EventWithHint(
                ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_LABEL), event_keys=no_event_keys
            ),
        )

    def _alike(self, pod: PodInfo) -> Hashable:
        return self.quota_of(pod), tuple(sorted(pod.resources.requests.items()))

    def _may_fit(self, pod: PodInfo, _old: object, _new: object) -> QueueingHint:
        attempt = self._attempt(pod, self._ledger.standing(self._cluster.snapshot(), pod), is_overdue=True)
        return QueueingHint.QUEUE if attempt.in_the_way(promised=False) is None else QueueingHint.SKIP

    async def refresh(self) -> None:
        """Once a second, activate pods that no event would requeue: overdue ones, and ones that waited behind other pods."""
        for _ in self._ledger.reading(self._cluster.snapshot()):
            await self._sleep.sleep(0.0)
        for uid in [uid for uid in self._evicting if not self._preemptions.is_running(uid)]:
            for victim in self._evicting.pop(uid):  # by now the snapshot shows whether they are terminating
                self._ledger.evicting.pop(victim.uid, None)
        self._pending.sweep(self._queued, self.name)
        if self._ledger.history is not None:
            self._ledger.standing(self._cluster.snapshot())
        if self._waiting_order.forget_those_gone():
            elsewhere = self._waiting_order.sent_elsewhere
            self._activator.activate([uid for uid in self._waiting() if uid in elsewhere])
            self._waiting_order.sent_elsewhere.clear()
        if self._waiting_order.kept_back:
            self._activator.activate(self._whose_turn_it_is(self._cluster.snapshot()))

    # State for another process.

    def saved_state(self) -> Any:
        history = self._ledger.history
        return {
            "pending": self._pending.saved(),
            "order": self._waiting_order.saved(),
            "evicting": [[uid, [pod.uid for pod in pods]] for uid, pods in self._evicting.items()],
            "history": None if history is None else history.saved(),
        }

    def resume_state(self, saved: Any) -> None:
        snapshot = self._cluster.snapshot()
        run_to_end(self._ledger.reading(snapshot))
        self._pending.follow(self._ledger.tree)
        self._pending.resume(saved["pending"], self._queued)
        self._waiting_order.resume(saved["order"])
        there = {pod.uid: pod for row in range(snapshot.n_nodes) for pod in snapshot.pods_on(row)}
        for uid, victims in saved["evicting"]:
            self._evicting[uid] = [there[each] for each in victims if each in there]
            self._ledger.evicting.update({pod.uid: pod for pod in self._evicting[uid]})
        if self._ledger.history is not None and saved["history"] is not None:
            self._ledger.history.resume(saved["history"])

    # PreEnqueue.

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        self._pending.put(pod)
        return super().pre_enqueue(pod)

    # PreFilter.

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        # A pending pod in an overlay is hypothetical, evaluated for an explanation: nothing is recorded about it.
        is_attempt = snapshot.changes is not None or state.group is not None or bool(pod.node_name)
        if is_attempt and self._queued.get(pod.uid) is not None:
            self._pending.put(pod)
            self._pending.hope(pod.uid)
        self._ledger.be_read_for(pod, snapshot)
        attempt = self._attempt(
            pod, self._ledger.standing(snapshot, pod), is_overdue=self._waiting_order.is_overdue(pod)
        )
        if state.group is not None and attempt.is_overdue:
            attempt = replace(attempt, with_it=self._placed_with(state.group, attempt))
        state.write(ATTEMPT, attempt, by_row=True)
        if is_attempt:
            self._waiting_order.kept_back.discard(pod.uid)
        if not attempt.leaf:
            return None
        why = self._kept_back(attempt, pod)
        if why:
            if is_attempt:
                self._keep_back(attempt, pod)
            return Status.unschedulable(why)
        open_nodes = self._waiting_order.left_to(pod, attempt.leaf, snapshot, state.group)
        return None if open_nodes is None else PreFilterResult(open_nodes)

    def _keep_back(self, attempt: QueueAttempt, pod: PodInfo) -> None:
        """Record that a pod is rejected: it waits for its share, or its request exceeds what the queue may ever use."""
        self._waiting_order.release(pod.uid)
        if attempt.fits_ever():
            self._waiting_order.kept_back.add(pod.uid)
        else:
            self._pending.give_up(pod.uid)

    def _placed_with(self, group: PodGroup, attempt: QueueAttempt) -> Int64s:
        """Return what members of a gang use that were placed in the same attempt; nothing once the minimum is reached."""
        total = np.zeros_like(attempt.asked)
        placed = self._members.placed(group.key)
        if len(placed) >= group.min_count:
            return total
        for member in placed:
            if self._queued.get(member.uid) is not None:
                total += attempt.standing.amounts(member.resources.taken)
        return total

    def _kept_back(self, attempt: QueueAttempt, pod: PodInfo) -> str:
        """Return the queue limit or reservation that keeps a pod back; "" for none."""
        found = attempt.in_the_way()
        if found is not None:
            return found.message(attempt.standing)
        first = self._waiting_order.ahead_of(pod, attempt.leaf)
        if first is None:
            return ""
        title = attempt.standing.tree.title(attempt.path[0])
        return Reason(
            f"queue {title} keeps its next place for pod {first.key}, which has waited longer", TURN_OF_OTHER
        )

    def _attempt(self, pod: PodInfo, standing: QueueUsage, *, is_overdue: bool) -> QueueAttempt:
        tree = standing.tree
        leaf = tree.queue_of(pod)
        path = tree.paths[leaf] if leaf else ()
        promised = np.zeros((len(path), len(standing.resources)), dtype=np.int64)
        if path:
            for other in self._nominated.pods():
                its = "" if other.uid == pod.uid else tree.queue_of(other)
                if not its or (its == leaf and other.priority < pod.priority):
                    continue
                shared = np.isin(path, tree.paths[its])
                promised[shared] += standing.amounts(other.resources.requests)
        asked = standing.amounts(pod.resources.requests)
        return QueueAttempt(standing, leaf, path, asked, promised, is_overdue)

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(ATTEMPT, QueueAttempt).count(added, 1)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(ATTEMPT, QueueAttempt).count(removed, -1)

    # PostFilter.

    async def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        result = await super().post_filter(state, pod, snapshot, diagnosis)
        if result.status.is_success:
            report = state.read(REPORT, PreemptionReport)
            row = snapshot.row_of(result.nominated_node_name or "")
            if row is not None and row in report.candidates:
                self._evicting[pod.uid] = self.leaving_with(report.candidates[row][0])
                self._ledger.evicting.update({victim.uid: victim for victim in self._evicting[pod.uid]})
        elif ATTEMPT in state and pod.uid in self._pending:
            self._note_failure(state, pod, snapshot, diagnosis)
        return result

    def _note_failure(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> None:
        """Reserve a node for an overdue pod, or release its reservation if no node could run it."""
        attempt = state.read(ATTEMPT, QueueAttempt)
        if not attempt.leaf or pod.uid in self._waiting_order.kept_back:
            return
        if self._waiting_order.left_to(pod, attempt.leaf, snapshot, state.group) is not None:
            self._waiting_order.sent_elsewhere.add(pod.uid)
            return
        rows = rows_to_try(diagnosis)
        if not rows.size:
            self._waiting_order.release(pod.uid)
            self._pending.give_up(pod.uid)
        elif attempt.is_overdue:
            self._waiting_order.hold(pod, attempt.leaf, rows, snapshot, state.group)

    def why_not_eligible(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Reason | None:
        if ATTEMPT not in state:  # PreFilter of an earlier plugin rejected the pod
            return Reason("not eligible due to failed to read from cycleState", NOT_HELPFUL)
        reclaim = Reclaim(state.read(ATTEMPT, QueueAttempt), pod.priority)

        def waits_for(other: PodInfo) -> bool:
            return other.is_terminating and reclaim.may_leave(other)

        return why_not_eligible(pod, snapshot, diagnosis, waits_for)

    def choice(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, check: ProtectionCheck | None
    ) -> Choice:
        reclaim = Reclaim(state.read(ATTEMPT, QueueAttempt), pod.priority)
        return reclaim.choice(snapshot, self._budgets, self._units.together, check)

    def time_of_queue(self, pod: PodInfo, cause: Cause) -> tuple[float, str] | None:
        return self._ledger.tree.min_run_time(pod, cause)

    def limit(self, pod: PodInfo) -> WithinShares:
        return WithinShares()

    def removable(
        self,
        units: Iterable[Unit],
        group: PodGroup,
        members: Sequence[PodInfo],
        snapshot: Snapshot,
        check: ProtectionCheck | None,
    ) -> Generator[None, None, Sequence[Unit]]:
        """Return the units that the group may preempt: from a queue at most what it has borrowed."""
        first = members[0]
        standing = self._ledger.standing(snapshot, first)
        attempt = self._attempt(first, standing, is_overdue=self._waiting_order.is_overdue(first))
        for member in members[1:]:
            attempt.asked[:] += standing.amounts(member.resources.requests)
        reclaim = Reclaim(attempt, priority_of(group, members))
        gone: dict[int, Int64s] = {}
        found = []
        # Members on nodes may have a lower priority than their group.
        others = (unit for unit in units if unit.pods[0].group != group.key)
        for unit in sorted(others, key=lambda unit: unit.importance, reverse=True):
            yield
            with_unit = dict(gone)
            if all(reclaim.may_leave(pod, with_unit) for pod in unit.pods):
                if check is not None and check.protects(unit.pods, reclaim.cause(unit.pods[0])):
                    continue
                gone = with_unit
                found.append(unit)
        return found

    # Reserve.

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self._pending.drop(pod.uid)
        if self._ledger.history is not None:  # so that the use counts from now on
            self._ledger.standing(self._cluster.snapshot())
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if self._queued.get(pod.uid) is None:
            return
        self._pending.put(pod)
        if state.group is not None and self._waiting_order.is_overdue(pod):
            leaf = self._ledger.standing(self._cluster.snapshot()).tree.queue_of(pod)
            if leaf:
                self._waiting_order.hold_at(pod, leaf, node_name, state.group)

    # Explanations.

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        attempt = self._attempt(
            pod, self._ledger.standing(snapshot, pod), is_overdue=self._waiting_order.is_overdue(pod)
        )
        if not attempt.leaf:
            return ()
        kept_back = self._kept_back(attempt, pod)
        held = [
            each
            for of_leaf in self._waiting_order.held.values()
            for each in of_leaf.values()
            if node is not None and each.node == node.name
        ]
        details = [kept_back, *self._past_use(attempt)] if kept_back else []
        details += [
            f"it is reserved for pod {each.pod.key}, which has waited longer"
            for each in held
            if each.pod.uid != pod.uid
        ]
        if details:
            details.append(f"the pod has waited for {self._waiting_order.waited_seconds(pod):.0f}s")
        return details

    def _past_use(self, attempt: QueueAttempt) -> Iterator[str]:
        """Yield the average of the queue whose share keeps a pod back, if a history counts."""
        found, history, tree = attempt.in_the_way(), self._ledger.history, attempt.standing.tree
        average = None if found is None or history is None else history.status_of(tree, found.place)[0]
        if found is not None and average is not None and not found.is_max:
            yield f"queue {tree.title(found.place)} had {100 * average:.1f}% of the cluster on average, which counts in its share"

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        """Propose a higher max, if the queue then has its share for the pod, and the end of the fewest of its pods."""
        attempt = self._attempt(
            pod, self._ledger.standing(snapshot, pod), is_overdue=self._waiting_order.is_overdue(pod)
        )
        found = attempt.in_the_way()
        if found is None:
            return None
        remedies = [self._higher_max(pod, snapshot, attempt), self._fewer_pods(pod, snapshot, attempt, found)]
        return NodesExplanation("", [each for each in remedies if each is not None])

    def _higher_max(self, pod: PodInfo, snapshot: Snapshot, attempt: QueueAttempt) -> Remedy | None:
        """Return the remedy of a higher max of queues; None if the pod exceeds fair shares too."""
        tree = attempt.standing.tree
        raised: dict[int, dict[str, int]] = {}
        clauses: list[str] = []
        while (found := attempt.in_the_way()) is not None:
            if not found.is_max or len(clauses) == _MOST_LIMITS or len(tree) > _MOST_QUEUES:
                return None
            needed = found.used + found.promised + found.asked
            raised.setdefault(found.place, {})[found.resource] = needed
            what = f"max.{found.resource} of queue {tree.title(found.place)}"
            clauses.append(limit_clause(found.resource, what, needed, found.most))
            attempt = replace(attempt, standing=self._ledger.with_max(snapshot, pod, raised))
        return higher_limit(pod, clauses, self.name)

    def _fewer_pods(
        self, pod: PodInfo, snapshot: Snapshot, attempt: QueueAttempt, found: InTheWay
    ) -> Remedy | None:
        """Return the remedy that the fewest pods of a queue end."""
        standing, tree, level = attempt.standing, attempt.standing.tree, attempt.path.index(found.place)
        most = (standing.limit if found.is_max else standing.deserved)[found.place]
        over = standing.used[found.place] + attempt.promised[level] + attempt.asked - most
        lacking = {
            name: int(over[column])
            for name, column in standing.resources.items()
            if attempt.asked[column] > 0 and over[column] > 0
        }
        users = (
            (row, other)
            for leaf, path in tree.paths.items()
            if found.place in path
            for row in sorted(self._ledger.rows_with(leaf))
            for other in snapshot.pods_on(row)
            if tree.queue_of(other) == leaf
        )
        return fewest_ended(pod, users, lacking, f"of queue {tree.title(found.place)}")

    def report(self) -> Generator[None, None, Mapping[str, QueueReport]]:
        """Return the report of each queue, by name, in steps."""
        return report(self._ledger, self._cluster.snapshot(), self._clock.monotonic())

    def quota_usages(
        self, plugins: Sequence[Self], pending: Sequence[PodInfo]
    ) -> Generator[None, None, Sequence[QuotaUsage]]:
        return usages(self._ledger, self._cluster.snapshot(), pending)

    def quota_of(self, pod: PodInfo) -> str:
        return self._ledger.standing(self._cluster.snapshot()).tree.queue_of(pod)

    # Helpers.

    def _waiting(self) -> Iterator[str]:
        """Yield the pending pods in a fixed order, so that equal runs decide in the same order."""
        return (uid for pods in self._pending.by_queue.values() for uid in pods)

    def _whose_turn_it_is(self, snapshot: Snapshot) -> list[str]:
        """Return pods that a share kept back before and admits now, of each queue no more than fit into its share."""
        standing = self._ledger.standing(snapshot)
        standing = replace(standing, used=standing.used.copy())
        found = []
        for leaf in [leaf for leaf in self._pending.by_queue if leaf]:
            looked_at = 0
            for pod in self._pending.by_queue[leaf].values():
                if pod.uid not in self._waiting_order.kept_back:
                    continue
                looked_at += 1
                attempt = self._attempt(pod, standing, is_overdue=self._waiting_order.is_overdue(pod))
                if attempt.in_the_way() is not None or looked_at > _WOKEN_A_TIME:
                    break
                for place in attempt.path:
                    standing.used[place] += attempt.asked
                found.append(pod.uid)
        return found
