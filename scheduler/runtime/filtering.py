"""PreFilter, Filter and PostFilter: which nodes can run a pod, and what to do when none can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.interface import FilterPlugin, PreFilterPlugin, PreFilterResult
from scheduler.framework.points import ExtensionPoint
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.runtime.answers import checked_outcomes, is_pre_filter, signature_of
from scheduler.runtime.calls import NO_OTHER, REJECTIONS, SKIPS, PluginError
from scheduler.runtime.equivalence import KeptVerdicts, is_kept
from scheduler.runtime.per_node import filter_nodes
from scheduler.runtime.points import keeps_rows_apart, overrides
from scheduler.runtime.post_filters import ask_post_filters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.interface import PostFilterPlugin, PostFilterResult
    from scheduler.framework.outcomes import Outcomes
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.calls import PluginCalls
    from scheduler.snapshot import Rows, Snapshot


class Filtering:
    """Runs the filtering points of one profile."""

    def __init__(
        self,
        calls: PluginCalls,
        pre_filter: Sequence[PreFilterPlugin],
        filters: Sequence[FilterPlugin],
        post_filter: Sequence[PostFilterPlugin],
    ) -> None:
        self._call = calls
        self._pre_filter = pre_filter
        self._filter = filters
        self._post_filter = post_filter
        self._kept = {plugin.name: KeptVerdicts() for plugin in filters if is_kept(plugin)}

    @property
    def has_post_filter(self) -> bool:
        return bool(self._post_filter)

    def forget_kept_verdicts(self) -> None:
        """Drop what is kept per signature."""
        for kept in self._kept.values():
            kept.forget()

    def run_pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Status:
        """Ask PreFilter; narrowing and rejection are noted in the diagnosis.

        Returns:
            A success, a rejection of the pod whatever the node, or an error.

        Source:
            kube-scheduler v1.36, framework/runtime/framework.go, RunPreFilterPlugins.
        """
        with self._call.point(ExtensionPoint.PRE_FILTER) as told:
            told.code = (status := self._pre_filter_all(state, pod, snapshot, diagnosis)).code
        return status

    def _pre_filter_all(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Status:
        skipped: set[str] = set()
        names: frozenset[str] | None = None
        narrowing: list[str] = []
        rejection: Status | None = None
        for plugin in self._pre_filter:
            answer = self._call.guarded(
                plugin,
                ExtensionPoint.PRE_FILTER,
                plugin.pre_filter,
                state,
                pod,
                snapshot,
                expects=is_pre_filter,
                allows=REJECTIONS | SKIPS,
            )
            if isinstance(answer, PreFilterResult):
                narrowing.append(plugin.name)
                names = answer.node_names if names is None else names & answer.node_names
                if not names:
                    rejection = _nothing_left(narrowing)
                    break
            elif answer is not None and answer.code is Code.SKIP:
                skipped.add(plugin.name)
            elif answer is not None and not answer.is_success:
                if not answer.is_rejected:
                    return answer
                # The others are still asked: preemption needs what they prepare. Unless it cannot help anyway.
                rejection = answer
                if answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                    narrowing.clear()
                    break
        state.skipped_filters = frozenset(skipped)
        if rejection is not None:
            diagnosis.unschedulable_plugins.update(narrowing)
            diagnosis.reject_all(rejection)
            return rejection
        if names is not None:
            keep = np.zeros(snapshot.n_nodes, dtype=bool)
            keep[[row for row in map(snapshot.row_of, names) if row is not None]] = True
            diagnosis.narrow(keep, names, tuple(sorted(narrowing)))
        return SUCCESS

    def run_filters(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Ask every Filter about the nodes still standing, and return those that pass all.

        Refusals are noted in the diagnosis; a node of which a plugin says ERROR counts as refused.

        Raises:
            PluginError: a plugin raised, or gave a malformed answer.
        """
        for plugin in self._filter:
            if not rows.size:
                break
            if plugin.name in state.skipped_filters:
                continue
            rows = diagnosis.reject(plugin.name, self._outcomes(plugin, state, pod, snapshot, rows), rows)
        return rows

    def find_feasible(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
        *,
        rows: Rows,
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> Rows:
        """Judge nodes, and return the feasible ones, ascending.

        Args:
            state: what PreFilter wrote.
            pod: the pod to place.
            snapshot: the cluster.
            diagnosis: where refusals are noted.
            rows: the nodes to judge.
            nominated: row -> other pods of equal or higher priority that are expected there soon. Such a node must
                pass with them and without them, since they may or may not come.

        Raises:
            PluginError: a plugin failed, at one node or as a whole.

        Source:
            kube-scheduler v1.36, framework/runtime/framework.go, RunFilterPluginsWithNominatedPods.
        """
        with self._call.point(ExtensionPoint.FILTER):
            feasible = self.passing(state, pod, snapshot, diagnosis, rows=rows, nominated=nominated)
            _raise_first_error(diagnosis, snapshot)
        return feasible

    def passing(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
        *,
        rows: Rows,
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> Rows:
        """Return the nodes that pass with the pods nominated to them, and without; see `find_feasible`.

        A node of which a plugin says ERROR counts as refused.

        Raises:
            PluginError: a plugin raised, or gave a malformed answer.
        """
        if nominated:
            rows = self._pass_with_nominated(state, pod, snapshot, diagnosis, rows, nominated)
        return self.run_filters(state, pod, snapshot, rows, diagnosis)

    def _pass_with_nominated(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
        rows: Rows,
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> Rows:
        standing = np.zeros(snapshot.n_nodes, dtype=bool)
        standing[rows] = True
        crowded = [row for row in nominated if standing[row]]
        # Each node sees its own nominated pods and nobody else's.
        for together in self.apart(state, crowded):
            added = [(row, other) for row in together for other in nominated[row]]
            what_if = snapshot.overlay(add=added)
            its_state = state.clone()
            self.run_add_pods(its_state, pod, added, what_if)
            standing[together] = False
            asked = np.array(sorted(together), dtype=np.intp)
            standing[self.run_filters(its_state, pod, what_if, asked, diagnosis)] = True
        return np.flatnonzero(standing)

    def apart(self, state: CycleState, rows: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return which rows may be judged together when pods come to them or leave them.

        All of them, if each plugin that is asked judges a row by its own pods; else one at a time.
        """
        if not rows or keeps_rows_apart((*self._pre_filter, *self._filter), state.skipped_filters):
            return [rows] if rows else []
        return [[row] for row in rows]

    def run_add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Take pods into what PreFilter wrote, as if they were on those rows.

        Raises:
            PluginError: a plugin raised.
        """
        self._tell_of_pods("add_pods", state, pod, added, snapshot)

    def run_remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Take pods out of what PreFilter wrote.

        Raises:
            PluginError: a plugin raised.
        """
        self._tell_of_pods("remove_pods", state, pod, removed, snapshot)

    def _tell_of_pods(
        self,
        method: str,
        state: CycleState,
        pod: PodInfo,
        pods: Sequence[tuple[int, PodInfo]],
        snapshot: Snapshot,
    ) -> None:
        for plugin in self._pre_filter:
            if plugin.name in state.skipped_filters:
                continue
            status = self._call.status(
                plugin,
                ExtensionPoint.PRE_FILTER,
                getattr(plugin, method),
                state,
                pod,
                pods,
                snapshot,
                allows=NO_OTHER,
            )
            if not status.is_success:
                raise PluginError(status)

    async def run_post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Ask PostFilter plugins until one succeeds or fails; the reasons of all asked are joined."""
        with self._call.point(ExtensionPoint.POST_FILTER) as told:
            result = await ask_post_filters(self._call, self._post_filter, state, pod, snapshot, diagnosis)
            told.code = result.status.code
        return result

    def _outcomes(
        self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> Outcomes:
        def ask(nodes: Snapshot, asked: Rows) -> Outcomes:
            if overrides(plugin, FilterPlugin, "filter"):
                with self._call.evaluation(plugin, ExtensionPoint.FILTER, nodes=None):
                    return checked_outcomes(plugin.filter(state, pod, nodes, asked), nodes.n_nodes)
            with self._call.evaluation(plugin, ExtensionPoint.FILTER, nodes=len(asked)) as told:
                outcomes, told.nodes = filter_nodes(plugin, state, pod, nodes, asked)
                return outcomes

        return self._call.raising(
            plugin, ExtensionPoint.FILTER, self._judge, plugin, pod, snapshot, rows, ask
        )

    def _judge(
        self,
        plugin: FilterPlugin,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        ask: Callable[[Snapshot, Rows], Outcomes],
    ) -> Outcomes:
        kept = self._kept.get(plugin.name)
        signature = None if kept is None else signature_of(plugin, pod)
        if kept is None or signature is None:
            return ask(snapshot, rows)
        return kept.outcomes(
            signature, plugin.version(), snapshot, rows, lambda some: ask(some, some.all_rows)
        )


def _raise_first_error(diagnosis: Diagnosis, snapshot: Snapshot) -> None:
    failed = diagnosis.first_error()
    if failed is not None:
        plugin, outcome, row = failed
        node, reasons = snapshot.name_of(row), ", ".join(outcome.reasons)
        told = f'running Filter plugin "{plugin}" for node "{node}": {reasons}'
        raise PluginError(Status(Code.ERROR, (told,), plugin))


def _nothing_left(narrowing: Sequence[str]) -> Status:
    if len(narrowing) == 1:
        reason = f"node(s) didn't satisfy plugin {narrowing[0]}"
    else:
        reason = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}] simultaneously"
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
