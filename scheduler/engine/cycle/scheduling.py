"""The scheduling cycle: from a pod and a snapshot to a decision.

Nothing changes meanwhile. The cycle waits only for extenders, and for its next time slice during a long search for
victims.

Source:
    kube-scheduler v1.36, schedule_one.go, schedulingAlgorithm and what it calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from scheduler.engine.cycle.attempt import Decision
from scheduler.engine.runtime.budget import over_budget
from scheduler.engine.runtime.cached_scores import preferred_of
from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.framework.diagnosis import NO_NODES, Diagnosis
from scheduler.framework.sliced_work import answer_to_end
from scheduler.framework.status import Code, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from scheduler.engine.cycle.sampling import NodeSampling
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.runtime.scoring import Scores
    from scheduler.extensions.extenders import Extenders
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Rows, Snapshot

    ChooseNode = Callable[[PodInfo, Rows, Snapshot], int | None]
    """Returns one of the feasible rows for a pod, or None."""

T = TypeVar("T")

_NONE: Mapping[int, str] = MappingProxyType({})
_NOWHERE: Rows = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class DecisionOptions:
    """The rules for a decision about a member of a group; the defaults are those of a pod by itself.

    Attributes:
        group: the group of the attempt.
        root: the root of its tree, or the group itself; the nominations of its pods do not count.
        within: the allowed nodes; only PreFilter evaluates the other nodes too. None means all nodes.
        choose: selects one of the feasible nodes, or None, instead of Score.
        may_preempt: whether PostFilter runs if no node fits. In a daemon PostFilter evicts pods.
        asks_extenders: whether extenders take part.
        with_quotas: whether quotas limit the pod.
    """

    group: PodGroup | None = None
    root: PodGroup | None = None
    within: Rows | None = None
    choose: ChooseNode | None = None
    may_preempt: bool = True
    asks_extenders: bool = True
    with_quotas: bool = True


BY_ITSELF: Final = DecisionOptions()


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
    may_preempt: bool = True,
    yields_to_loop: bool = False,
) -> Decision:
    """Decide about a pod, without extenders.

    Args:
        framework: the pod's profile.
        pod: a pending pod.
        snapshot: the cluster.
        nominated: row -> other pods of equal or higher priority that are nominated to the node.
        random: breaks ties between nodes.
        sampling: limits the search for feasible nodes; None searches all nodes.
        exhaustive: evaluate and score all nodes even if the decision does not need it, for a pod that is nominated to
            a node or that fits on one node only. The decision stays the same.
        avoided: row -> reason, of nodes that are chosen only if no other node is feasible.
        may_preempt: whether PostFilter runs if no node fits. In a daemon PostFilter evicts pods.
        yields_to_loop: whether to raise NeedsTime instead of doing the plugins' work at once; see `answer_in_slices`.

    Raises:
        NeedsTime: a plugin needs more time than one turn of the event loop, and `yields_to_loop` is set.
    """

    def ask() -> Decision:
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
                options=DecisionOptions(may_preempt=may_preempt),
            )
        )

    return ask() if yields_to_loop else answer_to_end(ask)


async def decide(
    framework: Framework,
    pod: PodInfo,
    snapshot: Snapshot,
    *,
    nominated: Mapping[int, Sequence[PodInfo]],
    random: Random,
    extenders: Extenders | None = None,
    sampling: NodeSampling | None = None,
    exhaustive: bool = False,
    avoided: Mapping[int, str] = _NONE,
    attempt: int = 0,
    options: DecisionOptions = BY_ITSELF,
    preferred: Bools | None = None,
) -> Decision:
    """Decide as `schedule_pod`, with extenders.

    `attempt` is the number of the attempt at the pod. `preferred` is bool (n_nodes,): the other nodes are chosen only if none
    of these is feasible, but scored too.

    This waits for extenders, and yields to the event loop during the search for victims; the snapshot must not change
    meanwhile.

    Raises:
        NeedsTime: a plugin needs more time than one turn of the event loop.
    """
    state = AttemptState(nominated, exhaustive=exhaustive)
    state.group, state.attempt = options.group, attempt
    diagnosis = Diagnosis.blank(snapshot.n_nodes)
    cycle = _Cycle(framework, pod, snapshot, state, diagnosis, sampling, options, preferred)
    try:
        if not cycle.pre_filter():
            return await cycle.nothing_fits()
        feasible = await cycle.own_node(extenders)
        if feasible.size and exhaustive:
            return cycle.nominated(feasible, avoided)
        if feasible.size:
            cycle.diagnosis.look_at_only(feasible)
        else:
            feasible = cycle.all_nodes(extenders)
            if extenders is not None:
                feasible = await _left_by_extenders(extenders, pod, snapshot, feasible, cycle.diagnosis)
        if not feasible.size:
            return await cycle.nothing_fits()
        feasible = cycle.diagnosis.avoid(feasible, avoided)
        if options.choose is not None or (len(feasible) == 1 and not exhaustive):
            choose, own = options.choose, preferred_of(feasible, preferred)
            return cycle.chosen(choose(pod, own, snapshot) if choose else int(feasible[0]))
        scores = framework.scoring.run(cycle.state, pod, snapshot, feasible, preferred)
        if extenders is not None:
            others = await extenders.scores(pod, snapshot, feasible, lambda: scores.total)
            scores = scores.with_others(others, preferred)
        return cycle.chosen(pick(scores, pod, snapshot, random), scores)
    except PluginError as error:
        return cycle.failed(error)


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result.

    Raises:
        RuntimeError: the coroutine waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a decision that must not wait is waiting")


class TieBreaker(Random):
    """A random generator whose choice among the best nodes may depend on the pod."""

    def choose(self, pod: PodInfo, best: Rows, snapshot: Snapshot) -> int:
        """Return one of the rows."""
        return int(best[self.randrange(len(best))])


def pick(scores: Scores, pod: PodInfo, snapshot: Snapshot, random: Random) -> int:
    """Return a random one of the rows with the highest total."""
    best = scores.best
    if isinstance(random, TieBreaker):
        return random.choose(pod, best, snapshot)
    return int(best[random.randrange(len(best))] if len(best) > 1 else best[0])


@dataclass(slots=True)
class _Cycle:
    """The steps of one pod's cycle, in order; the attributes are the arguments of `decide`."""

    framework: Framework
    pod: PodInfo
    snapshot: Snapshot
    state: AttemptState
    diagnosis: Diagnosis
    sampling: NodeSampling | None
    options: DecisionOptions
    preferred: Bools | None = None

    def pre_filter(self) -> bool:
        """Run PreFilter; return whether there are nodes to evaluate.

        Raises:
            PluginError: a plugin failed.
        """
        if not self.snapshot.n_nodes:
            return False
        status = self.framework.filtering.run_pre_filter(
            self.state, self.pod, self.snapshot, self.diagnosis, with_quotas=self.options.with_quotas
        )
        if self.options.within is not None:
            self.diagnosis.look_within(self.options.within)
        if not (status.is_success or status.is_rejected):
            self.diagnosis.leave_out(self.snapshot.all_rows)
            raise PluginError(status)
        return status.is_success

    async def own_node(self, extenders: Extenders | None) -> Rows:
        """Return the node to which the pod is nominated, if it fits there.

        Preemption freed capacity there, so that node is probably the only one that fits. A rejection or a failure is not
        final: the node is evaluated again with all others.
        """
        name = self.pod.pod.status.nominated_node_name
        row = self.snapshot.row_of(name) if name else None
        if row is None or (self.options.within is not None and row not in self.options.within):
            return _NOWHERE
        trial = Diagnosis.blank(self.snapshot.n_nodes)
        try:
            feasible = self._find(np.array([row], dtype=np.intp), trial)
            if extenders is not None:
                feasible = await _left_by_extenders(extenders, self.pod, self.snapshot, feasible, trial)
        except PluginError:
            return _NOWHERE
        return feasible

    def all_nodes(self, extenders: Extenders | None) -> Rows:
        """Evaluate all nodes that PreFilter left.

        Raises:
            PluginError: a plugin failed.
        """
        diagnosis = self.diagnosis
        is_narrowed = diagnosis.narrowed_to is not None or self.options.within is not None
        rows = diagnosis.feasible if is_narrowed else self.snapshot.all_rows
        try:
            feasible = self._find(rows, diagnosis)
        except PluginError:
            if diagnosis.first_error() is None:
                # A plugin failed as a whole: the results of the remaining nodes are unknown.
                diagnosis.leave_out(diagnosis.feasible)
            raise
        if self.sampling is None or self.state.exhaustive:
            return feasible
        return self.sampling.cut(self.framework, rows, feasible, diagnosis, extenders, self.preferred)

    def _find(self, rows: Rows, diagnosis: Diagnosis) -> Rows:
        return self.framework.filtering.find_feasible(
            self.state, self.pod, self.snapshot, diagnosis, rows=rows, nominated=self.state.nominated
        )

    def chosen(self, row: int | None, scores: Scores | None = None) -> Decision:
        """Return the decision for the node in a row; None means no node."""
        if row is None:
            return Decision(self.pod, self.state, self.diagnosis, status=Status.unschedulable())
        return Decision(self.pod, self.state, self.diagnosis, self.snapshot.name_of(row), scores)

    def nominated(self, own: Rows, avoided: Mapping[int, str]) -> Decision:
        """Return the decision for the nominated node, which fits; the other nodes are evaluated, but do not change it."""
        row = int(own[0])
        try:
            feasible = self.diagnosis.avoid(self.all_nodes(None), avoided)
            scores = self.framework.scoring.run(self.state, self.pod, self.snapshot, feasible)
        except PluginError:
            self.diagnosis.look_at_only(own)
            return self.chosen(row)
        return self.chosen(row, replace(scores, best=own))

    async def nothing_fits(self) -> Decision:
        """Run PostFilter, and return the decision that no node fits."""
        nominated_node_name: str | None = ""
        if not self.snapshot.n_nodes:
            status = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (NO_NODES,))
            return Decision(self.pod, self.state, self.diagnosis, status=status, nominated_node_name="")
        filtering = self.framework.filtering
        if filtering.has_post_filter and self.options.may_preempt:
            result = await filtering.run_post_filter(self.state, self.pod, self.snapshot, self.diagnosis)
            if over_budget(result.status.error) is not None:
                raise PluginError(result.status)
            self.diagnosis.post_filter_message = result.status.message
            failed = result.status.code is Code.ERROR
            self.diagnosis.post_filter_causes = result.status.causes if failed else result.status.origins
            nominated_node_name = result.nominated_node_name
        status = Status(Code.UNSCHEDULABLE, (self.diagnosis.message(),))
        return Decision(
            self.pod, self.state, self.diagnosis, status=status, nominated_node_name=nominated_node_name
        )

    def failed(self, error: PluginError) -> Decision:
        """Return the decision of a cycle in which a plugin failed."""
        return Decision(self.pod, self.state, self.diagnosis, status=error.status, nominated_node_name="")


async def _left_by_extenders(
    extenders: Extenders, pod: PodInfo, snapshot: Snapshot, feasible: Rows, diagnosis: Diagnosis
) -> Rows:
    try:
        return await extenders.filter(pod, snapshot, feasible, diagnosis)
    except ExtenderError as error:
        diagnosis.leave_out(diagnosis.feasible)
        raise PluginError(Status.failed(str(error), error)) from error
