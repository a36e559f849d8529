"""The scores of one decision, and cached total scores for pods of one equivalence class."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.diagnosis import FEASIBLE
from scheduler.framework.interface import MAX_NODE_SCORE
from scheduler.framework.points import ExtensionPoint
from scheduler.runtime.answers import checked_scores
from scheduler.runtime.asking import FEW_ROWS
from scheduler.runtime.kept_verdicts import NormalizedScores, resized

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from scheduler.framework.cycle_state import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.asking import AskScorer
    from scheduler.runtime.calls import PluginCalls
    from scheduler.runtime.kept_verdicts import KeptVerdicts
    from scheduler.runtime.standing import Standing
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot

    UInt8s = NDArray[np.uint8]

_UNRANKED = -1


@dataclass(frozen=True)
class PluginScores:
    """The normalized scores of one plugin for the feasible nodes.

    Attributes:
        plugin: the name of the plugin.
        weight: the weight of its scores.
        values: uint8 (n_nodes,), 0 to 100, valid at feasible rows; or one number for all rows.
    """

    plugin: str
    weight: int
    values: UInt8s | int

    def at(self, rows: Rows) -> Int64s:
        """Return the weighted scores of rows, (len(rows),)."""
        weighted = self.weighted(rows)
        return np.full(len(rows), weighted, dtype=np.int64) if isinstance(weighted, int) else weighted

    def weighted(self, rows: Rows) -> Int64s | int:
        """Return the weighted scores of rows, or one number for all rows."""
        if isinstance(self.values, int):
            return self.values * self.weight
        values = self.values if len(rows) == len(self.values) else self.values[rows]
        return values * np.int64(self.weight)


@dataclass(frozen=True)
class Scores:
    """The scores of the feasible nodes.

    Attributes:
        rows: the feasible rows, ascending.
        best: the rows with the highest total.
        plugins: the scores of each plugin that did not skip.
        others: weighted scores of extenders, (len(rows),) each.
        base: initial score of each row: 1 if the profile has no Score plugin.
    """

    rows: Rows
    best: Rows
    plugins: Sequence[PluginScores] = ()
    others: Mapping[str, Int64s] = field(default_factory=dict)
    base: int = 0

    @cached_property
    def by_plugin(self) -> Mapping[str, Int64s]:
        """Plugin or extender -> int64 (len(rows),), normalized and weighted, without plugins that skipped."""
        return {**{each.plugin: each.at(self.rows) for each in self.plugins}, **self.others}

    @cached_property
    def total(self) -> Int64s:
        """The total scores, int64 (len(rows),)."""
        return sum(self.by_plugin.values(), np.full(len(self.rows), self.base, dtype=np.int64))

    def with_others(self, others: Mapping[str, Int64s]) -> Scores:
        """Return these scores with the weighted scores of extenders, (len(rows),) each."""
        if not others:
            return self
        total = sum(others.values(), self.total)
        return Scores(self.rows, self.rows[total == total.max()], self.plugins, others, self.base)

    @property
    def nbytes(self) -> int:
        """The approximate memory of the arrays, in bytes."""
        of_plugins = sum(each.values.nbytes for each in self.plugins if not isinstance(each.values, int))
        of_others = sum(array.nbytes for array in self.others.values())
        return int(self.rows.nbytes + self.best.nbytes + of_plugins + of_others)


def ask_scores(
    asking: AskScorer,
    kept: KeptVerdicts,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
) -> None:
    """Call a Score plugin for the rows that are not known.

    Raises:
        ValueError: scores of a plugin without `normalize` are out of range.
    """
    unknown = kept.unknown(rows)
    if unknown.size:
        scores = asking.each(state, pod, snapshot, unknown)
        if not asking.normalizes:
            check_range(scores, unknown, snapshot)
        kept.note(unknown, scores)


def normalized(
    asking: AskScorer, state: CycleState, pod: PodInfo, snapshot: Snapshot, raw: Int64s | int, rows: Rows
) -> UInt8s | int:
    """Normalize raw scores: uint8 (n_nodes,), valid at rows, or one number for all rows.

    Raises:
        ValueError: the normalized scores are out of range or have an invalid shape.
    """
    if asking.normalizes:
        scores = np.full(snapshot.n_nodes, raw, dtype=np.int64) if isinstance(raw, int) else raw
        raw = checked_scores(asking.plugin.normalize(state, pod, scores, rows), snapshot.n_nodes, "normalize")
    if isinstance(raw, int):
        if not 0 <= raw <= MAX_NODE_SCORE:
            raise out_of_range(raw, int(rows[0]), snapshot)
        return raw
    check_range(raw if len(rows) == len(raw) else raw[rows], rows, snapshot)
    return raw.astype(np.uint8)


def check_range(scores: Int64s, rows: Rows, snapshot: Snapshot) -> None:
    """Check that scores, (len(rows),), are from 0 to 100.

    Raises:
        ValueError: a score is out of range; the message names its node.
    """
    if (
        scores.view(np.uint64).max(initial=0) <= MAX_NODE_SCORE
    ):  # one pass: negative numbers are very large as unsigned ones
        return
    place = int(np.flatnonzero((scores < 0) | (scores > MAX_NODE_SCORE))[0])
    raise out_of_range(int(scores[place]), int(rows[place]), snapshot)


def out_of_range(score: int, row: int, snapshot: Snapshot) -> ValueError:
    """Return the error for a score that is not from 0 to 100."""
    return ValueError(
        f'invalid score {score} for node "{snapshot.name_of(row)}", '
        f"it should be in the range of [0, {MAX_NODE_SCORE}] after normalizing"
    )


def kept_normalized(
    asking: AskScorer,
    kept: NormalizedScores,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
) -> UInt8s | int:
    """Return the normalized scores of rows; normalize them only if something changed since the last call."""
    if not kept.hold_at(rows):
        kept.note(rows, normalized(asking, state, pod, snapshot, kept.raw.values.copy(), rows))
    return kept.values


class _Part:
    """The scores of one plugin for pods of one class.

    Attributes:
        asking: the adapter of the plugin.
        weight: the weight of its scores.
        kept: its scores, before normalization.
        normalized: the normalized scores of the feasible nodes of this class, if the plugin normalizes.
    """

    def __init__(self, asking: AskScorer, weight: int, kept: KeptVerdicts) -> None:
        self.asking = asking
        self.weight = weight
        self.kept = kept
        self.normalized = NormalizedScores(kept)

    def rank_all(self, rows: Rows, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Int64s | int:
        """Return the weighted scores of rows, (len(rows),); 0 for a plugin that normalizes, which happens later."""
        ask_scores(self.asking, self.kept, state, pod, snapshot, rows)
        return 0 if self.asking.normalizes else self.kept.values[rows] * np.int64(self.weight)

    def ask(self, row: int, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        """Call the plugin for one row."""
        score = self.asking.at(state, pod, snapshot, row)
        if not (self.asking.normalizes or 0 <= score <= MAX_NODE_SCORE):
            raise out_of_range(score, row, snapshot)
        self.kept.note_one(row, score)

    def shown(self) -> PluginScores:
        """Return the current scores."""
        values = self.normalized.values if self.asking.normalizes else self.kept.values.copy()
        return PluginScores(self.asking.plugin.name, self.weight, values)


class Ranking:
    """The weighted total scores of the feasible nodes of a class of pods.

    The cached sums contain the plugins without `normalize`. Other scores are added if they differ between nodes.
    """

    def __init__(self, calls: PluginCalls, scorers: Sequence[tuple[AskScorer, int, KeptVerdicts]]) -> None:
        self._call = calls
        parts = [_Part(*scorer) for scorer in scorers]
        self._plain = [part for part in parts if not part.asking.normalizes]
        self._normalizing = [part for part in parts if part.asking.normalizes]
        self._parts = parts
        # _UNRANKED if the total is not known or the node is rejected.
        self._total: Int64s = np.zeros(0, dtype=np.int64)
        self._known: Bools = np.zeros(0, dtype=np.bool_)
        # Feasible rows that may have no total; None if they are not tracked.
        self._left: set[int] | None = None

    def follow(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, standing: Standing, rows: Rows
    ) -> None:
        """Score the changed rows again.

        Args:
            state: the state of the pod, with the data of PreScore.
            pod: any pod of the class.
            snapshot: the cluster.
            standing: the filter results.
            rows: all feasible nodes, or some of them.

        Raises:
            PluginError: a plugin raised or returned scores out of range; the next call scores the missing rows.
        """
        for part in self._parts:
            part.kept.follow(
                snapshot.changes if part.asking.plugin.reads_pods else snapshot.node_changes, snapshot.n_nodes
            )
        if len(self._total) != snapshot.n_nodes:
            self._total, self._known = (
                resized(self._total, snapshot.n_nodes),
                resized(self._known, snapshot.n_nodes),
            )
        missing = self._missing(standing, rows)
        if len(missing) > FEW_ROWS:
            self._rank_all(np.asarray(missing), state, pod, snapshot)
        else:
            for row in missing:
                self._rank(int(row), state, pod, snapshot)
        if rows is standing.feasible:
            self._left = set()
        for part in self._normalizing:
            if not part.normalized.hold_at(rows):
                self._call.raising(
                    part.asking.plugin,
                    ExtensionPoint.SCORE,
                    kept_normalized,
                    part.asking,
                    part.normalized,
                    state,
                    pod,
                    snapshot,
                    rows,
                )

    def _missing(self, standing: Standing, rows: Rows) -> Rows | Sequence[int]:
        changed, standing.unranked = standing.unranked, set()
        n_nodes = len(self._total)
        if changed is None or (self._left is not None and len(self._left) > n_nodes):
            self._left = None
        if changed is None:
            self._known[:] = False
            self._total[:] = _UNRANKED
            return rows
        for row in changed:
            if row < n_nodes:  # else the node was removed
                self._known[row] = False
                self._total[row] = _UNRANKED
        if self._left is not None:
            self._left |= changed
            if rows is standing.feasible:
                return [row for row in self._left if row < n_nodes and standing.rejected_by[row] == FEASIBLE]
        unknown: Rows = rows[~self._known[rows]]
        return unknown

    def _rank_all(self, rows: Rows, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        total = np.zeros(len(rows), dtype=np.int64)
        for part in self._parts:
            plugin = part.asking.plugin
            total += self._call.raising(
                plugin, ExtensionPoint.SCORE, part.rank_all, rows, state, pod, snapshot
            )
        self._total[rows] = total
        self._known[rows] = True

    def _rank(self, row: int, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        total = 0
        for part in self._parts:
            asking, kept = part.asking, part.kept
            if kept.misses and not kept.known[row]:
                self._call.raising(asking.plugin, ExtensionPoint.SCORE, part.ask, row, state, pod, snapshot)
            if not asking.normalizes:
                total += int(kept.values[row]) * part.weight
        self._total[row] = total
        self._known[row] = True

    def scores(
        self, standing: Standing, rows: Rows, more: Sequence[PluginScores]
    ) -> tuple[Rows, Sequence[PluginScores]]:
        """Return the best of the rows passed to `follow`, and the scores of all plugins including `more`."""
        extra = [*(part.shown() for part in self._normalizing), *more]
        shown = [part.shown() for part in self._plain]
        differing = [each for each in extra if not isinstance(each.values, int)]
        if differing:
            total = self._total.copy() if len(rows) == len(self._total) else self._total[rows]
            for each in differing:
                total += each.weighted(rows)
            best = rows[total == total.max()]
        elif rows is standing.feasible:
            best = np.flatnonzero(self._total == self._total.max())
        else:
            total = self._total[rows]
            best = rows[total == total.max()]
        return best, (*shown, *extra)
