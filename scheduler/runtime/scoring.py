"""PreScore, Score and normalisation: which of the feasible nodes is best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.interface import MAX_NODE_SCORE, ScorePlugin
from scheduler.framework.points import ExtensionPoint
from scheduler.framework.status import Code
from scheduler.runtime.answers import checked_scores, signature_of
from scheduler.runtime.calls import SKIPS, PluginError
from scheduler.runtime.equivalence import KeptVerdicts, is_kept
from scheduler.runtime.per_node import score_nodes
from scheduler.runtime.points import overrides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import PreScorePlugin
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.calls import PluginCalls
    from scheduler.snapshot import Int64s, Rows, Snapshot


@dataclass(frozen=True, slots=True)
class Scores:
    """How feasible nodes were ranked.

    Attributes:
        rows: the feasible rows, ascending.
        by_plugin: plugin -> int64 (len(rows),), normalised and weighted; plugins that skipped are absent.
        total: int64 (len(rows),), the sums; 1 each where no plugin scores.
    """

    rows: Rows
    by_plugin: Mapping[str, Int64s]
    total: Int64s

    def with_others(self, others: Mapping[str, Int64s]) -> Scores:
        """Return these with what others than plugins say, weighted already, (len(rows),) each."""
        if not others:
            return self
        return Scores(self.rows, {**self.by_plugin, **others}, sum(others.values(), self.total))


class Scoring:
    """Runs the scoring points of one profile.

    Args:
        weights: plugin -> what its scores are multiplied with.
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
        self._score = scorers
        self._weights = weights
        self._kept = {plugin.name: KeptVerdicts() for plugin in scorers if is_kept(plugin)}

    @property
    def has_scorers(self) -> bool:
        return bool(self._score)

    def forget_kept_verdicts(self) -> None:
        """Drop what is kept per signature."""
        for kept in self._kept.values():
            kept.forget()

    def run(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Scores:
        """Rank the feasible nodes, of which there is at least one.

        Raises:
            PluginError: a plugin raised, or gave scores out of range or of another shape.

        Source:
            kube-scheduler v1.36, schedule_one.go, prioritizeNodes, and framework/runtime/framework.go, RunScorePlugins.
        """
        if not self._score:
            return Scores(feasible, {}, np.ones(len(feasible), dtype=np.int64))
        with self._call.point(ExtensionPoint.PRE_SCORE):
            self._pre_score_all(state, pod, snapshot, feasible)
        with self._call.point(ExtensionPoint.SCORE):
            return self._score_all(state, pod, snapshot, feasible)

    def _pre_score_all(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> None:
        skipped: set[str] = set()
        for plugin in self._pre_score:
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
        state.skipped_scores = frozenset(skipped)

    def _score_all(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Scores:
        total = np.zeros(len(feasible), dtype=np.int64)
        by_plugin: dict[str, Int64s] = {}
        for plugin in self._score:
            if plugin.name in state.skipped_scores:
                continue
            scores = self._call.raising(
                plugin, ExtensionPoint.SCORE, self._normalized, plugin, state, pod, snapshot, feasible
            )
            weighted = scores * self._weights.get(plugin.name, 1)
            by_plugin[plugin.name] = weighted
            total += weighted
        return Scores(feasible, by_plugin, total)

    def _normalized(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows
    ) -> Int64s:
        scores = self._raw(plugin, state, pod, snapshot, feasible)
        if overrides(plugin, ScorePlugin, "normalize"):
            scores = checked_scores(
                plugin.normalize(state, pod, scores, feasible), snapshot.n_nodes, "normalize"
            )
        ranked: Int64s = scores[feasible]
        for wrong in (int(ranked.min()), int(ranked.max())):
            if not 0 <= wrong <= MAX_NODE_SCORE:
                node = snapshot.name_of(int(feasible[np.flatnonzero(ranked == wrong)[0]]))
                raise ValueError(
                    f'invalid score {wrong} for node "{node}", '
                    f"it should be in the range of [0, {MAX_NODE_SCORE}] after normalizing"
                )
        return ranked

    def _raw(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows
    ) -> Int64s:
        def ask(nodes: Snapshot, rows: Rows) -> Int64s:
            if overrides(plugin, ScorePlugin, "score"):
                with self._call.evaluation(plugin, ExtensionPoint.SCORE, nodes=None):
                    return checked_scores(plugin.score(state, pod, nodes, rows), nodes.n_nodes, "score")
            with self._call.evaluation(plugin, ExtensionPoint.SCORE, nodes=len(rows)) as told:
                scores, told.nodes = score_nodes(plugin, state, pod, nodes, rows)
                return scores

        kept = self._kept.get(plugin.name)
        signature = None if kept is None else signature_of(plugin, pod)
        if kept is None or signature is None:
            return ask(snapshot, feasible)
        return kept.scores(
            signature, plugin.version(), snapshot, feasible, lambda some: ask(some, some.all_rows)
        )
