"""The scores of one decision, and cached total scores for pods of one equivalence class."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.engine.runtime.adapters import FEW_ROWS, are_most
from scheduler.engine.runtime.cached_verdicts import CachedNormalizedScores, CachedRawScores, resized
from scheduler.engine.runtime.calls import NormalizeError, ScoreError, checked_scores
from scheduler.framework.diagnosis import FEASIBLE
from scheduler.framework.interface import MAX_NODE_SCORE, ExtensionPoint
from scheduler.snapshot.arrays import put_where, selected

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from scheduler.engine.runtime.adapters import ScoreAdapter
    from scheduler.engine.runtime.cached_verdicts import CachedFilterResult, CachedVerdicts
    from scheduler.engine.runtime.calls import PluginCalls
    from scheduler.framework.cycle_state import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot

    UInt8s = NDArray[np.uint8]
    _Best = tuple[Rows, int, Bools | None]

_UNRANKED = -1
_MOST = 2
"""All feasible rows are ranked if at least one of this number is to be ranked."""


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
        best: the rows with the highest total, of the preferred ones if any of these is feasible.
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

    def with_others(self, others: Mapping[str, Int64s], preferred: Bools | None = None) -> Scores:
        """Return these scores with the weighted scores of extenders, (len(rows),) each; `preferred` is as in `best_of`."""
        if not others:
            return self
        total = np.zeros(1 + int(self.rows[-1]), dtype=np.int64)
        total[self.rows] = sum(others.values(), self.total)
        best = best_of(self.rows, total, preferred)
        return Scores(self.rows, best, self.plugins, others, self.base)

    @property
    def nbytes(self) -> int:
        """The approximate memory of the arrays, in bytes."""
        of_plugins = sum(each.values.nbytes for each in self.plugins if not isinstance(each.values, int))
        of_others = sum(array.nbytes for array in self.others.values())
        return int(self.rows.nbytes + self.best.nbytes + of_plugins + of_others)


def _type_of_totals(weight: int) -> np.dtype[Any]:
    """Return the smallest type of total scores of plugins with this total weight, and of _UNRANKED."""
    return np.min_scalar_type(-max(1, MAX_NODE_SCORE * weight))


def added_up(plugins: Sequence[PluginScores], before: NDArray[Any], weight: int) -> NDArray[Any]:
    """Add the weighted scores of plugins whose scores differ to earlier totals, (n_nodes,).

    All nodes are added up, because to select the feasible ones of each plugin takes longer.

    Args:
        plugins: the scores.
        before: the earlier totals.
        weight: the total weight of the plugins in the earlier totals.
    """
    total = before.astype(_type_of_totals(weight + sum(each.weight for each in plugins)))
    for each in plugins:
        total += np.multiply(each.values, each.weight, dtype=total.dtype)
    return total


def preferred_of(rows: Rows, preferred: Bools | None) -> Rows:
    """Return the preferred ones of some rows, or all if none is; `preferred` is (n_nodes,), None for no preference."""
    if preferred is None:
        return rows
    found = selected(rows, preferred if len(rows) == len(preferred) else preferred[rows])
    return found if found.size else rows


def best_of(rows: Rows, total: NDArray[Any], preferred: Bools | None = None) -> Rows:
    """Return those of the preferred rows that have the highest total; `total` is (n_nodes,). See `preferred_of`."""
    if preferred is not None:
        rows = preferred_of(rows, preferred)
    if len(rows) == len(total):
        return np.flatnonzero(total == total.max())
    at_rows = total.take(rows)
    return selected(rows, at_rows == at_rows.max())


def score_unknown_rows(
    adapter: ScoreAdapter,
    cached: CachedVerdicts,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
    among: Bools | None = None,
) -> None:
    """Call a Score plugin for the rows that are not known; `among` is as of `CachedVerdicts.unknown`.

    Raises:
        ScoreError: a score of a plugin without `normalize` is out of range.
    """
    unknown = cached.unknown(rows, among)
    if unknown.size:
        # To select the scores of most nodes and to store them takes longer than to store all.
        everywhere = among if unknown is rows and are_most(rows, snapshot) else None
        ask = adapter.each if everywhere is None else adapter.across
        scores = ask(state, pod, snapshot, unknown)
        if not adapter.normalizes:
            check_range(scores, unknown, snapshot)
        if everywhere is None:
            cached.note(unknown, scores)
        else:
            cached.note_across(everywhere, scores)


def normalized(
    adapter: ScoreAdapter, state: CycleState, pod: PodInfo, snapshot: Snapshot, raw: Int64s | int, rows: Rows
) -> UInt8s | int:
    """Normalize raw scores: uint8 (n_nodes,), valid at rows, or one number for all rows.

    Raises:
        NormalizeError: the plugin raised or returned an invalid value.
        ScoreError: a normalized score is out of range.
    """
    if adapter.normalizes:
        scores = np.full(snapshot.n_nodes, raw, dtype=np.int64) if isinstance(raw, int) else raw
        try:
            found = adapter.plugin.normalize(state, pod, scores, rows)
            raw = checked_scores(found, snapshot.n_nodes, "normalize")
        except Exception as error:
            raise NormalizeError(error) from error
    check_range(raw, rows, snapshot)
    return raw if isinstance(raw, int) else raw.astype(np.uint8)


def check_range(scores: Int64s | int, rows: Rows, snapshot: Snapshot) -> None:
    """Check that scores are from 0 to 100 at rows.

    Args:
        scores: (len(rows),), or (n_nodes,) and valid at rows, or one number for all rows.
        rows: the rows.
        snapshot: the cluster.

    Raises:
        ScoreError: a score is out of range.
    """
    if isinstance(scores, int):
        if not 0 <= scores <= MAX_NODE_SCORE:
            raise ScoreError(snapshot.name_of(int(rows[0])), scores)
    elif scores.view(np.uint64).max(initial=0) > MAX_NODE_SCORE:
        # One pass: negative numbers are very large as unsigned ones. The score may be that of a node outside `rows`.
        at_rows = scores if len(scores) == len(rows) else scores[rows]
        wrong = np.flatnonzero((at_rows < 0) | (at_rows > MAX_NODE_SCORE))
        if wrong.size:
            raise ScoreError(snapshot.name_of(int(rows[wrong[0]])), int(at_rows[wrong[0]]))


def cached_normalized(
    adapter: ScoreAdapter,
    cached: CachedNormalizedScores,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
) -> UInt8s | int:
    """Return the normalized scores of rows; normalize them only if something changed since the last call.

    Classes of pods with one signature share them, if they have the same feasible rows.
    """
    if not cached.hold_at(rows):
        last = cached.raw.normalized if isinstance(cached.raw, CachedRawScores) else cached
        if not last.hold_at(rows):
            last.note(rows, normalized(adapter, state, pod, snapshot, cached.raw.values.copy(), rows))
        cached.take_over(last, rows)
    return cached.values


class _PluginPart:
    """The scores of one plugin for pods of one class.

    Attributes:
        adapter: the adapter of the plugin.
        weight: the weight of its scores.
        cached: its scores, before normalization.
        normalized: the normalized scores of the feasible nodes of this class, if the plugin normalizes.
    """

    def __init__(self, adapter: ScoreAdapter, weight: int, cached: CachedVerdicts) -> None:
        self.adapter = adapter
        self.weight = weight
        self.cached = cached
        self.normalized = CachedNormalizedScores(cached)

    def rank_all(
        self, rows: Rows, among: Bools | None, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> NDArray[Any]:
        """Return the scores of rows, (len(rows),), or (n_nodes,) if `among` says where these are, before normalization."""
        score_unknown_rows(self.adapter, self.cached, state, pod, snapshot, rows, among)
        return self.cached.values if among is not None else self.cached.values[rows]

    def ask(self, row: int, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        """Call the plugin for one row."""
        score = self.adapter.at(state, pod, snapshot, row)
        if not (self.adapter.normalizes or 0 <= score <= MAX_NODE_SCORE):
            raise ScoreError(snapshot.name_of(row), score)
        self.cached.note_one(row, score)

    def shown(self) -> PluginScores:
        """Return the current scores."""
        values = self.normalized.values if self.adapter.normalizes else self.cached.shown()
        return PluginScores(self.adapter.plugin.name, self.weight, values)


class CachedScores:
    """The weighted total scores of the feasible nodes of a class of pods.

    The cached sums contain the plugins without `normalize`. Other scores are added if they differ between nodes.
    """

    def __init__(
        self, calls: PluginCalls, scorers: Sequence[tuple[ScoreAdapter, int, CachedVerdicts]]
    ) -> None:
        self._call = calls
        parts = [_PluginPart(*scorer) for scorer in scorers]
        self._plain = [part for part in parts if not part.adapter.normalizes]
        self._normalizing = [part for part in parts if part.adapter.normalizes]
        self._parts = parts
        # _UNRANKED if the total is not known or the node is rejected. One pass over all nodes follows each change, so
        # the type is the smallest one that has room for the highest total.
        self._plain_weight = sum(part.weight for part in self._plain)
        self._total: NDArray[Any] = np.zeros(0, dtype=_type_of_totals(self._plain_weight))
        # Feasible rows that may have no total; None if they are not tracked.
        self._left: set[int] | None = None
        # The best feasible rows, their total, and the preferred rows, bool (n_nodes,), if only these were compared. None if
        # the best rows are not known.
        self._best: _Best | None = None

    def follow(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        filter_result: CachedFilterResult,
        rows: Rows,
    ) -> None:
        """Score the changed rows again.

        Args:
            state: the state of the pod, with the data of PreScore.
            pod: any pod of the class.
            snapshot: the cluster.
            filter_result: the filter results.
            rows: all feasible nodes, or some of them.

        Raises:
            PluginError: a plugin raised or returned scores out of range; the next call scores the missing rows.
        """
        for part in self._parts:
            part.cached.follow(
                snapshot.changes if part.adapter.plugin.reads_pods else snapshot.node_changes,
                snapshot.n_nodes,
            )
        if len(self._total) != snapshot.n_nodes:
            self._total, self._best = resized(self._total, snapshot.n_nodes), None
        missing, are_all = self._missing(filter_result, rows)
        if len(missing) > FEW_ROWS:
            among = filter_result.rejected_by == FEASIBLE if missing is filter_result.feasible else None
            self._rank_all(np.asarray(missing), among, state, pod, snapshot)
        else:
            for row in missing:
                self._rank(int(row), state, pod, snapshot)
        if are_all:
            self._best = None if self._left is None else self._best_after(self._left)
            self._left = set()
        for part in self._normalizing:
            if not part.normalized.hold_at(rows):
                self._call.raising(
                    part.adapter.plugin,
                    ExtensionPoint.SCORE,
                    cached_normalized,
                    part.adapter,
                    part.normalized,
                    state,
                    pod,
                    snapshot,
                    rows,
                )

    def _missing(self, filter_result: CachedFilterResult, rows: Rows) -> tuple[Rows | Sequence[int], bool]:
        """Return the rows to rank, and whether all feasible rows have a total then."""
        changed, filter_result.unranked = filter_result.unranked, set()
        n_nodes, feasible = len(self._total), filter_result.feasible
        if changed is None or (self._left is not None and len(self._left) > n_nodes):
            self._left = None
        if changed is None:
            self._total[:] = _UNRANKED
            # If `rows` are most of them, all are ranked, so that later only those that changed have to be found.
            ranked = feasible if _MOST * len(rows) >= len(feasible) else rows
            return ranked, ranked is feasible
        for row in changed:
            if row < n_nodes:  # else the node was removed
                self._total[row] = _UNRANKED
        if self._left is not None:
            self._left |= changed
            if rows is feasible or len(self._left) <= FEW_ROWS:
                left = [
                    row for row in self._left if row < n_nodes and filter_result.rejected_by[row] == FEASIBLE
                ]
                return left, True
        return selected(rows, self._total[rows] == _UNRANKED), rows is feasible

    def _best_after(self, changed: Collection[int]) -> _Best | None:
        """Return the best rows after a change of some rows, which were ranked again; None if it needs all rows."""
        if self._best is None or len(changed) > FEW_ROWS:
            return None
        rows, highest, preferred = self._best
        totals = {
            row: int(self._total[row])
            for row in changed
            if row < len(self._total) and (preferred is None or preferred[row])
        }
        top = max(totals.values(), default=_UNRANKED)
        if top > highest:
            best = np.array(sorted(row for row, total in totals.items() if total == top), dtype=np.intp)
            return best, top, preferred
        for row, total in totals.items():
            place = int(rows.searchsorted(row))
            was_best = place < len(rows) and rows[place] == row
            if was_best and total < highest:
                rows = np.concatenate((rows[:place], rows[place + 1 :]))
            elif total == highest and not was_best:
                rows = np.concatenate((rows[:place], np.array([row], dtype=np.intp), rows[place:]))
        return (rows, highest, preferred) if rows.size else None

    def _rank_all(
        self, rows: Rows, among: Bools | None, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> None:
        """Rank rows; `among`, (n_nodes,), is where these are, if these are all feasible rows."""
        total = np.zeros(len(rows) if among is None else snapshot.n_nodes, dtype=self._total.dtype)
        for part in self._parts:
            plugin = part.adapter.plugin
            scores = self._call.raising(
                plugin, ExtensionPoint.SCORE, part.rank_all, rows, among, state, pod, snapshot
            )
            if not part.adapter.normalizes:  # which happens later
                total += np.multiply(scores, part.weight, dtype=total.dtype)
        if among is None:
            self._total[rows] = total
        else:
            put_where(total, ~among, _UNRANKED)
            self._total = total

    def _rank(self, row: int, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        total = 0
        for part in self._parts:
            adapter, cached = part.adapter, part.cached
            if cached.misses and not cached.known[row]:
                self._call.raising(adapter.plugin, ExtensionPoint.SCORE, part.ask, row, state, pod, snapshot)
            if not adapter.normalizes:
                total += int(cached.values[row]) * part.weight
        self._total[row] = total

    def scores(
        self,
        filter_result: CachedFilterResult,
        rows: Rows,
        more: Sequence[PluginScores],
        preferred: Bools | None = None,
    ) -> tuple[Rows, Sequence[PluginScores]]:
        """Return the best of the rows passed to `follow`, and the scores of all plugins including `more`.

        `preferred` is as in `best_of`.
        """
        extra = [*(part.shown() for part in self._normalizing), *more]
        shown = [part.shown() for part in self._plain]
        differing = [each for each in extra if not isinstance(each.values, int)]
        if differing:
            best = best_of(rows, added_up(differing, self._total, self._plain_weight), preferred)
        elif rows is filter_result.feasible:
            if self._best is None or self._best[2] is not preferred:
                if preferred is None:  # the total of other rows is lower
                    best = np.flatnonzero(self._total == self._total.max())
                else:
                    best = best_of(rows, self._total, preferred)
                    preferred = preferred if preferred[best[0]] else None
                self._best = best, int(self._total[best[0]]), preferred
            best = self._best[0]
        else:
            best = best_of(rows, self._total, preferred)
        return best, (*shown, *extra)
