"""Evictions in a copy of the cluster: where the scheduler places the pods again, and which of them are a gain.

A pod is removed from its node, and its profile decides about it as about a pending pod, on the cluster without it. The
search for a plan is greedy: it keeps the moves that are a gain, and undoes all others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from scheduler.engine.cycle.hypothetical import unplaced
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.errors import SchedulerError
from scheduler.objects.pod import PodInfo
from scheduler.tools.whatif.evaluation import Placements
from scheduler.tools.whatif.rebalancing.evictable_pods import EvictablePods, Wanted
from scheduler.tools.whatif.rebalancing.objectives import OBJECTIVES
from scheduler.tools.whatif.simulation.object_versions import controller_of, terminating

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.runtime.scoring import Scores
    from scheduler.framework.preemption import RecentEvictions
    from scheduler.snapshot import Snapshot
    from scheduler.tools.whatif.cluster_file import ClusterFile
    from scheduler.tools.whatif.offline import OfflineScheduler
    from scheduler.tools.whatif.rebalancing.objectives import Level, Objective

_MOST_TOGETHER: Final = 10
"""The number of pods of one node that are moved before there is a gain, unless the objective needs all."""
_RARELY: Final = 10
"""A pod returns rarely to its node if this many nodes are equally good, the node itself included."""
PENDING: Final = "would be pending"
_NOW: Final = "2026-01-01T00:00:00Z"
"""Any time of deletion."""


class VoidPlanError(SchedulerError):
    """The cluster is not the one that a plan was made for."""


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One eviction of a plan.

    Attributes:
        pod: `namespace/name`.
        uid: the uid of the pod.
        from_node: its node.
        to_node: the node of its replacement.
        equal_nodes: the number of nodes that are as good for the scheduler; the one with the smallest name is expected.
        score: the total score of the new node; None if no other node is feasible.
        old_score: the total score of its present node; None if that node is not feasible.
        value: the number of the objective after the step.
        why: the gain that the step is a part of.
    """

    pod: str
    uid: str
    from_node: str
    to_node: str
    equal_nodes: int
    score: int | None
    old_score: int | None
    value: float
    why: str


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Evictions, in their order.

    Attributes:
        objective: name of the objective.
        before: name of each objective -> its number now.
        after: the same after all steps.
        steps: the evictions.
        tries: the number of decisions that the search took.
        is_complete: whether the search ended before its limits of evictions and tries.
        not_evicted: why pods that were considered are not evicted -> their number.
    """

    objective: str
    before: dict[str, float]
    after: dict[str, float]
    steps: list[Step]
    tries: int
    is_complete: bool
    not_evicted: dict[str, int]


class Move(NamedTuple):
    """A pod that was evicted and placed again.

    Attributes:
        pod: the pod on its old node.
        counted: the pod as the cache had it.
        decision: the decision about its replacement.
        node_name: the new node; "" if the replacement is pending.
        equal_nodes: as of `Step`.
        score: as of `Step`.
        old_score: as of `Step`.
    """

    pod: PodInfo
    counted: PodInfo
    decision: Decision
    node_name: str
    equal_nodes: int = 1
    score: int | None = None
    old_score: int | None = None


class Refusal(NamedTuple):
    """Why a pod was not moved.

    Attributes:
        text: the rest of a sentence about the pod.
        pending: whether no node fits its replacement.
    """

    text: str
    pending: bool = False


class Rebalancer:
    """A copy of the cluster in which pods are evicted.

    Args:
        scheduler: the scheduler, filled with the cluster; its state is changed.
        cluster: the same cluster, with whole pods.
        objective: name of the objective.
        wanted: the pods to consider.

    Attributes:
        pods: `namespace/name` -> pod on a node.
        uids: the uids of all pods, also of pending ones.
        tries: the number of decisions so far.
        objective: what to improve.
        evictable: says which pods may be evicted.
    """

    def __init__(
        self, scheduler: OfflineScheduler, cluster: ClusterFile, objective: str, wanted: Wanted
    ) -> None:
        rules = scheduler.needs.pod_rules
        cluster = replace(cluster, pods=[pod.under(rules) for pod in cluster.pods])
        self.pods = {pod.key: pod for pod in cluster.pods if pod.node_name and not pod.is_terminal}
        self.uids = frozenset(pod.uid for pod in cluster.pods)
        self.tries = 0
        self.evictable = EvictablePods(scheduler, cluster, wanted)
        self._scheduler, self._name = scheduler, objective
        self._recent, self._at = scheduler.cycles.preemptions.recent, scheduler.parts.clock.monotonic()
        self._objectives = {name: kind(cluster, scheduler.cache) for name, kind in OBJECTIVES.items()}
        self.objective = self._objectives[objective]

    def count(self, evictions: RecentEvictions) -> None:
        """Count evictions that were carried out for the limits of evictions."""
        self._recent.resume(evictions.kept())

    def note(self, pod: PodInfo) -> None:
        """Count an eviction for the limits of evictions."""
        self._recent.note([pod], self._at)

    def numbers(self) -> dict[str, float]:
        """Return the number of each objective now, by its name."""
        return {name: objective.value() for name, objective in self._objectives.items()}

    def move(self, pod: PodInfo) -> Move | Refusal:
        """Evict a pod, and place its replacement as the scheduler would; nothing changes if there is no other node for it.

        Most controllers replace a pod when it begins to terminate, while it still takes its capacity; a StatefulSet when
        it has ended.
        """
        scheduler, cache = self._scheduler, self._scheduler.cache
        framework, decision = scheduler.frameworks[pod.scheduler_name], None
        replacement = _replacement(pod, cache.snapshot())
        gate = framework.run_pre_enqueue(replacement)
        if not gate.is_success:
            return Refusal(f"would not be attempted again: {gate.message}", pending=True)
        counted, owner = cache.pod(pod.uid), controller_of(pod)
        assert counted is not None, f"pod {pod.key} is on a node"
        if owner is not None and owner.kind != "StatefulSet":
            cache.add_pod(terminating(counted, _NOW, counted.resource_version))
            decision = self._decide(framework, replacement)
        if decision is None or not decision.node_name:
            cache.remove_pod(pod.uid)
            decision = self._decide(framework, replacement)
        refusal, move = Refusal(f"{PENDING}: {decision.status.message}", pending=True), None
        if decision.node_name:
            move = _move(pod, counted, decision, cache.snapshot())
            refusal = Refusal("would be placed on its node again")
        if move is not None and move.node_name != pod.node_name:
            reserved = Placements(scheduler).place(decision, move.node_name)
            if reserved.is_success:
                cache.remove_pod(pod.uid)
                self._follow(pod, pod.node_name, move.node_name)
                self.note(pod)
                return move
            refusal = Refusal(f"{PENDING}: {reserved.message}", pending=True)
        cache.add_pod(counted)
        return refusal

    def _decide(self, framework: Framework, pod: PodInfo) -> Decision:
        self.tries += 1
        snapshot = self._scheduler.cache.snapshot()
        nominated = self._scheduler.nominator.others(pod, snapshot)
        return schedule_pod(
            framework, pod, snapshot, nominated=nominated, random=Random(0), may_preempt=False
        )

    def undo(self, move: Move) -> None:
        """Put a pod back on its old node; the last move is undone first."""
        scheduler, pod = self._scheduler, move.pod
        framework = scheduler.frameworks[pod.scheduler_name]
        placed = scheduler.cache.forget(move.decision.pod.uid)
        assert placed is not None, f"pod {pod.key} is assumed"
        framework.run_unreserve(move.decision.state, placed, move.node_name)
        scheduler.cache.add_pod(move.counted)
        self._follow(pod, move.node_name, pod.node_name)
        self._recent.take_back()

    def remove(self, pod: PodInfo) -> None:
        """Evict a pod whose replacement stays pending."""
        self.note(pod)
        self._scheduler.cache.remove_pod(pod.uid)
        self._follow(pod, pod.node_name, "")

    def value_on(self, pod: PodInfo, node_name: str) -> float:
        """Return the number of the objective with a pod on another node, whether it fits there or not; infinite without that node."""
        cache = self._scheduler.cache
        if cache.table.row_of(node_name) is None:
            return float("inf")
        counted = cache.remove_pod(pod.uid)
        assert counted is not None, f"pod {pod.key} is on a node"
        cache.assume(counted, node_name)
        self._follow(pod, pod.node_name, node_name)
        try:
            return self.objective.value()
        finally:
            cache.forget(pod.uid)
            cache.add_pod(counted)
            self._follow(pod, node_name, pod.node_name)

    def _follow(self, pod: PodInfo, old: str, new: str) -> None:
        for objective in self._objectives.values():
            objective.moved(pod, old, new)

    def plan(self, *, most_evictions: int, most_tries: int) -> Plan:
        """Search for evictions that improve the objective.

        Args:
            most_evictions: the number of steps at most.
            most_tries: the number of decisions at most.
        """
        search = _Search(self, most_evictions, most_tries)
        before = self.numbers()
        while search.improve():
            pass
        return Plan(
            objective=self._name,
            before=before,
            after=self.numbers(),
            steps=search.steps,
            tries=self.tries,
            is_complete=not search.is_over,
            not_evicted=dict(sorted(search.refused().items(), key=lambda each: (-each[1], each[0]))),
        )

    def confirm(self, steps: Sequence[Step]) -> str:
        """Check the rest of a plan on a newer state of the cluster; return the node that the first pod is placed on now.

        Raises:
            VoidPlanError: a pod is not where the plan has it, may not be evicted or would not be placed elsewhere, or
                the rest of the plan is no gain any more.
        """
        before, moves = self.objective.level(), list[Move]()
        for step in steps:
            pod = self.pods.get(step.pod)
            if pod is None or pod.uid != step.uid:
                raise VoidPlanError(f"pod {step.pod} does not exist any more")
            if pod.node_name != step.from_node:
                raise VoidPlanError(f"pod {step.pod} is on {pod.node_name}, expected on {step.from_node}")
            if why_not := self.evictable.why_not(pod):
                raise VoidPlanError(f"pod {step.pod} {why_not}")
            moved = self.move(pod)
            if isinstance(moved, Refusal):
                raise VoidPlanError(f"pod {step.pod} {moved.text}")
            moves.append(moved)
        after = self.objective.level()
        for move in reversed(moves):
            self.undo(move)
        if not self.objective.is_gain(before, after):
            change = gain(self.objective, before.value, after.value)
            raise VoidPlanError(f"the rest of the plan gains nothing any more ({change})")
        return moves[0].node_name


class _Search:
    """The greedy search of `Rebalancer.plan`; each pod is moved at most once.

    Attributes:
        steps: the evictions that are a gain.
    """

    def __init__(self, rebalancer: Rebalancer, most_evictions: int, most_tries: int) -> None:
        self.steps: list[Step] = []
        self._rebalancer, self._objective = rebalancer, rebalancer.objective
        self._most_evictions, self._most_tries = most_evictions, most_tries
        self._moved: set[str] = set()  # uids
        self._refused: dict[str, str] = {}  # pod uid -> why it is not evicted

    @property
    def is_over(self) -> bool:
        """Whether the search reached one of its limits."""
        return len(self.steps) >= self._most_evictions or self._rebalancer.tries >= self._most_tries

    def refused(self) -> Counter[str]:
        """Return why pods are not evicted, and their number."""
        return Counter(why for uid, why in self._refused.items() if uid not in self._moved)

    def improve(self) -> bool:
        """Try all candidates once; return whether another pass may find more."""
        found = False
        for pods in self._objective.candidates():
            if self.is_over:
                return False
            found = self._try(pods) or found
        return found

    def _try(self, pods: Sequence[PodInfo]) -> bool:
        """Move pods one after another, and keep the moves that are a gain; return whether there is one."""
        objective, left = self._objective, self._most_evictions - len(self.steps)
        if objective.needs_all and (len(pods) > left or any(map(self._why_not, pods))):
            return False
        level, has_gained = objective.level(), False
        moves: list[tuple[Move, float]] = []  # without a gain yet, with the numbers after them
        for pod in pods:
            if len(moves) >= left or self._rebalancer.tries >= self._most_tries:
                break
            if self._why_not(pod):
                continue
            moved = self._rebalancer.move(pod)
            if isinstance(moved, Refusal):
                self._refused[pod.uid] = PENDING if moved.pending else moved.text
                if objective.needs_all:
                    break
                continue
            reached = objective.level()
            moves.append((moved, reached.value))
            if objective.is_gain(level, reached):
                self._keep(moves, level, reached)
                level, left, has_gained, moves = reached, left - len(moves), True, []
            elif not objective.needs_all and len(moves) >= _MOST_TOGETHER:
                break
        for move, _ in reversed(moves):
            self._rebalancer.undo(move)
        return has_gained

    def _why_not(self, pod: PodInfo) -> str:
        if pod.uid in self._moved:
            return "is moved already"
        why_not = self._rebalancer.evictable.why_not(pod)
        if why_not:
            self._refused[pod.uid] = why_not
        return why_not

    def _keep(self, moves: Sequence[tuple[Move, float]], before: Level, after: Level) -> None:
        why = gain(self._objective, before.value, after.value)
        if after.fitting > before.fitting:
            why += f", pending pods that fit {before.fitting} -> {after.fitting}"
        if len(moves) > 1:
            why += f" with {len(moves)} evictions"
        for move, value in moves:
            self._moved.add(move.pod.uid)
            self.steps.append(
                Step(
                    pod=move.pod.key,
                    uid=move.pod.uid,
                    from_node=move.pod.node_name,
                    to_node=move.node_name,
                    equal_nodes=move.equal_nodes,
                    score=move.score,
                    old_score=move.old_score,
                    value=value,
                    why=why,
                )
            )


def gain(objective: Objective, before: float, after: float) -> str:
    """Return a change of an objective's number as text."""
    return f"{objective.title} {objective.shown(before)} -> {objective.shown(after)}"


def _replacement(pod: PodInfo, snapshot: Snapshot) -> PodInfo:
    """Return the pending pod that replaces a pod on a node; its volumes stay bound."""
    pending, _ = unplaced(pod, snapshot)
    metadata = msgspec.structs.replace(pending.pod.metadata, uid=f"{pod.uid} replaced")
    return PodInfo(
        msgspec.structs.replace(pending.pod, metadata=metadata),
        pod.raw,
        node_name="",
        resources=pod.resources,
    )


def _move(pod: PodInfo, counted: PodInfo, decision: Decision, snapshot: Snapshot) -> Move:
    """Return the move that a decision for a node means: to the best node with the smallest name.

    It is no move if the old node is one of few that are equally good.
    """
    scores = decision.scores
    if scores is None:
        return Move(pod, counted, decision, decision.node_name)
    old = snapshot.row_of(pod.node_name)
    best = {*map(int, scores.best)}
    if old is not None and old in best and len(best) < _RARELY:
        row = old
    else:
        row = min(best - {old} or best, key=snapshot.name_of)
    return Move(
        pod,
        counted,
        decision,
        snapshot.name_of(row),
        len(scores.best),
        _total(scores, row),
        None if old is None else _total(scores, old),
    )


def _total(scores: Scores, row: int) -> int | None:
    """Return the total score of a row; None if it is not feasible."""
    place = int(np.searchsorted(scores.rows, row))
    is_feasible = place < len(scores.rows) and scores.rows[place] == row
    return int(scores.total[place]) if is_feasible else None
