"""PreScore, Score and normalization: scores the feasible nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.runtime.adapters import ScoreAdapter
from scheduler.engine.runtime.cached_scores import (
    CachedScores,
    PluginScores,
    Scores,
    added_up,
    best_of,
    cached_normalized,
    normalized,
    preferred_of,
    score_unknown_rows,
)
from scheduler.engine.runtime.cached_verdicts import (
    CacheBySignature,
    CachedPluginScores,
    CachedRawScores,
    gives_signatures,
)
from scheduler.engine.runtime.calls import SKIPS, PluginError, PointTiming
from scheduler.engine.runtime.equivalence_classes import Prepared
from scheduler.framework.interface import ExtensionPoint
from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.engine.runtime.cached_scores import UInt8s
    from scheduler.engine.runtime.cached_verdicts import CachedFilterResult, CachedVerdicts
    from scheduler.engine.runtime.calls import PluginCalls
    from scheduler.engine.runtime.equivalence_classes import AttemptState, EquivalenceClass
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import PreScorePlugin, ScorePlugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Rows, Snapshot

__all__ = ["PluginScores", "Scores", "Scoring"]


class Scoring:
    """Runs the scoring points of one profile.

    Args:
        weights: name of a Score plugin -> its weight.

    Attributes:
        has_scorers: whether the profile has Score plugins.
    """

    def __init__(
        self,
        calls: PluginCalls,
        pre_score: Sequence[PreScorePlugin],
        scorers: Sequence[ScorePlugin],
        weights: Mapping[str, int],
    ) -> None:
        self._call = calls
        self._pre_score = pre_score
        self._score = [ScoreAdapter(plugin, calls) for plugin in scorers]
        self.has_scorers = bool(scorers)
        self._weights = {plugin.name: weights.get(plugin.name, 1) for plugin in scorers}
        self._caches: Mapping[str, CacheBySignature[CachedVerdicts]] = {
            adapter.plugin.name: CacheBySignature(
                CachedRawScores if adapter.normalizes else CachedPluginScores
            )
            for adapter in self._score
            if gives_signatures(adapter.plugin)
        }

    def forget_cached_verdicts(self) -> None:
        """Drop the cached results of all signatures."""
        for cached in self._caches.values():
            cached.forget()

    def run(
        self,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: Rows,
        preferred: Bools | None = None,
    ) -> Scores:
        """Score the feasible nodes; there must be at least one.

        `preferred` is bool (n_nodes,): the best nodes are the best of these, if any of these is feasible.

        Raises:
            PluginError: a plugin raised, or returned scores out of range or with an invalid shape.

        Source:
            kube-scheduler v1.36, schedule_one.go, prioritizeNodes, and framework/runtime/framework.go, RunScorePlugins.
        """
        if not self._score:
            return Scores(feasible, preferred_of(feasible, preferred), base=1)
        pod_class, filter_result = state.pod_class, state.filter_result
        with PointTiming(self._call, ExtensionPoint.PRE_SCORE):
            self._run_pre_score(pod_class if filter_result else None, state, pod, snapshot, feasible)
        with PointTiming(self._call, ExtensionPoint.SCORE):
            if pod_class is None or filter_result is None:
                return self._rank_uncached(state, pod, snapshot, feasible, preferred)
            return self._rank(pod_class, filter_result, state, pod, snapshot, feasible, preferred)

    def _run_pre_score(
        self,
        pod_class: EquivalenceClass | None,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: Rows,
    ) -> None:
        if pod_class is None:
            state.skipped_scores = self._pre_score_all(self._pre_score, state, pod, snapshot, feasible)
            return
        if pod_class.pre_score is None:
            own = [plugin for plugin in self._pre_score if plugin.name in pod_class.signatures]
            assert pod_class.pre_filter is not None, "PreFilter saves the class in the state"
            prepared = pod_class.new_state()
            prepared.take_over(pod_class.pre_filter.state)
            skipped = self._pre_score_all(own, prepared, pod, snapshot, feasible)
            pod_class.pre_score = Prepared(
                prepared, {}, skipped, [each for each in self._pre_score if each not in own]
            )
        state.take_over(pod_class.pre_score.state)
        others = self._pre_score_all(pod_class.pre_score.others, state, pod, snapshot, feasible)
        state.skipped_scores = pod_class.pre_score.skipped | others

    def _pre_score_all(
        self,
        plugins: Iterable[PreScorePlugin],
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: Rows,
    ) -> frozenset[str]:
        skipped: set[str] = set()
        for plugin in plugins:
            status = self._call.status(
                plugin,
                ExtensionPoint.PRE_SCORE,
                plugin.pre_score,
                state,
                pod,
                snapshot,
                feasible,
                allows=SKIPS,
            )
            if status.code is Code.SKIP:
                skipped.add(plugin.name)
            elif not status.is_success:
                raise PluginError(status)
        return frozenset(skipped)

    def _rank_uncached(
        self,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: Rows,
        preferred: Bools | None,
    ) -> Scores:
        all_scores = [
            self._scores(adapter, state, pod, snapshot, feasible)
            for adapter in self._score
            if adapter.plugin.name not in state.skipped_scores
        ]
        differing = [each for each in all_scores if not isinstance(each.values, int)]
        total = added_up(differing, np.zeros(snapshot.n_nodes, dtype=np.int8), 0)
        return Scores(feasible, best_of(feasible, total, preferred), all_scores)

    def _rank(
        self,
        pod_class: EquivalenceClass,
        filter_result: CachedFilterResult,
        state: AttemptState,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: Rows,
        preferred: Bools | None,
    ) -> Scores:
        ranking = pod_class.rankings.get(state.skipped_filters)
        if ranking is None:
            ranking = pod_class.rankings[state.skipped_filters] = CachedScores(
                self._call,
                [
                    (
                        adapter,
                        self._weights[adapter.plugin.name],
                        self._cache_for(pod_class, adapter, snapshot),
                    )
                    for adapter in self._score
                    if adapter.plugin.name in pod_class.signatures
                    and adapter.plugin.name not in state.skipped_scores
                ],
            )
        ranking.follow(state, pod, snapshot, filter_result, feasible)
        others = [
            self._scores(adapter, state, pod, snapshot, feasible)
            for adapter in self._score
            if adapter.plugin.name not in pod_class.signatures
            and adapter.plugin.name not in state.skipped_scores
        ]
        best, all_scores = ranking.scores(filter_result, feasible, others, preferred)
        by_plugin = {each.plugin: each for each in all_scores}
        return Scores(feasible, best, [by_plugin[name] for name in self._weights if name in by_plugin])

    def _cache_for(
        self, pod_class: EquivalenceClass, adapter: ScoreAdapter, snapshot: Snapshot
    ) -> CachedVerdicts:
        name = adapter.plugin.name
        version = pod_class.versions.get(name, 0)
        return self._caches[name].keep(pod_class.signatures[name], version, snapshot.n_nodes)

    def _scores(
        self, adapter: ScoreAdapter, state: AttemptState, pod: PodInfo, snapshot: Snapshot, feasible: Rows
    ) -> PluginScores:
        plugin = adapter.plugin
        values = self._call.raising(
            plugin, ExtensionPoint.SCORE, self._in_range, adapter, state, pod, snapshot, feasible
        )
        return PluginScores(plugin.name, self._weights[plugin.name], values)

    def _in_range(
        self, adapter: ScoreAdapter, state: AttemptState, pod: PodInfo, snapshot: Snapshot, feasible: Rows
    ) -> UInt8s | int:
        plugin = adapter.plugin
        cache = self._caches.get(plugin.name)
        changes = snapshot.changes if plugin.reads_pods else snapshot.node_changes
        signature = None if cache is None or changes is None else state.signature(plugin, pod)
        cached = (
            None
            if cache is None or signature is None
            else cache.of(signature, plugin.version(), snapshot.n_nodes)
        )
        if cached is None:
            raw = adapter.across(state, pod, snapshot, feasible)
            return normalized(adapter, state, pod, snapshot, raw, feasible)
        cached.follow(changes, snapshot.n_nodes)
        score_unknown_rows(adapter, cached, state, pod, snapshot, feasible)
        if isinstance(cached, CachedRawScores):
            return cached_normalized(adapter, cached.normalized, state, pod, snapshot, feasible)
        values: UInt8s = cached.shown()
        return values
