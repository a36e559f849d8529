"""Which pods of a cluster are judged, and what is said of each: every one alone, or one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scheduler.cycle.explanation import explain_gated
from scheduler.cycle.hypothetical import judge, unplaced
from scheduler.cycle.refusal_details import RefusalDetails
from scheduler.cycle.scheduling import nominated_others

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.cycle.attempt import Decision
    from scheduler.cycle.explanation import Explanation
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.whatif.offline import OfflineScheduler


def is_pending(pod: PodInfo) -> bool:
    """Say whether a scheduler has to place a pod: it is on no node, has not ended and is not being deleted."""
    return not (pod.node_name or pod.is_terminal or pod.is_terminating)


def pods_to_judge(scheduler: OfflineScheduler, pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return the pending pods that one of the scheduler's profiles is responsible for, in the order given."""
    return [pod for pod in pods if is_pending(pod) and pod.scheduler_name in scheduler.frameworks]


class Judged(NamedTuple):
    """What is said of one pod, and what it came from.

    Attributes:
        explanation: in words.
        status: how its attempt ended, or PreEnqueue's refusal to try it at all.
        diagnosis: the verdict on every node, if it was that which the attempt ended with.
    """

    pod: PodInfo
    explanation: Explanation
    status: Status
    diagnosis: Diagnosis | None


def judge_each(scheduler: OfflineScheduler, pods: Iterable[PodInfo]) -> Iterator[Judged]:
    """Judge every pod against the cluster as it is; nothing changes in between.

    One that is on a node is judged as if it were not, and what is said of it has `node`, where it is.
    """
    for pod in pods:
        yield _judge(scheduler, pod)[0]


def judge_sequence(scheduler: OfflineScheduler, pods: Iterable[PodInfo]) -> Iterator[Judged]:
    """Judge pods by priority, then in the order given; each one that fits is on its node for those after it.

    Ties go to the smallest node name. What is said of a pod that fits has `chosen`. One that a Reserve plugin refuses at
    the end takes no room.
    """
    for pod in sorted(pods, key=lambda pod: -pod.priority):
        judged, decision = _judge(scheduler, pod)
        if decision is not None and decision.scores is not None:
            reserved = _place(scheduler, decision, judged.explanation)
            judged = judged._replace(status=reserved, diagnosis=None)
        yield judged


def _judge(scheduler: OfflineScheduler, pod: PodInfo) -> tuple[Judged, Decision | None]:
    framework = scheduler.frameworks[pod.scheduler_name]
    gate = framework.run_pre_enqueue(pod)
    if not gate.is_success:
        return Judged(pod, explain_gated(pod, gate), gate, None), None
    snapshot, node_name = scheduler.cache.snapshot(), pod.node_name
    if node_name:
        pod, snapshot = unplaced(pod, snapshot)
    details = RefusalDetails(
        framework.plugins.all(),
        scheduler.parts.clock,
        nodes_of_a_kind=scheduler.nodes_of_a_kind,
        budget=scheduler.parts.budget,
    )
    nominated = nominated_others(scheduler.nominator, pod, snapshot)
    decision, explanation = judge(framework, pod, snapshot, nominated=nominated, details=details)
    if node_name:
        explanation["node"] = node_name
    return Judged(pod, explanation, decision.status, decision.diagnosis), decision


def _place(scheduler: OfflineScheduler, decision: Decision, explanation: Explanation) -> Status:
    """Assume the pod on the first of the best nodes, if Reserve agrees; return what Reserve says."""
    chosen = explanation["best"][0]
    reserved = place(scheduler, decision, chosen)
    if reserved.is_success:
        explanation["chosen"] = chosen
        return reserved
    explanation["result"] = "unschedulable" if reserved.is_rejected else "error"
    explanation["message"] = reserved.message
    return reserved


def place(scheduler: OfflineScheduler, decision: Decision, node_name: str) -> Status:
    """Have a pod on a node from now on, if Reserve agrees; return what Reserve says."""
    framework = scheduler.frameworks[decision.pod.scheduler_name]
    placed = scheduler.cache.assume(decision.pod, node_name)
    scheduler.nominator.delete(placed.uid)
    reserved = framework.run_reserve(decision.state, placed, node_name)
    if not reserved.is_success:
        framework.run_unreserve(decision.state, placed, node_name)
        scheduler.cache.forget(placed.uid)
    return reserved
