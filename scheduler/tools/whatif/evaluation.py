"""Evaluates pending pods: each alone, or one after another."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.engine.cycle.explanation import Explainer, explain, explain_gated
from scheduler.engine.cycle.group_explanation import brief
from scheduler.engine.cycle.hypothetical import evaluate, unplaced
from scheduler.engine.cycle.verdict import verdict, with_verdict
from scheduler.framework.sliced_work import NeedsTime, answer_to_end
from scheduler.tools.whatif.group_evaluation import GroupEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.engine.cycle.group_explanation import GroupExplanation
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.status import Status
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.tools.whatif.group_evaluation import GroupEvaluation
    from scheduler.tools.whatif.offline import OfflineScheduler


def is_pending(pod: PodInfo) -> bool:
    """Return whether a scheduler has to place a pod: it has no node, has not ended and is not being deleted."""
    return not (pod.node_name or pod.is_terminal or pod.is_terminating)


def pods_to_evaluate(scheduler: OfflineScheduler, pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return the pending pods of the scheduler's profiles, in the order given."""
    rules = scheduler.needs.pod_rules
    return [
        pod.under(rules) for pod in pods if is_pending(pod) and pod.scheduler_name in scheduler.frameworks
    ]


class PodEvaluation(NamedTuple):
    """The evaluation of one pod.

    Attributes:
        explanation: the explanation.
        status: the status of the attempt, or of PreEnqueue if that rejects the pod.
        diagnosis: the result of every node, if the attempt ended with it.
    """

    pod: PodInfo
    explanation: Explanation
    status: Status
    diagnosis: Diagnosis | None


class Placements:
    """Places pods in the cluster of an offline scheduler, and takes them back."""

    def __init__(self, scheduler: OfflineScheduler) -> None:
        self._scheduler = scheduler
        self._undo: list[Callable[[], object]] = []

    def place(self, decision: Decision, node_name: str) -> Status:
        """Assume a pod on a node, if Reserve accepts it; return the status of Reserve."""
        scheduler = self._scheduler
        framework = scheduler.frameworks[decision.pod.scheduler_name]
        nominated = scheduler.nominator.node_of(decision.pod.uid)
        placed = scheduler.cache.assume(decision.pod, node_name)
        scheduler.nominator.delete(placed.uid)

        def undo() -> None:
            framework.run_unreserve(decision.state, placed, node_name)
            scheduler.cache.remove_pod(placed.uid)
            if nominated:
                scheduler.nominator.add(decision.pod, nominated)

        def reserve() -> Status:
            try:
                return framework.run_reserve(decision.state, placed, node_name)
            except NeedsTime:
                framework.run_unreserve(decision.state, placed, node_name)
                raise

        reserved = answer_to_end(reserve)
        if reserved.is_success:
            self._undo.append(undo)
        else:
            undo()
        return reserved

    def add_pod(self, pod: PodInfo) -> None:
        """Count a pod on the node that it names."""
        self._scheduler.cache.add_pod(pod)
        self._undo.append(partial(self._scheduler.cache.remove_pod, pod.uid))

    def evict(self, pod: PodInfo) -> None:
        """Remove a pod from its node."""
        self._scheduler.cache.remove_pod(pod.uid)
        self._undo.append(partial(self._scheduler.cache.add_pod, pod))

    def add_node(self, node: NodeObject) -> None:
        """Add a node without pods, until the evaluation is undone."""
        self._scheduler.cache.add_node(node)
        self._undo.append(partial(self._scheduler.cache.remove_node, node.name))

    def add_object(self, kind: str, key: str, obj: Mapping[str, Any]) -> None:
        """Add or replace an object that plugins read; `kind` is as in plugins' `needs`."""
        store = self._scheduler.cache.table.watch_kind(kind)
        known = store.get(key)
        store[key] = obj
        self._undo.append(partial(store.pop, key) if known is None else partial(store.update, {key: known}))

    def take_back(self, since: int = 0) -> None:
        """Undo everything after a number of changes; see `count`."""
        while len(self._undo) > since:
            self._undo.pop()()

    @property
    def count(self) -> int:
        """The number of changes that are in effect."""
        return len(self._undo)


class EvaluatedGroups:
    """The groups of the evaluated pods; each group is evaluated once.

    Args:
        placements: places the members of a group that fits, so that they stay on their nodes for later pods; None if
            the cluster must not change.
        seconds: as of `evaluate_each`.
    """

    def __init__(
        self, scheduler: OfflineScheduler, placements: Placements | None = None, *, seconds: float = math.inf
    ) -> None:
        self._scheduler = scheduler
        self._seconds = seconds
        self._judge: GroupEvaluator | None = None
        self._placements = placements
        self._judged: dict[GroupKey, GroupEvaluation] = {}

    @property
    def explanations(self) -> list[GroupExplanation]:
        """The explanations of all evaluated groups."""
        return [judged.explanation for judged in self._judged.values()]

    def of(self, pod: PodInfo) -> GroupEvaluation | None:
        """Return the evaluation of a pod's group; None for a pod on a node or without a group."""
        key = None if pod.node_name else self._scheduler.parts.profiles.group_of(pod)
        if key is None:
            return None
        if key not in self._judged:
            self._judge = self._judge or GroupEvaluator(self._scheduler, self._seconds)
            judged = self._judged[key] = self._judge.judge(key)
            if self._placements and judged.tried is not None and judged.status.is_success:
                for member in judged.tried.kept:
                    assert member.assumed is not None
                    self._placements.place(member.decision, member.assumed.node_name)
        return self._judged[key]


def evaluate_each(
    scheduler: OfflineScheduler, pods: Iterable[PodInfo], *, seconds: float = math.inf
) -> Iterator[PodEvaluation]:
    """Evaluate every pod in the cluster as it is; nothing changes in between.

    A pod on a node is evaluated as if it were pending, and its explanation has `node`.

    Args:
        scheduler: the scheduler of the cluster.
        pods: the pods.
        seconds: time for the details and the remedies of each explanation; 0 if nobody reads them.
    """
    groups = EvaluatedGroups(scheduler, seconds=seconds)
    for pod in pods:
        yield _evaluate(scheduler, pod, groups, seconds)[0]


def evaluate_in_sequence(
    scheduler: OfflineScheduler, pods: Iterable[PodInfo], *, seconds: float = math.inf
) -> Iterator[PodEvaluation]:
    """Evaluate pods by priority, then in the order given; a pod that fits stays on its node for later pods.

    Among equal nodes, the smallest name is chosen. The explanation of a pod that fits has `chosen`. A pod that a Reserve
    plugin rejects at the end uses no capacity. The members of a group are placed together, when its first member is reached.

    Args:
        scheduler: the scheduler of the cluster.
        pods: the pods.
        seconds: as of `evaluate_each`.
    """
    placements = Placements(scheduler)
    groups = EvaluatedGroups(scheduler, placements, seconds=seconds)
    for pod in sorted(pods, key=lambda pod: -pod.priority):
        judged, decision = _evaluate(scheduler, pod, groups, seconds)
        if decision is not None and decision.node_name:
            reserved = _place(placements, decision, judged.explanation)
            judged = judged._replace(status=reserved, diagnosis=None)
        yield judged


def _evaluate(
    scheduler: OfflineScheduler, pod: PodInfo, groups: EvaluatedGroups, seconds: float
) -> tuple[PodEvaluation, Decision | None]:
    framework = scheduler.frameworks[pod.scheduler_name]
    gate = framework.run_pre_enqueue(pod)
    group = groups.of(pod)
    if not gate.is_success:
        explanation = explain_gated(pod, gate)
        if group is not None:
            explanation["group"] = brief(group.explanation)
        return PodEvaluation(pod, explanation, gate, None), None
    snapshot, node_name = scheduler.cache.snapshot(), pod.node_name
    explainer = Explainer(
        framework,
        scheduler.parts.clock,
        seconds=seconds,
        nodes_of_a_kind=scheduler.nodes_of_a_kind,
        budget=scheduler.parts.budget,
    )
    about_node: dict[str, Any] = {}
    if node_name:
        resize = explainer.resize(pod, snapshot, scheduler.nominator.others(pod, snapshot))
        about_node = {"node": node_name, **resize, **explainer.protections(pod, snapshot)}
        pod, snapshot = unplaced(pod, snapshot)
    nominated = scheduler.nominator.others(pod, snapshot)
    if group is not None:
        judged = as_member(pod, group)
        before = snapshot.overlay(add=group.before(pod.uid, snapshot))
        explanation = explainer.complete(judged.explanation, pod, before, nominated)
        return judged._replace(explanation=explanation), None
    decision, explanation = evaluate(framework, pod, snapshot, nominated=nominated, explainer=explainer)
    if node_name:
        explanation = with_verdict({**explanation, **about_node})
    return PodEvaluation(pod, explanation, decision.status, decision.diagnosis), decision


def as_member(pod: PodInfo, group: GroupEvaluation) -> PodEvaluation:
    """Return the evaluation of a member from the attempt of its group; the explanation of one that is placed has `chosen`."""
    member, group_brief = group.member(pod.uid), brief(group.explanation)
    if member is None or group.tried is None:
        # The group could not be tried, or its attempt ended before this member.
        status = group.status if group.tried is None else group.tried.refusal
        result = "unschedulable" if status.is_rejected else "error"
        return PodEvaluation(
            pod, {**explain_gated(pod, status), "result": result, "group": group_brief}, status, None
        )
    explanation = explain(member.decision, member.snapshot.names)
    status = member.status if group.status.is_success else group.tried.status_of(member)
    explanation["result"] = (
        "schedulable" if status.is_success else "unschedulable" if status.is_rejected else "error"
    )
    explanation["message"] = None if status.is_success else status.message
    if member.assumed is not None and status.is_success:
        explanation["chosen"] = member.assumed.node_name
    explanation["group"] = group_brief
    if status is member.status:
        return PodEvaluation(pod, explanation, status, member.decision.diagnosis)
    return PodEvaluation(pod, explanation, replace(status, plugin=group.tried.plugin.name), None)


def _place(placements: Placements, decision: Decision, explanation: Explanation) -> Status:
    """Assume the pod on the first of the best nodes, if Reserve accepts it; return the status of Reserve."""
    chosen = next(iter(explanation.get("best", ())), decision.node_name)
    reserved = placements.place(decision, chosen)
    if reserved.is_success:
        explanation["chosen"] = chosen
    else:
        explanation["result"] = "unschedulable" if reserved.is_rejected else "error"
        explanation["message"] = reserved.message
    explanation["verdict"] = verdict(explanation)
    return reserved
