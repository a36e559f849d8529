"""Evaluates pod groups with the daemon's own group cycle; nothing is carried out."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from scheduler.daemon.app.gauges import group_queue_state, requeuing_events
from scheduler.engine.cycle.group_explanation import explain_pass, explain_untried, untried_member
from scheduler.engine.cycle.group_remedies import GroupExplainer
from scheduler.framework.queued_pod import QueuedPodInfo
from scheduler.framework.status import SUCCESS, Status
from scheduler.objects.pod_group import GroupKey

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from typing import Any

    from scheduler.engine.cycle.group_explanation import GroupExplanation
    from scheduler.engine.cycle.group_pass import Member, Pass
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot
    from scheduler.tools.whatif.offline import OfflineScheduler

T = TypeVar("T")


class GroupEvaluation:
    """The evaluation of one group.

    Attributes:
        explanation: the explanation.
        tried: the results of its members; None if there was no attempt.
        status: the result for the group.
        members: the results of all members of its tree, in the order in which they were tried.
    """

    def __init__(
        self,
        explanation: GroupExplanation,
        tried: Pass | None,
        status: Status,
        members: Sequence[Member] = (),
    ) -> None:
        self.explanation = explanation
        self.tried = tried
        self.status = status
        self.members = members

    def member(self, uid: str) -> Member | None:
        """Return the result of one of its pods; None if the pod was not tried."""
        members = () if self.tried is None else self.tried.members
        return next((member for member in members if member.attempt.queued.pod.uid == uid), None)

    def rejectors(self) -> set[tuple[str, str]]:
        """Return (profile, plugin) of the plugins whose events requeue it; none if it is placed."""
        if self.tried is None or self.tried.room is None:
            return set()
        return {
            (member.attempt.framework.profile, plugin)
            for member in self.tried.members
            for plugin in self.tried.rejectors(member)
        }

    def before(self, uid: str, snapshot: Snapshot) -> list[tuple[int, PodInfo]]:
        """Return the rows and pods that were placed before one of its pods was tried, and that a snapshot lacks."""
        found = []
        for member in self.members:
            if member.attempt.queued.pod.uid == uid:
                break
            if member.assumed is not None:
                row = snapshot.row_of(member.assumed.node_name)
                assert row is not None, f"node {member.assumed.node_name} is gone"
                if all(pod.uid != member.assumed.pod.uid for pod in snapshot.pods_on(row)):
                    found.append((row, member.assumed.pod))
        return found


class GroupEvaluator:
    """Evaluates groups in the current state of a cluster.

    Args:
        scheduler: the scheduler of the cluster.
        seconds: time for the remedies of each explanation.
    """

    def __init__(self, scheduler: OfflineScheduler, seconds: float = math.inf) -> None:
        self._scheduler = scheduler
        self._seconds = seconds

    def group_of(self, pod: PodInfo) -> GroupKey | None:
        """Return the group of a pod; None if its profile does not schedule groups of this kind."""
        return self._scheduler.parts.profiles.group_of(pod)

    def named(self, key: str) -> list[GroupKey]:
        """Return the groups named `namespace/name` that have pods or an object."""
        scheduler = self._scheduler
        found = dict.fromkeys(
            group
            for queued in scheduler.queue.pods()
            if (group := self.group_of(queued.pod)) is not None and group.key == key
        )
        namespace, _, name = key.partition("/")
        for framework in scheduler.frameworks.values():
            for kind in sorted(framework.group_readers):
                group = GroupKey(kind, namespace, name)
                if scheduler.parts.cache.groups.count(group) or key in (
                    scheduler.cache.table.objects(kind) or ()
                ):
                    found[group] = None
        return list(found)

    def judge(self, key: GroupKey) -> GroupEvaluation:
        """Evaluate a group now, with all groups of its tree; the cluster does not change."""
        scheduler = self._scheduler
        keys, pending_of = scheduler.parts.profiles.tree_of(key), scheduler.parts.cache.groups.pending
        uids = [uid for each in keys for uid in pending_of(each)]
        pending = [queued.pod for uid in uids if (queued := scheduler.queue.get(uid)) is not None]
        kept_back: dict[str, Status] = {}  # pod key -> why
        for pod in pending:
            gate = scheduler.frameworks[pod.scheduler_name].run_pre_enqueue(pod)
            if not gate.is_success:
                kept_back[pod.key] = gate
        if kept_back and scheduler.parts.profiles.entity_of(pending[0]) is not None:
            return self._with_state(key, self._untried(key, kept_back))  # one gated pod gates all
        members = [QueuedPodInfo(pod, 0.0, 1) for pod in pending if pod.key not in kept_back]
        members.sort(key=lambda queued: -queued.pod.priority)
        judged = self._tried(key, members) if members else self._untried(key, kept_back)
        leaves = frozenset(scheduler.parts.profiles.leaves_below(key))
        own = {each.key for each in pending if each.group in leaves}
        judged.explanation["members"] += [
            untried_member(pod, gate) for pod, gate in kept_back.items() if members and pod in own
        ]
        return self._with_state(key, judged)

    def _with_state(self, key: GroupKey, judged: GroupEvaluation) -> GroupEvaluation:
        """Complete the group's explanation, with its state in the queue."""
        scheduler = self._scheduler
        judged.explanation |= group_queue_state(scheduler.parts, key)
        if judged.tried is not None:
            judged.explanation["requeuingEvents"] = requeuing_events(scheduler.parts, judged.rejectors())
        pending = {queued.pod.key: queued.pod for queued in scheduler.queue.pods()}
        explainer = GroupExplainer(
            scheduler.frameworks.get,
            pending.get,
            scheduler.parts.clock,
            scheduler.parts.budget,
            self._seconds,
        )
        snapshot = scheduler.cache.snapshot()
        judged.explanation = explainer.complete(
            judged.explanation, snapshot, partial(scheduler.nominator.others, snapshot=snapshot)
        )
        return judged

    def _tried(self, key: GroupKey, members: list[QueuedPodInfo]) -> GroupEvaluation:
        tried = driven(self._scheduler.cycles.groups.explore(members))
        driven(self._scheduler.parts.freeze.end())
        if isinstance(tried, Status):
            statuses = dict.fromkeys((queued.pod.key for queued in members), tried)
            explanation = explain_untried(key, None, "error", tried.message, statuses)
            return GroupEvaluation(explanation, None, tried)
        wanted = next((each for each in _each(tried) if each.group.key == key), tried)
        status, result = wanted.outcome()
        return GroupEvaluation(explain_pass(wanted, status, result), wanted, status, tried.members)

    def _untried(self, key: GroupKey, kept_back: dict[str, Status]) -> GroupEvaluation:
        group = self._scheduler.parts.profiles.pod_group(key)
        if not kept_back:
            return GroupEvaluation(
                explain_untried(key, group, "gated", "it has no pending pod", {}), None, SUCCESS
            )
        status = next(iter(kept_back.values()))
        return GroupEvaluation(explain_untried(key, group, "gated", status.message, kept_back), None, status)


def _each(tried: Pass) -> Iterator[Pass]:
    """Yield the results of all groups of a tree."""
    yield tried
    for part in tried.parts:
        yield from _each(part)


def driven(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that only yields to other tasks, and return its result; there are no other tasks here."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
