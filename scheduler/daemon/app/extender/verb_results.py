"""The evaluations of an extender: calls the plugins of a profile for the nodes that another scheduler names.

Each request is evaluated on the current snapshot without the pod itself, beginning with PreFilter. The other scheduler
reports nothing between two requests for one pod, so nothing is kept between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.errors import SchedulerError
from scheduler.extensions.extender_wire import MAX_EXTENDER_PRIORITY, FilterAnswer
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.interface import MAX_NODE_SCORE
from scheduler.framework.status import Code, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.state.cache import Cache
    from scheduler.engine.state.nominator import Nominator
    from scheduler.extensions.extender_wire import MetaVictims
    from scheduler.framework.diagnosis import Outcome
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot

UNKNOWN_NODE = "node(s) were not known to the extender"
"""The rejection of a node that the other scheduler knows and this one does not: it was deleted, or is not watched yet."""


class VerbResults:
    """Evaluates nodes with the plugins of one profile at a time; raises SchedulerError if a plugin fails.

    Args:
        best: the highest total that a node can have in any profile, a multiple of 100; 0 without scoring plugins.
        unknown_nodes: called with the number of unknown nodes of a request.
    """

    def __init__(
        self, cache: Cache, nominator: Nominator, best: int, unknown_nodes: Callable[[int], None]
    ) -> None:
        self._best = best
        self._cache = cache
        self._nominator = nominator
        self._unknown_nodes = unknown_nodes

    def filter(self, framework: Framework, pod: PodInfo, node_names: Sequence[str]) -> FilterAnswer:
        """Return the nodes that can run a pod, and why the others cannot."""
        snapshot = self._without(pod)
        rows, unknown = self._rows(snapshot, node_names)
        passed: list[str] = []
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = dict.fromkeys(unknown, UNKNOWN_NODE)
        if not rows.size:
            return FilterAnswer((), failed, unresolvable)
        _, diagnosis, _ = self._judged(framework, pod, snapshot, rows)
        # A loop over the nodes of a request, because each of them is sent by name.
        for row in rows.tolist():
            name, refusal = snapshot.name_of(row), diagnosis.outcome_of(row)
            if refusal is None:
                passed.append(name)
            else:
                _, outcome = refusal
                there = unresolvable if outcome.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE else failed
                there[name] = _words(outcome)
        return FilterAnswer(tuple(passed), failed, unresolvable)

    def prioritize(
        self, framework: Framework, pod: PodInfo, node_names: Sequence[str]
    ) -> Sequence[tuple[str, int]]:
        """Return the score of each node, 0 to 10; unknown nodes get 0."""
        snapshot = self._without(pod)
        rows, unknown = self._rows(snapshot, node_names)
        scores = dict.fromkeys(unknown, 0)
        if rows.size:
            names = (snapshot.name_of(row) for row in rows.tolist())
            scores |= zip(names, self._scores(framework, pod, snapshot, rows).tolist(), strict=True)
        return [(name, scores[name]) for name in node_names]

    def preempt(
        self, framework: Framework, pod: PodInfo, victims: Mapping[str, MetaVictims]
    ) -> Mapping[str, MetaVictims]:
        """Return the nodes that the pod fits on without the given victims, with those victims.

        No victims are added: the other scheduler decides which further pods to preempt.
        """
        left: dict[str, MetaVictims] = {}
        snapshot = self._without(pod)
        rows, _ = self._rows(snapshot, tuple(victims))
        for row in rows.tolist():
            meta = victims[snapshot.name_of(row)]
            there = {each.uid: each for each in snapshot.pods_on(row)}
            gone = [(row, there[uid]) for uid in meta.uids if uid in there]
            # PreFilter again for each node: its result for the cluster may depend on the victims.
            feasible, _, _ = self._judged(
                framework, pod, self._without(pod, gone), np.array([row], dtype=np.intp)
            )
            if feasible.size and meta.uids:  # a node without victims is an error to kube-scheduler
                left[snapshot.name_of(row)] = meta
        return left

    def last_look(self, framework: Framework, pod: PodInfo, node_name: str) -> tuple[str, AttemptState]:
        """Return why a node cannot run a pod ("" if it can), and the state that PreFilter wrote, for Reserve and later points."""
        snapshot = self._without(pod)
        rows, unknown = self._rows(snapshot, (node_name,))
        if unknown:
            return UNKNOWN_NODE, AttemptState()
        _, diagnosis, state = self._judged(framework, pod, snapshot, rows)
        refusal = diagnosis.outcome_of(int(rows[0]))
        return ("" if refusal is None else _words(refusal[1])), state

    def _without(self, pod: PodInfo, gone: Sequence[tuple[int, PodInfo]] = ()) -> Snapshot:
        """Return the snapshot without the pod, which may be being bound, and without the given pods."""
        snapshot = self._cache.snapshot()
        counted = self._cache.pod(pod.uid)
        row = None if counted is None else snapshot.row_of(counted.node_name)
        if counted is not None and row is not None:
            gone = [*gone, (row, counted)]
        return snapshot.overlay(remove=gone) if gone else snapshot

    def _rows(self, snapshot: Snapshot, node_names: Sequence[str]) -> tuple[Rows, Sequence[str]]:
        """Return the rows of known nodes, ascending, and the names of unknown nodes."""
        rows: list[int] = []
        unknown: list[str] = []
        for name in node_names:
            row = snapshot.row_of(name)
            if row is None:
                unknown.append(name)
            else:
                rows.append(row)
        if unknown:
            self._unknown_nodes(len(unknown))
        return np.array(sorted(rows), dtype=np.intp), unknown

    def _judged(
        self, framework: Framework, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> tuple[Rows, Diagnosis, AttemptState]:
        """Return the rows that pass PreFilter and Filter (with nominated pods), the rejections of the others, and the state."""
        nominated = self._nominator.others(pod, snapshot)
        state, diagnosis = AttemptState(nominated), Diagnosis.blank(snapshot.n_nodes)
        try:
            status = framework.filtering.run_pre_filter(state, pod, snapshot, diagnosis)
            if status.is_success:
                asked = np.intersect1d(rows, diagnosis.feasible, assume_unique=True)
                feasible = framework.filtering.find_feasible(
                    state, pod, snapshot, diagnosis, rows=asked, nominated=nominated
                )
                return feasible, diagnosis, state
        except PluginError as error:
            raise _failed(framework, error.status) from error
        if not status.is_rejected:
            raise _failed(framework, status)
        return np.empty(0, dtype=np.intp), diagnosis, state

    def _scores(self, framework: Framework, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Int64s:
        """Return int64 (len(rows),), 0 to 10; all 0 if PreFilter now rejects the pod."""
        state = AttemptState(self._nominator.others(pod, snapshot))
        status = framework.filtering.run_pre_filter(state, pod, snapshot, Diagnosis.blank(snapshot.n_nodes))
        if not (status.is_success or status.is_rejected):
            raise _failed(framework, status)
        if status.is_rejected or not framework.scoring.has_scorers:
            return np.zeros(len(rows), dtype=np.int64)
        try:
            total = framework.scoring.run(state, pod, snapshot, rows).total
        except PluginError as error:
            raise _failed(framework, error.status) from error
        return scaled(total, self._best)


def weight_of(frameworks: Iterable[Framework]) -> int:
    """Return the sum of the weights of a profile's scoring plugins, the largest of all profiles; 0 without any.

    As the extender's weight in kube-scheduler's configuration, it gives the scores the same range as in this scheduler.
    """
    return max((sum(framework.plugins.weights.values()) for framework in frameworks), default=0)


def best_total(frameworks: Iterable[Framework]) -> int:
    """Return the highest total that a node can have in any of the profiles."""
    return MAX_NODE_SCORE * weight_of(frameworks)


def scaled(total: Int64s, best: int) -> Int64s:
    """Scale totals to the range of extenders: 0 to 0 and `best` to 10, rounded to nearest, halves up.

    Args:
        total: int64 (n,), 0 to best.
        best: a multiple of 100, more than 0.
    """
    tenth = best // MAX_EXTENDER_PRIORITY  # a whole number: the best score is 100
    tenths: Int64s = total // tenth + (2 * (total % tenth) >= tenth)  # nothing here can overflow
    return tenths


def _words(outcome: Outcome) -> str:
    return ", ".join(outcome.reasons) or outcome.code.value


def _failed(framework: Framework, status: Status) -> SchedulerError:
    return SchedulerError(f"profile {framework.profile}: {status.message}")  # which names the plugin
