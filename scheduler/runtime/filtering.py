"""PreFilter, Filter and PostFilter: finds the feasible nodes of a pod, and reacts if there are none."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.interface import PreFilterResult
from scheduler.framework.points import ExtensionPoint
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.runtime.answers import is_pre_filter
from scheduler.runtime.asking import AskFilter
from scheduler.runtime.calls import NO_OTHER, REJECTIONS, SKIPS, PluginError
from scheduler.runtime.equivalence_classes import (
    Prepared,
    class_of,
    remember_class,
    remember_standing,
    signature_in,
)
from scheduler.runtime.kept_verdicts import KeptBySignature, KeptOutcomes, gives_signatures
from scheduler.runtime.points import keeps_rows_apart
from scheduler.runtime.post_filters import ask_post_filters
from scheduler.runtime.standing import Standing, ask_unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.interface import (
        FilterPlugin,
        PostFilterPlugin,
        PostFilterResult,
        PreFilterPlugin,
    )
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.calls import PluginCalls
    from scheduler.runtime.equivalence_classes import EquivalenceClass, EquivalenceClasses
    from scheduler.snapshot import Rows, Snapshot


class Filtering:
    """Runs the filtering points of one profile.

    Args:
        classes: the equivalence classes of pods.
    """

    def __init__(
        self,
        calls: PluginCalls,
        pre_filter: Sequence[PreFilterPlugin],
        filters: Sequence[FilterPlugin],
        post_filter: Sequence[PostFilterPlugin],
        classes: EquivalenceClasses,
    ) -> None:
        self._call = calls
        self._pre_filter = pre_filter
        self._filter = [AskFilter(plugin, calls) for plugin in filters]
        self._post_filter = post_filter
        self._classes = classes
        self._kept = {
            plugin.name: KeptBySignature(KeptOutcomes) for plugin in filters if gives_signatures(plugin)
        }

    @property
    def has_post_filter(self) -> bool:
        return bool(self._post_filter)

    def forget_kept_verdicts(self) -> None:
        """Drop the cached results of all signatures."""
        for kept in self._kept.values():
            kept.forget()

    # PreFilter.

    def run_pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Status:
        """Run PreFilter, and record narrowing and rejection in the diagnosis.

        Returns:
            A success, a rejection of the pod for all nodes, or an error.

        Source:
            kube-scheduler v1.36, framework/runtime/framework.go, RunPreFilterPlugins.
        """
        with self._call.point(ExtensionPoint.PRE_FILTER) as timing:
            prepared = self._prepared(state, pod, snapshot)
            if prepared is None:
                status, _ = self._pre_filter_all(
                    self._pre_filter, frozenset(), state, pod, snapshot, diagnosis
                )
            else:
                status, last = self._pre_filter_all(
                    prepared.others, prepared.skipped, state, pod, snapshot, diagnosis
                )
                if last is not None and status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                    self._forget_plugins_after(last, prepared, state)
            timing.code = status.code
        return status

    def _prepared(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Prepared | None:
        """Copy the cached results of the pod's class into the state; None if all plugins must be called, in order."""
        alike = self._classes.of(pod, state.group, snapshot)
        if alike is None:
            return None
        remember_class(state, alike)
        if not alike.is_kept:
            return None
        if not alike.was_prepared:
            alike.pre_filter = self._ask_of_class(alike, pod, snapshot)
            alike.was_prepared = True
        if alike.pre_filter is None:
            return None
        state.take_over(alike.pre_filter.state)
        return alike.pre_filter

    def _forget_plugins_after(self, last: PreFilterPlugin, prepared: Prepared, state: CycleState) -> None:
        """Remove the data of the plugins after the rejecting one from the state: PostFilter relies on their absence."""
        later = {plugin.name for plugin in self._pre_filter[self._pre_filter.index(last) + 1 :]}
        for name in later & prepared.keys.keys():
            for key in prepared.keys[name]:
                state.delete(key)
        state.skipped_filters -= later

    def _ask_of_class(self, alike: EquivalenceClass, pod: PodInfo, snapshot: Snapshot) -> Prepared | None:
        """Run the plugins whose result is equal for all pods of a class; None if all must be called, in order."""
        own = [plugin for plugin in self._pre_filter if plugin.name in alike.signatures]
        state, skipped = alike.new_state(), set[str]()
        keys: dict[str, frozenset[str]] = {}
        for plugin in own:
            before = state.keys
            answer = self._ask_pre_filter(plugin, state, pod, snapshot)
            if isinstance(answer, Status) and answer.code is Code.SKIP:
                skipped.add(plugin.name)
            elif answer is not None:
                return None  # a narrowing, rejection or failure depends on the order of all plugins
            keys[plugin.name] = state.keys - before
        others = [plugin for plugin in self._pre_filter if plugin not in own]
        return Prepared(state, keys, frozenset(skipped), others)

    def _ask_pre_filter(
        self, plugin: PreFilterPlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        return self._call.guarded(
            plugin,
            ExtensionPoint.PRE_FILTER,
            plugin.pre_filter,
            state,
            pod,
            snapshot,
            expects=is_pre_filter,
            allows=REJECTIONS | SKIPS,
        )

    def _pre_filter_all(
        self,
        plugins: Sequence[PreFilterPlugin],
        known_to_skip: frozenset[str],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
    ) -> tuple[Status, PreFilterPlugin | None]:
        """Return the combined status, and the plugin that ended the point early; None if all plugins were called."""
        skipped = set(known_to_skip)
        names: frozenset[str] | None = None
        narrowing: list[str] = []
        rejection: Status | None = None
        last: PreFilterPlugin | None = None
        for plugin in plugins:
            answer = self._ask_pre_filter(plugin, state, pod, snapshot)
            if answer is None:
                continue
            if isinstance(answer, PreFilterResult):
                narrowing.append(plugin.name)
                names = answer.node_names if names is None else names & answer.node_names
                if not names:
                    rejection, last = _nothing_left(narrowing), plugin
                    break
            elif answer.code is Code.SKIP:
                skipped.add(plugin.name)
            elif answer.code is Code.ERROR:
                return answer, plugin
            elif answer.is_rejected:
                # Later plugins still run, because preemption needs their state, unless preemption cannot help.
                rejection = answer
            if rejection is not None and rejection.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                narrowing.clear()
                last = plugin
                break
        state.skipped_filters = frozenset(skipped)
        _conclude(diagnosis, snapshot, rejection, names, narrowing)
        return rejection or SUCCESS, last

    # Filter.

    def run_filters(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Run every Filter plugin on the remaining nodes, and return the nodes that pass all of them.

        Rejections are recorded in the diagnosis; a node with an ERROR counts as rejected.

        Raises:
            PluginError: a plugin raised or returned an invalid value.
        """
        return self._run(self._active(state), state, pod, snapshot, rows, diagnosis)

    def _active(self, state: CycleState) -> list[AskFilter]:
        return [each for each in self._filter if each.plugin.name not in state.skipped_filters]

    def _run(
        self,
        filters: Iterable[AskFilter],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        diagnosis: Diagnosis,
    ) -> Rows:
        for asking in filters:
            if not rows.size:
                break
            rows = self._call.raising(
                asking.plugin,
                ExtensionPoint.FILTER,
                self._reject,
                asking,
                state,
                pod,
                snapshot,
                rows,
                diagnosis,
            )
        return rows

    def _reject(
        self,
        asking: AskFilter,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        diagnosis: Diagnosis,
    ) -> Rows:
        """Record the nodes that one plugin rejects, and return the others."""
        plugin = asking.plugin
        kept_by = self._kept.get(plugin.name)
        signature = None if kept_by is None else signature_in(state, plugin, pod)
        if kept_by is None or signature is None:
            outcomes = asking.across(state, pod, snapshot, rows)
            return diagnosis.reject(plugin.name, outcomes.table, outcomes.index[rows], rows)
        changes = snapshot.changes if plugin.reads_pods else snapshot.node_changes
        kept = None if changes is None else kept_by.of(signature, plugin.version())
        if kept is None:
            outcomes = asking.each(state, pod, snapshot, rows)
            return diagnosis.reject(plugin.name, outcomes.table, outcomes.index, rows)
        kept.follow(changes, snapshot.n_nodes)
        ask_unknown(asking, kept, state, pod, snapshot, rows)
        if not kept.refuses:
            return rows
        return diagnosis.reject(plugin.name, tuple(kept.table), kept.values[rows], rows)

    def _stand(
        self,
        alike: EquivalenceClass,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
    ) -> Rows:
        """Evaluate all nodes; the leading filters that read one node at a time use their cached combined result."""
        active = self._active(state)
        standing = alike.standing.get(state.skipped_filters)
        if standing is None:
            own = list(takewhile(lambda each: each.plugin.name in alike.signatures, active))
            standing = alike.standing[state.skipped_filters] = Standing(
                self._call, [(asking, self._kept_by(alike, asking)) for asking in own]
            )
        standing.follow(state, pod, snapshot)
        remember_standing(state, standing)
        diagnosis.take_over(
            standing.plugins,
            standing.tables,
            standing.rejected_by,
            standing.index,
            has_failures=bool(standing.failed),
        )
        return self._run(active[len(standing.plugins) :], state, pod, snapshot, standing.feasible, diagnosis)

    def _kept_by(self, alike: EquivalenceClass, asking: AskFilter) -> KeptOutcomes:
        name = asking.plugin.name
        return self._kept[name].keep(alike.signatures[name], alike.versions.get(name, 0))

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
        """Evaluate nodes, and return the feasible ones, ascending.

        Args:
            state: the state that PreFilter wrote.
            pod: the pod to place.
            snapshot: the cluster.
            diagnosis: receives the rejections.
            rows: the nodes to evaluate.
            nominated: row -> other pods of equal or higher priority that are nominated to the node. The node must
                pass with them and without them, because they may or may not be bound there.

        Raises:
            PluginError: a plugin failed, at one node or as a whole.

        Source:
            kube-scheduler v1.36, framework/runtime/framework.go, RunFilterPluginsWithNominatedPods.
        """
        with self._call.point(ExtensionPoint.FILTER):
            feasible = self.passing(state, pod, snapshot, diagnosis, rows=rows, nominated=nominated)
            self._raise_first_error(diagnosis, snapshot)
        return feasible

    def _raise_first_error(self, diagnosis: Diagnosis, snapshot: Snapshot) -> None:
        failed = diagnosis.first_error()
        if failed is not None:
            plugin, outcome, row = failed
            self._call.instruments.failed(plugin, ExtensionPoint.FILTER)
            node, reasons = snapshot.name_of(row), ", ".join(outcome.reasons)
            told = f'running Filter plugin "{plugin}" for node "{node}": {reasons}'
            raise PluginError(Status(Code.ERROR, (told,), plugin))

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
        """Return the nodes that pass with and without the pods nominated to them; see `find_feasible`.

        A node with an ERROR counts as rejected.

        Raises:
            PluginError: a plugin raised or returned an invalid value.
        """
        crowded = np.intersect1d(list(nominated), rows).tolist() if nominated else []
        alike = class_of(state)
        if alike is not None and alike.pre_filter and snapshot.changes and len(rows) == snapshot.n_nodes:
            passing = self._stand(alike, state, pod, snapshot, diagnosis)
            refused = self._refused_when_crowded(state, pod, snapshot, diagnosis, crowded, nominated)
            return passing[~np.isin(passing, refused)] if refused.size else passing
        refused = self._refused_when_crowded(state, pod, snapshot, diagnosis, crowded, nominated)
        left = rows[~np.isin(rows, refused)] if refused.size else rows
        return self.run_filters(state, pod, snapshot, left, diagnosis)

    def _refused_when_crowded(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
        crowded: Sequence[int],
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> Rows:
        """Return the rows that fail with the pods nominated to them; the diagnosis records the reasons."""
        refused: list[int] = []
        # Each node is evaluated with its own nominated pods only.
        for together in self.apart(state, pod, crowded):
            added = [(row, other) for row in together for other in nominated[row]]
            what_if = snapshot.overlay(add=added)
            its_state = state.clone()
            self.run_add_pods(its_state, pod, added, what_if)
            asked = np.array(sorted(together), dtype=np.intp)
            passing = self.run_filters(its_state, pod, what_if, asked, diagnosis)
            refused.extend(np.setdiff1d(asked, passing, assume_unique=True).tolist())
        return np.array(refused, dtype=np.intp)

    def apart(self, state: CycleState, pod: PodInfo, rows: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the groups of rows that may be evaluated together when pods are added or removed.

        All rows form one group if each active plugin evaluates a row by its own pods; otherwise each row is a group.
        """
        plugins = [*self._pre_filter, *(each.plugin for each in self._filter)]
        if not rows or keeps_rows_apart(plugins, pod, state.skipped_filters, self._call.signature):
            return [rows] if rows else []
        return [[row] for row in rows]

    def run_add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Add pods to the state of PreFilter, as if they were on these rows.

        Raises:
            PluginError: a plugin raised.
        """
        self._tell_of_pods("add_pods", state, pod, added, snapshot)

    def run_remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Remove pods from the state of PreFilter.

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
        """Run PostFilter plugins until one succeeds or fails; the reasons of all called plugins are joined."""
        with self._call.point(ExtensionPoint.POST_FILTER) as timing:
            result = await ask_post_filters(self._call, self._post_filter, state, pod, snapshot, diagnosis)
            timing.code = result.status.code
        return result


def _conclude(
    diagnosis: Diagnosis,
    snapshot: Snapshot,
    rejection: Status | None,
    names: frozenset[str] | None,
    narrowing: Sequence[str],
) -> None:
    """Record the result of PreFilter: a rejection of the pod, or the names of the only possible nodes."""
    if rejection is not None:
        diagnosis.reject_all(rejection, narrowing)
    elif names is not None:
        keep = np.zeros(snapshot.n_nodes, dtype=bool)
        keep[[row for row in map(snapshot.row_of, names) if row is not None]] = True
        diagnosis.narrow(keep, names, tuple(sorted(narrowing)))


def _nothing_left(narrowing: Sequence[str]) -> Status:
    if len(narrowing) == 1:
        reason = f"node(s) didn't satisfy plugin {narrowing[0]}"
    else:
        reason = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}] simultaneously"
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
