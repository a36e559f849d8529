"""PreFilter, Filter and PostFilter: finds the feasible nodes of a pod, and reacts if there are none."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.runtime.adapters import FilterAdapter
from scheduler.engine.runtime.cached_verdicts import (
    CacheBySignature,
    CachedFilterResult,
    CachedOutcomes,
    filter_unknown_rows,
    gives_signatures,
)
from scheduler.engine.runtime.calls import (
    NO_OTHER,
    REJECTIONS,
    SKIPS,
    PluginError,
    PointTiming,
    is_post_filter,
    is_pre_filter,
)
from scheduler.engine.runtime.equivalence_classes import Prepared
from scheduler.engine.runtime.plugin_classes import called_for, enforces_quotas, keeps_rows_apart, overrides
from scheduler.framework.interface import (
    ExtensionCall,
    ExtensionPoint,
    PostFilterResult,
    PreFilterPlugin,
    PreFilterResult,
)
from scheduler.framework.reasons import EXCLUDED_BY_PRE_FILTER, Cause, Reason, codes_of
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.snapshot import NominatedOthers, NominatedPods

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.engine.runtime.calls import PluginCalls
    from scheduler.engine.runtime.equivalence_classes import (
        AttemptState,
        EquivalenceClass,
        EquivalenceClasses,
    )
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.interface import FilterPlugin, Plugin, PostFilterPlugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot


async def _ask_post_filters(
    call: PluginCalls,
    plugins: Sequence[PostFilterPlugin],
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    diagnosis: Diagnosis,
) -> PostFilterResult:
    """Run plugins in order until one succeeds, fails, or returns UnschedulableAndUnresolvable.

    Returns:
        The result of that plugin; otherwise a rejection with the reasons of all plugins and the last nomination.

    Source:
        kube-scheduler v1.36, framework/runtime/framework.go, RunPostFilterPlugins.
    """
    reasons: list[str] = []
    causes: list[Cause] = []
    rejected_by = ""
    nominated: str | None = None
    for plugin in plugins:
        result = await call.perhaps_awaited(
            plugin,
            ExtensionPoint.POST_FILTER,
            plugin.post_filter,
            state,
            pod,
            snapshot,
            diagnosis,
            expects=is_post_filter,
            allows=NO_OTHER,
        )
        if isinstance(result, Status):
            return PostFilterResult(result)
        status = call.completed(plugin, ExtensionPoint.POST_FILTER, result.status)
        if status.code is Code.ERROR:
            return PostFilterResult(status)
        if status.is_rejected:
            # Reasons without codes are no causes: most say that the plugin has nothing to do.
            own = tuple(Cause(code, plugin.name) for code in codes_of(status.reasons, ""))
            causes.extend(status.origins or own)
        if not status.is_rejected or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return PostFilterResult(replace(status, origins=tuple(causes)), result.nominated_node_name)
        if result.nominated_node_name is not None:
            nominated = result.nominated_node_name
        reasons.extend(status.reasons)
        rejected_by = rejected_by or plugin.name
    combined = Status(Code.UNSCHEDULABLE, tuple(reasons), rejected_by, origins=tuple(causes))
    return PostFilterResult(combined, nominated)


_NOWHERE: Rows = np.empty(0, dtype=np.intp)
_NO_PLUGINS: frozenset[str] = frozenset()


class Filtering:
    """Runs the filtering points of one profile.

    Args:
        classes: the equivalence classes of pods.

    Attributes:
        has_post_filter: whether the profile has PostFilter plugins.
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
        self._filter = [FilterAdapter(plugin, calls) for plugin in filters]
        self._post_filter = post_filter
        self.has_post_filter = bool(post_filter)
        self._classes = classes
        # The plugins whose state follows added pods.
        self._counting = {
            plugin.name for plugin in pre_filter if overrides(plugin, PreFilterPlugin, "add_pods")
        }
        self._with_quotas = frozenset(plugin.name for plugin in pre_filter if enforces_quotas(plugin))
        self._caches = {
            plugin.name: CacheBySignature(CachedOutcomes) for plugin in filters if gives_signatures(plugin)
        }

    def without(self, names: AbstractSet[str]) -> Filtering:
        """Return the filtering points without some plugins, and without any cached result."""
        return Filtering(
            self._call,
            [plugin for plugin in self._pre_filter if plugin.name not in names],
            [each.plugin for each in self._filter if each.plugin.name not in names],
            self._post_filter,
            self._classes,
        )

    def forget_cached_verdicts(self) -> None:
        """Drop the cached results of all signatures."""
        for cached in self._caches.values():
            cached.forget()

    # PreFilter.

    def run_pre_filter(
        self,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
        *,
        with_quotas: bool = True,
    ) -> Status:
        """Run PreFilter, and record narrowing and rejection in the diagnosis.

        `with_quotas` is false if an earlier decision was about quotas, and this one is about a node: the plugins that enforce
        quotas are not called then.

        Returns:
            A success, a rejection of the pod for all nodes, or an error.

        Source:
            kube-scheduler v1.36, framework/runtime/framework.go, RunPreFilterPlugins.
        """
        with PointTiming(self._call, ExtensionPoint.PRE_FILTER) as timing:
            asked, left_out = self._pre_filter, _NO_PLUGINS
            if pod.pod.spec.node_name:
                asked, left_out = self._for_resize(pod)
            elif not with_quotas and self._with_quotas:
                asked = [plugin for plugin in asked if plugin.name not in self._with_quotas]
                left_out = self._with_quotas
            prepared = None if left_out else self._prepared(state, pod, snapshot)
            if prepared is None:
                status, _ = self._pre_filter_all(asked, left_out, state, pod, snapshot, diagnosis)
            else:
                status, last = self._pre_filter_all(
                    prepared.others, prepared.skipped, state, pod, snapshot, diagnosis
                )
                if last is not None and status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                    self._forget_plugins_after(last, prepared, state)
            timing.code = status.code
        return status

    def _for_resize(self, pod: PodInfo) -> tuple[Sequence[PreFilterPlugin], frozenset[str]]:
        """Return the PreFilter plugins that are called for a pod on a node, and the names of all plugins that are not."""
        everyone = [*self._pre_filter, *(each.plugin for each in self._filter)]
        asked = {plugin.name for plugin in called_for(pod, everyone)}
        left_out = frozenset(plugin.name for plugin in everyone) - asked
        return called_for(pod, self._pre_filter), left_out

    def _prepared(
        self, state: AttemptState, pod: PodInfo, snapshot: Snapshot
    ) -> Prepared[PreFilterPlugin] | None:
        """Copy the cached results of the pod's class into the state; None if all plugins must be called, in order."""
        pod_class = self._classes.of(pod, state.group, snapshot)
        if pod_class is None:
            return None
        state.pod_class = pod_class
        if not pod_class.is_kept:
            return None
        if not pod_class.was_prepared:
            pod_class.pre_filter = self._ask_of_class(pod_class, pod, snapshot)
            pod_class.was_prepared = True
        if pod_class.pre_filter is None:
            return None
        state.take_over(pod_class.pre_filter.state)
        return pod_class.pre_filter

    def _forget_plugins_after(
        self, last: PreFilterPlugin, prepared: Prepared[PreFilterPlugin], state: AttemptState
    ) -> None:
        """Remove the data of the plugins after the rejecting one from the state: PostFilter relies on their absence."""
        later = {plugin.name for plugin in self._pre_filter[self._pre_filter.index(last) + 1 :]}
        for name in later & prepared.keys.keys():
            for key in prepared.keys[name]:
                state.delete(key)
        state.skipped_filters -= later

    def _ask_of_class(
        self, pod_class: EquivalenceClass, pod: PodInfo, snapshot: Snapshot
    ) -> Prepared[PreFilterPlugin] | None:
        """Run the plugins whose result is equal for all pods of a class; None if all must be called, in order."""
        own = [plugin for plugin in self._pre_filter if plugin.name in pod_class.signatures]
        state, skipped = pod_class.new_state(), set[str]()
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
        state: AttemptState,
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
        self, state: AttemptState, pod: PodInfo, snapshot: Snapshot, rows: Rows, diagnosis: Diagnosis
    ) -> Rows:
        """Run every Filter plugin on the remaining nodes, and return the nodes that pass all of them.

        Rejections are recorded in the diagnosis; a node with an ERROR counts as rejected.

        Raises:
            PluginError: a plugin raised or returned an invalid value.
        """
        return self._run(self._active(state), state, pod, snapshot, rows, diagnosis)

    def _active(self, state: AttemptState) -> list[FilterAdapter]:
        return [each for each in self._filter if each.plugin.name not in state.skipped_filters]

    def _run(
        self,
        filters: Iterable[FilterAdapter],
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        diagnosis: Diagnosis,
    ) -> Rows:
        for adapter in filters:
            if not rows.size:
                break
            rows = self._call.raising(
                adapter.plugin,
                ExtensionPoint.FILTER,
                self._reject,
                adapter,
                state,
                pod,
                snapshot,
                rows,
                diagnosis,
            )
        return rows

    def _reject(
        self,
        adapter: FilterAdapter,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        diagnosis: Diagnosis,
    ) -> Rows:
        """Record the nodes that one plugin rejects, and return the others."""
        plugin = adapter.plugin
        cache = self._caches.get(plugin.name)
        signature = None if cache is None else state.signature(plugin, pod)
        if cache is None or signature is None:
            outcomes = adapter.across(state, pod, snapshot, rows)
            return diagnosis.reject_across(plugin.name, outcomes.table, outcomes.index, rows)
        changes = snapshot.changes if plugin.reads_pods else snapshot.node_changes
        cached = None if changes is None else cache.of(signature, plugin.version(), snapshot.n_nodes)
        if cached is None:
            outcomes = adapter.each(state, pod, snapshot, rows)
            return diagnosis.reject(plugin.name, outcomes.table, outcomes.index, rows)
        cached.follow(changes, snapshot.n_nodes)
        filter_unknown_rows(adapter, cached, state, pod, snapshot, rows)
        if not cached.refuses:
            return rows
        return diagnosis.reject_across(plugin.name, tuple(cached.table), cached.values, rows)

    def _use_filter_result(
        self,
        pod_class: EquivalenceClass,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
    ) -> Rows:
        """Evaluate all nodes; the leading filters that read one node at a time use their cached combined result."""
        active = self._active(state)
        filter_result = pod_class.filter_result.get(state.skipped_filters)
        if filter_result is None:
            own = list(takewhile(lambda each: each.plugin.name in pod_class.signatures, active))
            filter_result = pod_class.filter_result[state.skipped_filters] = CachedFilterResult(
                self._call, [(adapter, self._cache_for(pod_class, adapter, snapshot)) for adapter in own]
            )
        assert snapshot.changes is not None, "results of a hypothetical cluster are not cached"
        filter_result.follow(state, pod, snapshot, snapshot.changes)
        state.filter_result = filter_result
        diagnosis.take_over(
            filter_result.plugins,
            filter_result.tables,
            filter_result.rejected_by,
            filter_result.index,
            filter_result.feasible,
            has_failures=bool(filter_result.failed),
        )
        return self._run(
            active[len(filter_result.plugins) :], state, pod, snapshot, filter_result.feasible, diagnosis
        )

    def _cache_for(
        self, pod_class: EquivalenceClass, adapter: FilterAdapter, snapshot: Snapshot
    ) -> CachedOutcomes:
        name = adapter.plugin.name
        version = pod_class.versions.get(name, 0)
        return self._caches[name].keep(pod_class.signatures[name], version, snapshot.n_nodes)

    def find_feasible(
        self,
        state: AttemptState,
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
        with PointTiming(self._call, ExtensionPoint.FILTER):
            feasible = self.passing(state, pod, snapshot, diagnosis, rows=rows, nominated=nominated)
            failed = diagnosis.first_error()
            if failed is not None:
                plugin, outcome, row = failed
                raise PluginError(self._call.failed_at(snapshot.name_of(row), plugin, outcome))
        return feasible

    def passing(
        self,
        state: AttemptState,
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
        pod_class = state.pod_class
        if not (
            pod_class is not None
            and pod_class.pre_filter
            and snapshot.changes
            and len(rows) == snapshot.n_nodes
        ):
            pod_class = None
        left = rows
        if pod_class is not None:
            left = self._use_filter_result(pod_class, state, pod, snapshot, diagnosis)
        if nominated:
            refused = self._refused_with_nominated(
                pod_class, state, pod, snapshot, diagnosis, rows, nominated
            )
            if refused.size:
                left = left[~np.isin(left, refused)]
        return left if pod_class is not None else self.run_filters(state, pod, snapshot, left, diagnosis)

    def _refused_with_nominated(
        self,
        pod_class: EquivalenceClass | None,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
        rows: Rows,
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> Rows:
        """Return the rows that fail with the pods nominated to them; the diagnosis records the reasons."""
        alone: set[int] = set()
        if isinstance(nominated, NominatedOthers):
            shared, pods, own_row = nominated.shared(rows), nominated.pods, nominated.own_row
            if own_row is not None and own_row in nominated and own_row in rows:
                alone.add(own_row)
        else:
            pods = NominatedPods.of(nominated, snapshot.n_nodes)
            shared = rows[pods.has_pods[rows]]
        evaluated = np.array([*shared.tolist(), *alone], dtype=np.intp)
        passing: list[Rows] = []
        if self._keeps_apart(state, pod):
            passing.append(self._passing_with(pod_class, state, pod, snapshot, diagnosis, shared, pods))
        else:
            alone.update(shared.tolist())
        # Each of the other nodes is evaluated with its own nominated pods only.
        for row in sorted(alone):
            only = NominatedPods.of({row: nominated[row]}, snapshot.n_nodes)
            asked = np.array([row], dtype=np.intp)
            passing.append(self._passing_with(None, state, pod, snapshot, diagnosis, asked, only))
        return np.setdiff1d(evaluated, np.concatenate([_NOWHERE, *passing]), assume_unique=True)

    def _passing_with(
        self,
        pod_class: EquivalenceClass | None,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        diagnosis: Diagnosis,
        rows: Rows,
        nominated: NominatedPods,
    ) -> Rows:
        """Return the rows that pass with the pods nominated to them; results are cached only for a class."""
        what_if = snapshot.with_nominated(nominated)
        filters = self._active(state)
        if pod_class is not None:
            cached = self._nominated_result(pod_class, state, filters, snapshot)
            cached.follow(state, pod, what_if, nominated.changes, nominated.has_pods)
            filters = filters[len(cached.plugins) :]
            rows = cached.reject(diagnosis, rows)
        if not rows.size:
            return rows
        its_state = state
        if any(self._counts_pods(plugin, state) for plugin in self._pre_filter):
            added = [(row, other) for row in rows.tolist() for other in nominated.by_row[row].values()]
            its_state = state.clone()
            self.run_add_pods(its_state, pod, added, what_if)
        return self._run(filters, its_state, pod, what_if, rows, diagnosis)

    def _nominated_result(
        self,
        pod_class: EquivalenceClass,
        state: AttemptState,
        active: Sequence[FilterAdapter],
        snapshot: Snapshot,
    ) -> CachedFilterResult:
        result = pod_class.nominated_result.get(state.skipped_filters)
        if result is None:
            own = takewhile(
                lambda each: (
                    each.plugin.name in pod_class.signatures and not self._counts_pods(each.plugin, state)
                ),
                active,
            )
            versions = pod_class.versions
            result = pod_class.nominated_result[state.skipped_filters] = CachedFilterResult(
                self._call,
                [
                    (
                        adapter,
                        CachedOutcomes(versions.get(adapter.plugin.name, 0))
                        if adapter.plugin.reads_pods
                        else self._cache_for(pod_class, adapter, snapshot),
                    )
                    for adapter in own
                ],
            )
        return result

    def _counts_pods(self, plugin: Plugin, state: AttemptState) -> bool:
        """Return whether the state of a plugin depends on the pods of nodes."""
        return plugin.name in self._counting and plugin.name not in state.skipped_filters

    def _keeps_apart(self, state: AttemptState, pod: PodInfo) -> bool:
        """Return whether each active plugin evaluates a row by the row's own pods, also if pods are added to several rows."""
        plugins = [*self._pre_filter, *(each.plugin for each in self._filter)]
        return keeps_rows_apart(plugins, pod, state.skipped_filters, self._call.signature)

    def depends_on_nodes_only(self, state: AttemptState, pod: PodInfo) -> bool:
        """Return whether the results of pods of a class depend only on one node at a time, until it changes."""
        pod_class = state.pod_class
        return (
            pod_class is not None
            and pod_class.pre_filter is not None
            and all(each.plugin.name in pod_class.signatures for each in self._active(state))
            and self._keeps_apart(state, pod)
        )

    def apart(self, state: AttemptState, pod: PodInfo, rows: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the groups of rows that may be evaluated together when pods are added or removed.

        All rows form one group if each active plugin evaluates a row by its own pods; otherwise each row is a group.
        """
        if not rows or self._keeps_apart(state, pod):
            return [rows] if rows else []
        return [[row] for row in rows]

    def run_add_pods(
        self, state: AttemptState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Add pods to the state of PreFilter, as if they were on these rows.

        Raises:
            PluginError: a plugin raised.
        """
        self._tell_of_pods(ExtensionCall.ADD_POD, "add_pods", state, pod, added, snapshot)

    def run_remove_pods(
        self, state: AttemptState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Remove pods from the state of PreFilter.

        Raises:
            PluginError: a plugin raised.
        """
        self._tell_of_pods(ExtensionCall.REMOVE_POD, "remove_pods", state, pod, removed, snapshot)

    def _tell_of_pods(
        self,
        call: ExtensionCall,
        method: str,
        state: AttemptState,
        pod: PodInfo,
        pods: Sequence[tuple[int, PodInfo]],
        snapshot: Snapshot,
    ) -> None:
        for plugin in self._pre_filter:
            if plugin.name in state.skipped_filters:
                continue
            status = self._call.status(
                plugin,
                call,
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
        self, state: AttemptState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Run PostFilter plugins until one succeeds or fails; the reasons of all called plugins are joined."""
        with PointTiming(self._call, ExtensionPoint.POST_FILTER) as timing:
            plugins = self._post_filter
            if pod.pod.spec.node_name:
                plugins = called_for(pod, plugins)
            result = await _ask_post_filters(self._call, plugins, state, pod, snapshot, diagnosis)
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
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (Reason(reason, EXCLUDED_BY_PRE_FILTER),))
