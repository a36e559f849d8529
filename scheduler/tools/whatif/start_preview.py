"""How many of the pods that are not created yet would start now: each is placed on its node before the next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from scheduler.engine.cycle.explanation import explain, explain_gated
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.framework.preemption import REPORT, PreemptionReport
from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.evaluation import evaluate_each, place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.offline import OfflineScheduler
    from scheduler.tools.whatif.planned_pods import Planned


_ITS_TURN: Final = "the previous pod has to be ready first"


class Started(NamedTuple):
    """The result of one pod.

    Attributes:
        node: the node on which it would start; "" if it would be pending.
        victims: `namespace/name` of the pods that would be evicted for it.
        explanation: why it would be pending.
    """

    pod: PodInfo
    node: str = ""
    victims: tuple[str, ...] = ()
    explanation: Explanation | None = None


@dataclass(slots=True)
class StartOutcome:
    """The results of the pods of one workload.

    Attributes:
        planned: the workload.
        nodes: node -> number of pods that would start there.
        victims: `namespace/name` of a pod that would be evicted -> its node.
        waiting: message -> number of pods that would be pending with it.
        first: the explanation of the first pod that would be pending.
    """

    planned: Planned
    nodes: Counter[str] = field(default_factory=Counter)
    victims: dict[str, str] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    first: Explanation | None = None

    def add(self, started: Started) -> None:
        """Add the result of a pod."""
        if started.node:
            self.nodes[started.node] += 1
            self.victims |= dict.fromkeys(started.victims, started.node)
            return
        assert started.explanation is not None
        self.first = self.first or started.explanation
        self.waiting[started.explanation["message"]] += 1


def start(scheduler: OfflineScheduler, planned: Iterable[Planned]) -> list[StartOutcome]:
    """Decide about all pods by priority, then in the order given; victims of one pod are gone for the next.

    Raises:
        ObjectError: a pod cannot be decoded.
    """
    outcomes = [StartOutcome(each) for each in planned]
    pods = [
        (outcome, decode_pod(msgspec.json.encode(pod)))
        for outcome in outcomes
        for pod in outcome.planned.pods
    ]
    waits: Started | None = None  # the previous pod, if none was placed since
    for outcome, pod in sorted(pods, key=lambda each: -each[1].priority):
        if outcome.waiting and outcome.planned.in_order:
            outcome.waiting[_ITS_TURN] += 1
            continue
        alike = waits is not None and _are_alike(pod, waits.pod)
        started = waits._replace(pod=pod) if waits and alike else _start(scheduler, pod)
        waits = None if started.node else started
        outcome.add(started)
    return outcomes


def _start(scheduler: OfflineScheduler, pod: PodInfo) -> Started:
    if pod.node_name:  # no scheduler is involved
        scheduler.cache.add_pod(pod)
        return Started(pod, pod.node_name)
    gate = scheduler.frameworks[pod.scheduler_name].run_pre_enqueue(pod)
    if not gate.is_success:
        return Started(pod, explanation=explain_gated(pod, gate))
    decision = _decide(scheduler, pod)
    if decision.status.is_success:
        return _place(scheduler, decision)
    gone = _evict(scheduler, decision)
    if gone:
        started = _place(scheduler, _decide(scheduler, pod))
        if started.node:
            return started._replace(victims=tuple(victim.key for victim in gone))
        for victim in gone:
            scheduler.cache.add_pod(victim)
    (judged,) = evaluate_each(scheduler, [pod])
    return Started(pod, explanation=judged.explanation)


def _decide(scheduler: OfflineScheduler, pod: PodInfo) -> Decision:
    snapshot = scheduler.cache.snapshot()
    framework = scheduler.frameworks[pod.scheduler_name]
    nominated = scheduler.nominator.others(pod, snapshot)
    return schedule_pod(framework, pod, snapshot, nominated=nominated, random=Random(0))


def _place(scheduler: OfflineScheduler, decision: Decision) -> Started:
    """Assume a pod on its chosen node, if there is one and Reserve accepts it."""
    status = decision.status
    if status.is_success:
        status = place(scheduler, decision, decision.node_name)
    if status.is_success:
        return Started(decision.pod, decision.node_name)
    explanation = explain(decision, scheduler.cache.snapshot().names)
    return Started(
        decision.pod, explanation={**explanation, "result": "unschedulable", "message": status.message}
    )


def _evict(scheduler: OfflineScheduler, decision: Decision) -> list[PodInfo]:
    """Remove and return the victims of a pod's preemption."""
    if REPORT not in decision.state:
        return []
    report = decision.state.read(REPORT, PreemptionReport)
    victims = [*report.candidates[report.nominated[0]][0]] if report.nominated else []
    for victim in victims:
        scheduler.cache.remove_pod(victim.uid)
    return victims


def _are_alike(one: PodInfo, other: PodInfo) -> bool:
    """Return whether two pods have the same result: they differ only in their names, and have no claims of their own."""
    a, b = one.pod, other.pod
    return (
        (a.spec, a.metadata.namespace, a.metadata.labels, a.metadata.annotations)
        == (b.spec, b.metadata.namespace, b.metadata.labels, b.metadata.annotations)
        and not a.spec.resource_claims
        and not any(volume.ephemeral for volume in a.spec.volumes)
    )
