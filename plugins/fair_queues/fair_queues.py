"""A tree of queues shares a cluster: each has a fair share, lends what it does not use, and takes it back.

Shares are divided from the roots down, between siblings by weighted dominant-resource fairness: `shares.py`. A pod that
would exceed its queue's share waits; to take back what other queues borrowed, pods within their share preempt. No pod
waits without end: `turns.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from plugins.fair_queues.attempt import QueueAttempt
from plugins.fair_queues.ledger import Ledger
from plugins.fair_queues.queue_statuses import QueueStatuses
from plugins.fair_queues.queues import QUEUES, STATUS_RIGHT
from plugins.fair_queues.report import report
from plugins.fair_queues.victims import ATTEMPT, Reclaim, WithinShares
from plugins.fair_queues.waiting_order import WaitingOrder
from plugins.preemption.candidates import rows_to_try, why_not_eligible
from plugins.preemption.preempting import NEEDS, Preempting
from plugins.preemption.units import VictimUnits, priority_of
from scheduler.errors import FieldError
from scheduler.framework import (
    ActionType,
    Clock,
    ClusterEvent,
    ClusterObjects,
    EventResource,
    EventWithHint,
    Needs,
    PluginArgs,
    PodActivator,
    PodGroupMembers,
    PodGroupObjects,
    PreFilterPlugin,
    PreFilterResult,
    QueuedPods,
    QueueingHint,
    ReservePlugin,
    Sleep,
    SlicedWork,
    Status,
    no_event_keys,
)
from scheduler.framework.preemption import (  # the constructor's types are read
    REPORT,
    NominatedPods,
    PreemptionDryRun,
    PreemptionReport,
    Preemptions,
    VictimReview,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
    from typing import Self

    from plugins.fair_queues.ledger import QueueUsage
    from plugins.fair_queues.report import QueueReport
    from plugins.preemption.candidates import Choice
    from plugins.preemption.units import Unit
    from scheduler.framework import (
        CycleState,
        Diagnosis,
        PodGroup,
        PostFilterResult,
        StatusAccess,
        StatusSource,
    )
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Snapshot


def _none_gone() -> dict[int, Int64s]:
    return {}


_WOKEN_A_TIME = 64
"""How many pods of one queue are checked once a second for whether they may be tried again."""


class FairQueuesArgs(PluginArgs, frozen=True, kw_only=True):
    """The plugin's arguments.

    Attributes:
        longest_wait_seconds: after this time no younger pod overtakes a waiting pod.
    """

    longest_wait_seconds: float = 60.0

    def faults(self) -> Iterable[FieldError]:
        if self.longest_wait_seconds < 0:
            yield FieldError(
                "longestWaitSeconds", f"at least 0 is expected, was {self.longest_wait_seconds:g}"
            )


class FairQueues(PreFilterPlugin, ReservePlugin, Preempting):
    """Keeps queues within their fair shares, and preempts by them, instead of DefaultPreemption."""

    name = "FairQueues"
    api_version = 1
    Args = FairQueuesArgs
    keeps_rows_apart = True
    takes_whole_groups = True
    needs = Needs(kinds=NEEDS.kinds | {QUEUES}, rights=NEEDS.rights | {STATUS_RIGHT})
    refresh_seconds = 1.0

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
    ) -> None:
        super().__init__(dry_run, review, preemptions, work, VictimUnits(members, groups))
        self._members = members
        self._nominated = nominated
        self._clock, self._queued, self._cluster, self._activator = clock, queued, cluster, activator
        self._sleep = sleep
        self._ledger = Ledger()
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
            EventWithHint(ClusterEvent(EventResource.QUEUE, ActionType.ALL)),
            EventWithHint(
                ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_LABEL), event_keys=no_event_keys
            ),
        )

    def _alike(self, pod: PodInfo) -> Hashable:
        tree = self._ledger.standing(self._cluster.snapshot()).tree
        return tree.queue_of(pod), tuple(sorted(pod.resources.requests.items()))

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
        if self._waiting_order.forget_those_gone():
            self._activator.activate(self._waiting_order.sent_elsewhere & self._waiting())
            self._waiting_order.sent_elsewhere.clear()
        if self._waiting_order.kept_back:
            self._activator.activate(self._whose_turn_it_is(self._cluster.snapshot()))

    # PreEnqueue.

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        self._pending.put(pod)
        return super().pre_enqueue(pod)

    # PreFilter.

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        if self._queued.get(pod.uid) is not None:
            self._pending.put(pod)
            self._pending.hope(pod.uid)
        self._ledger.be_read_for(pod, snapshot)
        attempt = self._attempt(
            pod, self._ledger.standing(snapshot, pod), is_overdue=self._waiting_order.is_overdue(pod)
        )
        if state.group is not None and attempt.is_overdue:
            attempt = replace(attempt, with_it=self._placed_with(state.group, attempt))
        state.write(ATTEMPT, attempt, by_row=True)
        self._waiting_order.kept_back.discard(pod.uid)
        if not attempt.leaf:
            return None
        why = self._kept_back(attempt, pod)
        if why:
            self._waiting_order.release(pod.uid)
            if attempt.fits_ever():
                self._waiting_order.kept_back.add(pod.uid)
            else:
                self._pending.give_up(pod.uid)
            return Status.unschedulable(why)
        open_nodes = self._waiting_order.left_to(pod, attempt.leaf, snapshot, state.group)
        return None if open_nodes is None else PreFilterResult(open_nodes)

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
        return f"queue {title} keeps its next place for pod {first.key}, which has waited longer"

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
    ) -> str:
        if ATTEMPT not in state:  # PreFilter of an earlier plugin rejected the pod
            return "not eligible due to failed to read from cycleState"
        reclaim = Reclaim(state.read(ATTEMPT, QueueAttempt), pod.priority)

        def waits_for(other: PodInfo) -> bool:
            return other.is_terminating and reclaim.may_leave(other)

        return why_not_eligible(pod, snapshot, diagnosis, waits_for)

    def choice(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Choice:
        reclaim = Reclaim(state.read(ATTEMPT, QueueAttempt), pod.priority)
        return reclaim.choice(snapshot, self._budgets, self._units.together)

    def limit(self, pod: PodInfo) -> WithinShares:
        return WithinShares()

    def removable(
        self, units: Iterable[Unit], group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> Generator[None, None, Sequence[Unit]]:
        """Return the units that the group may preempt: from a queue at most what it has borrowed."""
        first = members[0]
        standing = self._ledger.standing(snapshot, first)
        attempt = self._attempt(first, standing, is_overdue=self._waiting_order.is_overdue(first))
        for member in members[1:]:
            attempt.asked[:] += standing.amounts(member.resources.requests)
        reclaim, gone = Reclaim(attempt, priority_of(group, members)), _none_gone()
        found = []
        for unit in sorted(units, key=lambda unit: unit.importance, reverse=True):
            yield
            with_unit = dict(gone)
            if all(reclaim.may_leave(pod, with_unit) for pod in unit.pods):
                gone = with_unit
                found.append(unit)
        return found

    # Reserve.

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self._pending.drop(pod.uid)
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
        told = [kept_back] if kept_back else []
        told += [
            f"it is reserved for pod {each.pod.key}, which has waited longer"
            for each in held
            if each.pod.uid != pod.uid
        ]
        if told:
            told.append(f"the pod has waited for {self._waiting_order.waited_seconds(pod):.0f}s")
        return told

    def report(self) -> Generator[None, None, Mapping[str, QueueReport]]:
        """Return the report of each queue, by name, in steps."""
        return report(self._ledger, self._cluster.snapshot(), self._clock.monotonic())

    # Helpers.

    def _waiting(self) -> set[str]:
        return {uid for pods in self._pending.by_queue.values() for uid in pods}

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
