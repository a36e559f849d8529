"""How many of the pods that are not created yet would start now: each is placed on its node before the next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.configuration.manifests import item_of
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.framework.preemption import REPORT, PreemptionReport
from scheduler.tools.whatif.documents import decoded_pod, identify
from scheduler.tools.whatif.evaluation import EvaluatedGroups, Placements, as_member, evaluate_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.engine.cycle.group_explanation import GroupExplanation
    from scheduler.framework.reasons import Cause
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.resources import PodRules
    from scheduler.tools.whatif.group_evaluation import GroupEvaluation
    from scheduler.tools.whatif.offline import OfflineScheduler


MOST_PODS: Final = 5000
"""The number of pods that are evaluated at once."""
_ITS_TURN: Final = "the previous pod has to be ready first"
_MOST_EXPLAINED: Final = 20
"""The number of workloads whose first pending pod gets remedies, which take up to 64 decisions each."""


class Planned(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An object that creates pods, with these pods.

    Attributes:
        kind: its kind, for example `Deployment`.
        namespace: its namespace.
        name: its name.
        pods: the pods that it would create, as JSON values.
        problem: why there are no pods; "" if there are.
        in_order: whether each pod waits until the previous one is ready.
    """

    kind: str
    namespace: str
    name: str
    pods: list[dict[str, Any]] = []
    problem: str = ""
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods to place that have their creator in common; the attributes are those of `Planned`."""

    kind: str
    namespace: str
    name: str
    pods: Sequence[PodInfo]
    problem: str = ""
    in_order: bool = False


def workload_of(planned: Planned, rules: PodRules) -> Workload:
    """Return a planned workload with its pods decoded; pods without uid get the API server's defaults.

    Raises:
        ObjectError: a pod cannot be decoded.
        ValueError: a pod has no name or no apiVersion.
    """
    pods = [
        decoded_pod(identify(item_of(msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **pod}), "")))
        for pod in planned.pods
    ]
    return Workload(
        planned.kind,
        planned.namespace,
        planned.name,
        [pod.under(rules) for pod in pods],
        planned.problem,
        planned.in_order,
    )


class Started(NamedTuple):
    """The result of one pod.

    Attributes:
        node: the node on which it would start; "" if it would be pending.
        victims: the pods that would be evicted for it.
        pdb_violations: how many of the victims violate a disruption budget.
        message: why it would be pending; "" if it would start.
        causes: the same as JSON values by reason code, see `explanation`.
    """

    pod: PodInfo
    node: str = ""
    victims: Sequence[PodInfo] = ()
    pdb_violations: int = 0
    message: str = ""
    causes: Sequence[dict[str, Any]] = ()


@dataclass(slots=True)
class StartOutcome:
    """The results of the pods of one workload.

    Attributes:
        workload: the workload.
        started: the results, in the order of the decisions.
        first: the explanation of the first pod that would be pending, with its verdict and remedies.
    """

    workload: Workload
    started: list[Started] = field(default_factory=list)
    first: Explanation | None = None

    @property
    def nodes(self) -> Counter[str]:
        """Node -> number of pods that would start there."""
        return Counter(each.node for each in self.started if each.node)

    @property
    def victims(self) -> dict[str, str]:
        """`namespace/name` of a pod that would be evicted -> its node."""
        return {victim.key: each.node for each in self.started for victim in each.victims}

    @property
    def waiting(self) -> Counter[str]:
        """Message -> number of pods that would be pending with it."""
        return Counter(each.message for each in self.started if not each.node)


class StartPreview:
    """Decides about pods that are not created yet, in the cluster of an offline scheduler.

    Args:
        scheduler: the scheduler; the pods are added to its queue, so that groups have their members.
        workloads: the pods.
        placements: places the pods; they stay placed until the caller takes them back.
    """

    def __init__(
        self,
        scheduler: OfflineScheduler,
        workloads: Iterable[Workload],
        placements: Placements | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._workloads = list(workloads)
        self.placements = placements or Placements(scheduler)
        self._groups = EvaluatedGroups(scheduler)
        for pod in self._pods():
            if not pod.node_name and scheduler.queue.get(pod.uid) is None:
                scheduler.queue.add(pod)

    def _pods(self) -> list[PodInfo]:
        return [pod for workload in self._workloads for pod in workload.pods]

    @property
    def groups(self) -> list[GroupExplanation]:
        """The explanations of the groups in the last call of `start`."""
        return self._groups.explanations

    def start(self, *, explains: bool = True) -> list[StartOutcome]:
        """Decide about all pods by priority, then in the order given; victims of one pod are gone for the next.

        The members of a group are placed together, when its first member is reached. A pod with a node starts there.

        Args:
            explains: whether pods that would be pending are explained with remedies.
        """
        self._groups = EvaluatedGroups(self._scheduler, self.placements)
        outcomes = [StartOutcome(each) for each in self._workloads]
        pods = [(outcome, pod) for outcome in outcomes for pod in outcome.workload.pods]
        waits: Started | None = None  # the previous pod, if none was placed since
        left = _MOST_EXPLAINED if explains else 0
        for outcome, pod in sorted(pods, key=lambda each: -each[1].priority):
            if outcome.workload.in_order and not all(each.node for each in outcome.started):
                outcome.started.append(Started(pod, message=_ITS_TURN))
                continue
            group = self._groups.of(pod)
            if group is not None:
                started = _as_started(pod, group)
            elif waits is not None and _are_alike(pod, waits.pod):
                started = waits._replace(pod=pod)
            else:
                started = self._start(pod)
            waits = None if started.node or group is not None else started
            if not started.node and left and outcome.first is None:
                outcome.first = self._explained(pod)
                left -= 1
            outcome.started.append(started)
        return outcomes

    def _start(self, pod: PodInfo) -> Started:
        scheduler = self._scheduler
        if pod.node_name:  # no scheduler is involved
            self.placements.add_pod(pod)
            return Started(pod, pod.node_name)
        gate = scheduler.frameworks[pod.scheduler_name].run_pre_enqueue(pod)
        if not gate.is_success:
            return _pending(pod, gate.message, gate.causes)
        decision = self._decide(pod)
        if decision.status.is_success:
            return self._place(decision)
        before = self.placements.count
        victims, violations = self._evict(decision)
        if victims:
            started = self._place(self._decide(pod))
            if started.node:
                return started._replace(victims=victims, pdb_violations=violations)
            self.placements.take_back(before)
        return _pending(pod, decision.status.message, decision.causes)

    def _explained(self, pod: PodInfo) -> Explanation:
        (judged,) = evaluate_each(self._scheduler, [pod])
        return judged.explanation

    def _decide(self, pod: PodInfo) -> Decision:
        scheduler = self._scheduler
        snapshot = scheduler.cache.snapshot()
        framework = scheduler.frameworks[pod.scheduler_name]
        nominated = scheduler.nominator.others(pod, snapshot)
        return schedule_pod(framework, pod, snapshot, nominated=nominated, random=Random(0))

    def _place(self, decision: Decision) -> Started:
        """Assume a pod on its chosen node, if there is one and Reserve accepts it."""
        status = decision.status
        if status.is_success:
            status = self.placements.place(decision, decision.node_name)
        if status.is_success:
            return Started(decision.pod, decision.node_name)
        return _pending(decision.pod, status.message, status.causes)

    def _evict(self, decision: Decision) -> tuple[Sequence[PodInfo], int]:
        """Remove and return the victims of a pod's preemption, and how many of them violate a disruption budget."""
        if REPORT not in decision.state:
            return (), 0
        report = decision.state.read(REPORT, PreemptionReport)
        if not report.nominated:
            return (), 0
        victims, violations = report.candidates[report.nominated[0]]
        for victim in victims:
            self.placements.evict(victim)
        return tuple(victims), violations


def _pending(pod: PodInfo, message: str, causes: Iterable[Cause]) -> Started:
    return Started(pod, message=message, causes=[cause.as_json() for cause in causes])


def _as_started(pod: PodInfo, group: GroupEvaluation) -> Started:
    """Return the result of a member of an evaluated group."""
    explanation = as_member(pod, group).explanation
    node = explanation.get("chosen")
    if node:
        return Started(pod, node)
    return Started(pod, message=explanation["message"] or "", causes=explanation["causes"])


def _are_alike(one: PodInfo, other: PodInfo) -> bool:
    """Return whether two pods have the same result: they differ only in their names, and have no claims of their own."""
    a, b = one.pod, other.pod
    return (
        (a.spec, a.metadata.namespace, a.metadata.labels, a.metadata.annotations)
        == (b.spec, b.metadata.namespace, b.metadata.labels, b.metadata.annotations)
        and not a.spec.resource_claims
        and not any(volume.ephemeral for volume in a.spec.volumes)
    )
