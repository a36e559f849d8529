"""PreScore, Score and normalization: scores the feasible nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.points import ExtensionPoint
from scheduler.framework.status import Code
from scheduler.runtime.asking import AskScorer
from scheduler.runtime.calls import SKIPS, PluginError
from scheduler.runtime.equivalence_classes import Prepared, class_of, signature_in, standing_of
from scheduler.runtime.kept_verdicts import KeptBySignature, KeptRawScores, KeptScores, gives_signatures
from scheduler.runtime.ranking import PluginScores, Ranking, Scores, ask_scores, kept_normalized, normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import PreScorePlugin, ScorePlugin
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.calls import PluginCalls
    from scheduler.runtime.equivalence_classes import EquivalenceClass
    from scheduler.runtime.kept_verdicts import KeptVerdicts
    from scheduler.runtime.ranking import UInt8s
    from scheduler.runtime.standing import Standing
    from scheduler.snapshot import Rows, Snapshot

__all__ = ["PluginScores", "Scores", "Scoring"]


class Scoring:
    """Runs the scoring points of one profile.

    Args:
        weights: name of a Score plugin -> its weight.
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
        self._score = [AskScorer(plugin, calls) for plugin in scorers]
        self._weights = weights
        self._places = {plugin.name: place for place, plugin in enumerate(scorers)}
        self._kept: Mapping[str, KeptBySignature[KeptVerdicts]] = {
            asking.plugin.name: KeptBySignature(KeptRawScores if asking.normalizes else KeptScores)
            for asking in self._score
            if gives_signatures(asking.plugin)
        }

    @property
    def has_scorers(self) -> bool:
        return bool(self._score)

    def forget_kept_verdicts(self) -> None:
        """Drop the cached results of all signatures."""
        for kept in self._kept.values():
            kept.forget()

    def run(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Scores:
        """Score the feasible nodes; there must be at least one.

        Raises:
            PluginError: a plugin raised, or returned scores out of range or with an invalid shape.

        Source:
            kube-scheduler v1.36, schedule_one.go, prioritizeNodes, and framework/runtime/framework.go, RunScorePlugins.
        """
        if not self._score:
            return Scores(feasible, feasible, base=1)
        alike, standing = class_of(state), standing_of(state)
        with self._call.point(ExtensionPoint.PRE_SCORE):
            self._run_pre_score(alike if standing else None, state, pod, snapshot, feasible)
        with self._call.point(ExtensionPoint.SCORE):
            if alike is None or standing is None:
                return self._rank_anew(state, pod, snapshot, feasible)
            return self._rank(alike, standing, state, pod, snapshot, feasible)

    def _run_pre_score(
        self,
        alike: EquivalenceClass | None,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: Rows,
    ) -> None:
        if alike is None:
            state.skipped_scores = self._pre_score_all(self._pre_score, state, pod, snapshot, feasible)
            return
        if alike.pre_score is None:
            own = [plugin for plugin in self._pre_score if plugin.name in alike.signatures]
            assert alike.pre_filter is not None, "PreFilter saves the class in the state"
            prepared = alike.new_state()
            prepared.take_over(alike.pre_filter.state)
            skipped = self._pre_score_all(own, prepared, pod, snapshot, feasible)
            alike.pre_score = Prepared(
                prepared, {}, skipped, [each for each in self._pre_score if each not in own]
            )
        state.take_over(alike.pre_score.state)
        others = self._pre_score_all(alike.pre_score.others, state, pod, snapshot, feasible)
        state.skipped_scores = alike.pre_score.skipped | others

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

    def _rank_anew(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Scores:
        total = np.zeros(len(feasible), dtype=np.int64)
        said = []
        for asking in self._score:
            if asking.plugin.name not in state.skipped_scores:
                said.append(self._scores(asking, state, pod, snapshot, feasible))
                total += said[-1].weighted(feasible)
        return Scores(feasible, feasible[total == total.max()], said)

    def _rank(
        self,
        alike: EquivalenceClass,
        standing: Standing,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: Rows,
    ) -> Scores:
        ranking = alike.rankings.get(state.skipped_filters)
        if ranking is None:
            ranking = alike.rankings[state.skipped_filters] = Ranking(
                self._call,
                [
                    (asking, self._weight(asking), self._kept_by(alike, asking))
                    for asking in self._score
                    if asking.plugin.name in alike.signatures
                    and asking.plugin.name not in state.skipped_scores
                ],
            )
        ranking.follow(state, pod, snapshot, standing, feasible)
        others = [
            self._scores(asking, state, pod, snapshot, feasible)
            for asking in self._score
            if asking.plugin.name not in alike.signatures and asking.plugin.name not in state.skipped_scores
        ]
        best, said = ranking.scores(standing, feasible, others)
        return Scores(feasible, best, sorted(said, key=lambda each: self._places[each.plugin]))

    def _kept_by(self, alike: EquivalenceClass, asking: AskScorer) -> KeptVerdicts:
        name = asking.plugin.name
        return self._kept[name].keep(alike.signatures[name], alike.versions.get(name, 0))

    def _weight(self, asking: AskScorer) -> int:
        return self._weights.get(asking.plugin.name, 1)

    def _scores(
        self, asking: AskScorer, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows
    ) -> PluginScores:
        def ask() -> PluginScores:
            values = self._in_range(asking, state, pod, snapshot, feasible)
            return PluginScores(asking.plugin.name, self._weight(asking), values)

        return self._call.raising(asking.plugin, ExtensionPoint.SCORE, ask)

    def _in_range(
        self, asking: AskScorer, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows
    ) -> UInt8s | int:
        plugin = asking.plugin
        kept_by = self._kept.get(plugin.name)
        changes = snapshot.changes if plugin.reads_pods else snapshot.node_changes
        signature = None if kept_by is None or changes is None else signature_in(state, plugin, pod)
        kept = None if kept_by is None or signature is None else kept_by.of(signature, plugin.version())
        if kept is None:
            raw = asking.across(state, pod, snapshot, feasible)
            return normalized(asking, state, pod, snapshot, raw, feasible)
        kept.follow(changes, snapshot.n_nodes)
        ask_scores(asking, kept, state, pod, snapshot, feasible)
        if isinstance(kept, KeptRawScores):
            return kept_normalized(asking, kept.normalized, state, pod, snapshot, feasible)
        values: UInt8s = kept.values.copy()
        return values
