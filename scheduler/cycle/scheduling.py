"""The scheduling cycle: from a pod and a snapshot to a decision. Only extenders are waited for.

Source:
    kube-scheduler v1.36, schedule_one.go, schedulingAlgorithm and what it calls.
"""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from scheduler.cycle.decision import Decision
from scheduler.extenders.wire import ExtenderError
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import NO_NODES, Diagnosis
from scheduler.framework.status import Code, Status
from scheduler.runtime.calls import PluginError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from random import Random

    from scheduler.cycle.sampling import NodeSampling
    from scheduler.extenders.chain import Extenders
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework
    from scheduler.runtime.scoring import Scores
    from scheduler.snapshot import Rows, Snapshot
    from scheduler.state.nominator import Nominator

T = TypeVar("T")

_NONE: Mapping[int, str] = MappingProxyType({})


def schedule_pod(
    framework: Framework,
    pod: PodInfo,
    snapshot: Snapshot,
    *,
    nominated: Mapping[int, Sequence[PodInfo]],
    random: Random,
    sampling: NodeSampling | None = None,
    exhaustive: bool = False,
    avoided: Mapping[int, str] = _NONE,
) -> Decision:
    """Decide where a pod goes, without extenders; see `decide`."""
    return run_now(
        decide(
            framework,
            pod,
            snapshot,
            nominated=nominated,
            random=random,
            sampling=sampling,
            exhaustive=exhaustive,
            avoided=avoided,
        )
    )


def run_now(decision: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine comes to that has nothing to wait for.

    Raises:
        RuntimeError: it waits.
    """
    try:
        decision.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    decision.close()
    raise RuntimeError("a cycle without extenders waits for something")


async def decide(
    framework: Framework,
    pod: PodInfo,
    snapshot: Snapshot,
    *,
    nominated: Mapping[int, Sequence[PodInfo]],
    random: Random,
    sampling: NodeSampling | None = None,
    exhaustive: bool = False,
    extenders: Extenders | None = None,
    avoided: Mapping[int, str] = _NONE,
) -> Decision:
    """Decide where a pod goes.

    Args:
        framework: the pod's profile.
        pod: a pending pod.
        snapshot: the cluster.
        nominated: row -> other pods of equal or higher priority that are expected there soon.
        random: breaks ties between nodes.
        sampling: where the search for feasible nodes ends; None looks at all of them.
        exhaustive: look at all nodes and rank the feasible ones also where the choice needs neither: of a pod that
            is nominated to a node, or that a single node can run.
        extenders: asked as well; the snapshot stays as it is meanwhile. Without them nothing is waited for.
        avoided: row -> why, of nodes that are taken only if no other is feasible.
    """
    state = CycleState(nominated, exhaustive=exhaustive)
    diagnosis = Diagnosis.blank(snapshot.n_nodes)
    if snapshot.n_nodes == 0:
        status = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (NO_NODES,))
        return Decision(pod, state, diagnosis, status=status, nominated_node_name="")
    try:
        feasible = await _find_feasible(
            framework, state, pod, snapshot, diagnosis, nominated, sampling, exhaustive, extenders
        )
        if not feasible.size:
            return await _nothing_fits(framework, state, pod, snapshot, diagnosis)
        feasible = diagnosis.avoid(feasible, avoided)
        if len(feasible) == 1 and not exhaustive:
            return Decision(pod, state, diagnosis, snapshot.name_of(int(feasible[0])))
        scores = framework.scoring.run(state, pod, snapshot, feasible)
        if extenders:
            scores = scores.with_others(await extenders.scores(pod, snapshot, feasible))
    except PluginError as error:
        return Decision(pod, state, diagnosis, status=error.status, nominated_node_name="")
    return Decision(pod, state, diagnosis, snapshot.name_of(pick(scores, random)), scores)


def pick(scores: Scores, random: Random) -> int:
    """Return the row with the highest total, any one of them if several have it."""
    best = scores.rows[scores.total == scores.total.max()]
    return int(best[random.randrange(len(best))] if len(best) > 1 else best[0])


def nominated_others(
    nominator: Nominator, pod: PodInfo, snapshot: Snapshot
) -> Mapping[int, Sequence[PodInfo]]:
    """Return row -> the other pods nominated to that node whose priority is at least the pod's."""
    found: dict[int, Sequence[PodInfo]] = {}
    for name in nominator.nominated_nodes:
        row = snapshot.row_of(name)
        others = [
            other
            for other in nominator.nominated_pods_for_node(name)
            if other.uid != pod.uid and other.priority >= pod.priority
        ]
        if row is not None and others:
            found[row] = others
    return found


async def _find_feasible(
    framework: Framework,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    diagnosis: Diagnosis,
    nominated: Mapping[int, Sequence[PodInfo]],
    sampling: NodeSampling | None,
    exhaustive: bool,
    extenders: Extenders | None,
) -> Rows:
    nowhere: Rows = np.empty(0, dtype=np.intp)
    status = framework.filtering.run_pre_filter(state, pod, snapshot, diagnosis)
    if not status.is_success:
        if not status.is_rejected:
            diagnosis.leave_out(snapshot.all_rows)
            raise PluginError(status)
        return nowhere
    own = snapshot.row_of(pod.pod.status.nominated_node_name) if pod.pod.status.nominated_node_name else None
    if own is not None and not exhaustive:
        # Room was made for it there, so that node is most likely the only one: it is judged alone first.
        alone = np.array([own], dtype=np.intp)
        trial = Diagnosis.blank(snapshot.n_nodes)
        # A failure there is not the last word: the node is judged again among all others.
        with suppress(PluginError):
            feasible = framework.filtering.find_feasible(
                state, pod, snapshot, trial, rows=alone, nominated=nominated
            )
            feasible = await _left_by_extenders(extenders, pod, snapshot, feasible, trial)
            if feasible.size:
                return feasible
    rows = diagnosis.feasible
    try:
        feasible = framework.filtering.find_feasible(
            state, pod, snapshot, diagnosis, rows=rows, nominated=nominated
        )
    except PluginError:
        if diagnosis.first_error() is None:
            # A plugin failed as a whole: nobody knows of the nodes still standing.
            diagnosis.leave_out(diagnosis.feasible)
        raise
    if sampling is not None and not exhaustive:
        feasible = sampling.cut(framework, rows, feasible, diagnosis, extenders)
    return await _left_by_extenders(extenders, pod, snapshot, feasible, diagnosis)


async def _left_by_extenders(
    extenders: Extenders | None, pod: PodInfo, snapshot: Snapshot, feasible: Rows, diagnosis: Diagnosis
) -> Rows:
    if not extenders:
        return feasible
    try:
        return await extenders.filter(pod, snapshot, feasible, diagnosis)
    except ExtenderError as error:
        diagnosis.leave_out(diagnosis.feasible)
        raise PluginError(Status.failed(str(error), error)) from error


async def _nothing_fits(
    framework: Framework, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
) -> Decision:
    nominated_node_name: str | None = ""
    if framework.filtering.has_post_filter:
        result = await framework.filtering.run_post_filter(state, pod, snapshot, diagnosis)
        diagnosis.post_filter_message = result.status.message
        nominated_node_name = result.nominated_node_name
    status = Status(Code.UNSCHEDULABLE, (diagnosis.message(),))
    return Decision(pod, state, diagnosis, status=status, nominated_node_name=nominated_node_name)
