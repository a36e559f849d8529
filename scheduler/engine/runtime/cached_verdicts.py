"""Caches the results of one plugin for each node, and the combined filter results for pods of one class.

A result is valid until the node changes. Results of plugins that also read pods are valid until a pod is added to
the node or removed from it. The change logs of a snapshot list the changed rows.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from scheduler.engine.runtime.adapters import FEW_ROWS, sample_of
from scheduler.engine.runtime.plugin_classes import overrides
from scheduler.framework.diagnosis import FEASIBLE, PASS
from scheduler.framework.interface import ExtensionPoint, Plugin
from scheduler.framework.status import Code
from scheduler.objects.caches import BoundedDict
from scheduler.snapshot.arrays import most_kept, own, put_where, selected, shared

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from scheduler.engine.runtime.adapters import FilterAdapter
    from scheduler.engine.runtime.calls import PluginCalls
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis, Outcome, Outcomes
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Rows, Snapshot
    from scheduler.snapshot.arrays import ChangeLog

K = TypeVar("K", bound="CachedVerdicts")

_MOST_RESULTS = 128
"""Maximum number of cached classes per profile, and of cached signatures per plugin, in small clusters."""
_NODE_BYTES = 48
"""The bytes of the results of a class for one node, together with those of its signatures."""
_MOST_ASKED_ONCE = 1024
"""Maximum number of remembered hashes of signatures used once, per plugin; the oldest is dropped first."""
_PAST_OUTCOMES = 4096
"""Maximum number of outcomes in a table beyond one per node; more outcomes are obsolete, and the table is reset."""


class CachedVerdicts:
    """The results of one plugin for pods of one signature.

    Attributes:
        version: the version of the plugin's data at the time of the call.
        known: bool (n_nodes,), the rows with a valid result.
        values: (n_nodes,), the results.
        misses: the number of rows that are not known; if it is 0, all of `known` is true.
        notes: the number of updates.
    """

    dtype: DTypeLike = np.int64

    def __init__(self, version: Hashable) -> None:
        self.version = version
        self.known: Bools = np.zeros(0, dtype=np.bool_)
        self.values: NDArray[Any] = np.zeros(0, dtype=self.dtype)
        self.misses = 0
        self.notes = 0
        self._log: ChangeLog | None = None
        self._seen = 0

    def follow(self, changes: ChangeLog | None, n_nodes: int) -> None:
        """Drop the results of rows that changed since the last call."""
        assert changes is not None, "results of a hypothetical cluster are not cached"
        is_same = self._log is changes
        if is_same and self._seen == changes.end and len(self.known) == n_nodes:
            return
        rows = changes.since(self._seen) if is_same else None
        self._log, self._seen = changes, changes.end
        is_same_length = len(self.known) == n_nodes
        if not is_same_length:
            self.known = resized(self.known, n_nodes)
            self.values = resized(self.values, n_nodes)
        if rows is None:
            self.reset()
        elif len(rows) <= FEW_ROWS and is_same_length:
            for row in rows:
                if row < n_nodes and self.known[row]:
                    self.known[row] = False
                    self.misses += 1
        else:
            self.known[[row for row in rows if row < n_nodes]] = False
            self.misses = n_nodes - int(np.count_nonzero(self.known))

    def reset(self) -> None:
        """Drop all results."""
        self.known[:] = False
        self.misses = len(self.known)

    def unknown(self, rows: Rows, among: Bools | None = None) -> Rows:
        """Return the rows that the plugin must evaluate; `among`, (n_nodes,), is where the rows are, if that is known."""
        if not self.misses:
            return rows[:0]
        if self.misses == len(self.known):
            return rows
        if among is not None:
            return np.flatnonzero(among > self.known)
        known = self.known if len(rows) == len(self.known) else self.known.take(rows)
        return rows[:0] if known.all() else selected(rows, ~known)

    def shown(self) -> NDArray[Any]:
        """Return the results of all rows, which do not change later; those that are not known are not valid."""
        return shared(self.values)

    def note(self, rows: Rows, values: Any) -> None:
        """Store the results of rows that were not known."""
        self.values = own(self.values)
        self.values[rows] = values
        self.known[rows] = True
        self.misses -= len(rows)
        self.notes += 1

    def note_across(self, among: Bools, values: Any) -> None:
        """Store the results of nodes, (n_nodes,), that are valid at `among`; no result was known."""
        self.values = np.full(len(among), values, dtype=self.dtype)
        self.known = among.copy()
        self.misses -= int(np.count_nonzero(among))
        self.notes += 1

    def note_one(self, row: int, value: int) -> None:
        """Store the result of a row that was not known."""
        if self.values[row] != value:
            self.values = own(self.values)
            self.values[row] = value
        self.known[row] = True
        self.misses -= 1
        self.notes += 1


class CachedPluginScores(CachedVerdicts):
    """Scores of a plugin without `normalize`: 0 to 100."""

    dtype = np.uint8


class CachedRawScores(CachedVerdicts):
    """Scores of a plugin with `normalize`, before normalization.

    Attributes:
        normalized: the normalized scores for pods without a cached class.
    """

    def __init__(self, version: Hashable) -> None:
        super().__init__(version)
        self.normalized = CachedNormalizedScores(self)


class CachedNormalizedScores:
    """The normalized scores of the last normalization.

    Attributes:
        raw: the cached scores before normalization.
        values: uint8 (n_nodes,), or one number for all normalized rows.
    """

    def __init__(self, raw: CachedVerdicts) -> None:
        self.raw = raw
        self.values: NDArray[np.uint8] | int = 0
        self._rows: Rows | None = None  # the rows of the last normalization
        self._state = (0, 0)  # `raw.notes` and the number of nodes at that time

    def hold_at(self, rows: Rows) -> bool:
        """Return whether the normalized scores of these rows are still valid."""
        before, n_nodes = self._rows, len(self.raw.values)
        if before is None or self._state != (self.raw.notes, n_nodes):
            return False
        if rows is before:
            return True
        return len(rows) == len(before) and (len(rows) == n_nodes or bool((rows == before).all()))

    def take_over(self, other: CachedNormalizedScores, rows: Rows) -> None:
        """Use the normalized scores of other pods with the same raw scores and rows."""
        self.values, self._rows, self._state = other.values, rows, other._state

    def note(self, rows: Rows, normalized: NDArray[np.uint8] | int) -> None:
        """Store the normalized scores of rows."""
        if not isinstance(normalized, int):
            at_rows = normalized if len(rows) == len(normalized) else normalized.take(rows)
            lowest = int(at_rows.min())
            normalized = lowest if lowest == at_rows.max() else normalized
        self.values, self._rows = normalized, rows
        self._state = self.raw.notes, len(self.raw.values)


class CachedOutcomes(CachedVerdicts):
    """Results of a Filter plugin: `values` are positions in a table of outcomes.

    Attributes:
        table: outcome -> its position; the first is PASS.
        refuses: whether any node may be rejected; if false, no node is rejected.
        failed: rows for which the last call of the plugin failed; they are not known.
    """

    dtype = np.uint16

    def __init__(self, version: Hashable) -> None:
        super().__init__(version)
        self.table: dict[Outcome, int] = {PASS: 0}
        self.refuses = False
        self.failed: set[int] = set()

    def make_room(self, more: int, n_nodes: int) -> None:
        """Drop all results if the table, with `more` additional outcomes, would exceed its limit."""
        if len(self.table) > 1 and len(self.table) + more > n_nodes + _PAST_OUTCOMES:
            self.reset()

    def reset(self) -> None:
        super().reset()
        self.table = {PASS: 0}
        self.refuses = False
        self.failed.clear()

    def note_outcomes(self, rows: Rows, outcomes: Outcomes) -> None:
        """Store the outcomes of rows, (len(rows),); a failure is recorded but not cached, because it is no result."""
        if self.failed:
            self.failed.difference_update(rows.tolist())
        index, table = outcomes.index, outcomes.table
        if len(table) == 1 or not index.any():
            self.note(rows, 0)
            return
        self.refuses = True
        places = np.zeros(len(table), dtype=np.uint16)
        failures = []
        for number in np.flatnonzero(np.bincount(index)).tolist():
            places[number] = self.table.setdefault(table[number], len(self.table))
            if table[number].code is Code.ERROR:
                failures.append(number)
        self.note(rows, places[index])
        if failures:
            self._fail(rows[np.isin(index, failures)].tolist())

    def note_outcome(self, row: int, outcome: Outcome) -> int:
        """Store the outcome of a row, and return its position in the table."""
        self.failed.discard(row)
        place = 0
        if outcome.code is not Code.SUCCESS:
            place = self.table.setdefault(outcome, len(self.table))
            self.refuses = True
        self.note_one(row, place)
        if outcome.code is Code.ERROR:
            self._fail([row])
        return place

    def _fail(self, rows: list[int]) -> None:
        self.known[rows] = False
        self.misses += len(rows)
        self.failed.update(rows)


class CacheBySignature(Generic[K]):
    """The cached results of one plugin at one extension point, by signature."""

    def __init__(self, make: Callable[[Hashable], K]) -> None:
        self._make = make
        self._kept: OrderedDict[Hashable, K] = OrderedDict()
        # A hash collision only caches a signature one call too early.
        self._asked_once: BoundedDict[int, None] = BoundedDict(_MOST_ASKED_ONCE)

    def of(self, signature: Hashable, version: Hashable, n_nodes: int) -> K | None:
        """Return the cached results of a signature; None at its first use, which may be the only one.

        The results are empty at the second use, and after a change of the version of the plugin's data.
        """
        if signature in self._kept or (short := hash(signature)) in self._asked_once:
            return self.keep(signature, version, n_nodes)
        self._asked_once[short] = None
        return None

    def keep(self, signature: Hashable, version: Hashable, n_nodes: int) -> K:
        """Return the cached results of a signature; create them if necessary."""
        cached = self._kept.get(signature)
        if cached is None or cached.version != version:
            self._asked_once.pop(hash(signature), None)
            cached = self._kept[signature] = self._make(version)
            self._kept.move_to_end(signature)
            drop_oldest(self._kept, n_nodes)
        else:
            self._kept.move_to_end(signature)
        return cached

    def forget(self) -> None:
        """Drop all results, for example after a change of the configuration."""
        self._kept.clear()
        self._asked_once.clear()


def drop_oldest(results: OrderedDict[Any, Any], n_nodes: int) -> None:
    """Drop the least recently used results of classes or signatures that a cluster of this size does not keep."""
    most = most_kept(_MOST_RESULTS, n_nodes, _NODE_BYTES)
    while len(results) > most:
        results.popitem(last=False)


def resized(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Return a copy of an array with another length; new elements are 0."""
    changed = np.zeros(length, dtype=array.dtype)
    shared = min(len(array), length)
    changed[:shared] = array[:shared]
    return changed


def gives_signatures(plugin: Plugin) -> bool:
    """Return whether results of a plugin can be cached per node; sampling plugins evaluate other nodes every time."""
    return overrides(plugin, Plugin, "signature") and sample_of(plugin) is None


class CachedFilterResult:
    """The feasible nodes of a class, and the first rejecting filter of every other node.

    Rows that `follow` leaves out count as feasible. Diagnoses share the arrays, which are copied only if results differ.

    Attributes:
        rejected_by: int8 or int16 (n_nodes,), the position in `plugins` of the first rejecting filter, or FEASIBLE.
        index: uint8 or uint16 (n_nodes,), the position in that filter's table; 0 for a feasible node.
        plugins: the names of the filters, in order.
        feasible: the feasible rows, ascending; the array is replaced only if the rows change.
        failed: the rows for which a plugin failed.
        unranked: the rows that changed since they were scored; None means all rows.
    """

    def __init__(self, calls: PluginCalls, filters: Sequence[tuple[FilterAdapter, CachedOutcomes]]) -> None:
        self._call = calls
        self._filters = filters
        self._log: ChangeLog | None = None  # the followed change log; None if no row is evaluated
        self._seen = 0
        # The filters' tables at the time of their last calls.
        self._numbers: list[Mapping[Outcome, int] | None] = [None] * len(filters)
        self._tables: list[tuple[Outcome, ...]] = [()] * len(filters)
        self.plugins = [each.plugin.name for each, _ in filters]
        self.rejected_by: NDArray[Any] = np.zeros(0, dtype=np.int8)
        self.index: NDArray[Any] = np.zeros(0, dtype=np.uint8)
        self.feasible: Rows = np.zeros(0, dtype=np.intp)
        self.failed: set[int] = set()
        self.unranked: set[int] | None = None

    @property
    def tables(self) -> list[tuple[Outcome, ...]]:
        """The outcomes of each filter, in the order of `plugins`."""
        for place, (_, cached) in enumerate(self._filters):
            if len(self._tables[place]) != len(cached.table):
                self._tables[place] = tuple(cached.table)
        return self._tables

    def follow(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        changes: ChangeLog,
        evaluated: Bools | None = None,
    ) -> None:
        """Evaluate the nodes that changed since the last pod of the class.

        Args:
            state: the state of the pod, with the data of PreFilter.
            pod: any pod of the class.
            snapshot: the cluster.
            changes: the log of changed rows, including rows whose place in `evaluated` changed.
            evaluated: bool (n_nodes,), the rows to evaluate; None means all rows.

        Raises:
            PluginError: a plugin raised or returned an invalid value; the next call evaluates all nodes.
        """
        n_nodes = snapshot.n_nodes
        again = self._changed(changes, snapshot)
        if len(self.rejected_by) != n_nodes:
            self.rejected_by, self.index = resized(self.rejected_by, n_nodes), resized(self.index, n_nodes)
            self.feasible = np.flatnonzero(self.rejected_by == FEASIBLE)
        if again is None or again:
            self._log = None  # stays None after an exception
            self._filter_again(again, evaluated, state, pod, snapshot)
            for place, (_, cached) in enumerate(self._filters):
                if cached.table is not self._numbers[place]:
                    self._numbers[place], self._tables[place] = cached.table, ()
            self.failed = {
                row
                for place, (_, cached) in enumerate(self._filters)
                for row in cached.failed
                if row < n_nodes and self.rejected_by[row] == place
            }
        self._log, self._seen = changes, changes.end

    def reject(self, diagnosis: Diagnosis, rows: Rows) -> Rows:
        """Record the rejections of some rows in a diagnosis, and return the feasible ones of these rows."""
        rejected_by = self.rejected_by[rows]
        if (rejected_by == FEASIBLE).all():
            return rows
        for place, plugin in enumerate(self.plugins):
            rejected = rows[rejected_by == place]
            if rejected.size:
                diagnosis.reject(plugin, self.tables[place], self.index[rejected], rejected)
        feasible: Rows = rows[rejected_by == FEASIBLE]
        return feasible

    def _changed(self, changes: ChangeLog, snapshot: Snapshot) -> set[int] | None:
        """Return the rows to evaluate again; None means all rows."""
        n_nodes = snapshot.n_nodes
        changed = changes.since(self._seen) if self._log is changes else None
        again = None if changed is None else {row for row in (*changed, *self.failed) if row < n_nodes}
        for place, (adapter, cached) in enumerate(self._filters):
            # The table stays the same while these rows are evaluated.
            cached.make_room(len(again or ()), n_nodes)
            cached.follow(changes if adapter.plugin.reads_pods else snapshot.node_changes, n_nodes)
            if cached.table is not self._numbers[place]:  # positions in the previous table are invalid
                again = None
        return again

    def _filter_again(
        self,
        again: set[int] | None,
        evaluated: Bools | None,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
    ) -> None:
        if again is None:
            self.rejected_by, self.index = self._filter_rows(
                snapshot.all_rows, evaluated, state, pod, snapshot
            )
            self.feasible = np.flatnonzero(self.rejected_by == FEASIBLE)
            self.unranked = None
            return
        if len(again) > FEW_ROWS:
            rows = np.array(sorted(again), dtype=np.intp)
            others_fit = self._change(rows, *self._filter_rows(rows, evaluated, state, pod, snapshot))
        else:
            others_fit = False
            for row in again:
                is_asked = evaluated is None or evaluated[row]
                result = self._filter_row(row, state, pod, snapshot) if is_asked else (FEASIBLE, 0)
                others_fit |= self._change_one(row, *result)
        if others_fit:
            self.feasible = np.flatnonzero(self.rejected_by == FEASIBLE)
        if self.unranked is not None:
            self.unranked |= again

    def _change(self, rows: Rows, rejected_by: NDArray[Any], index: NDArray[Any]) -> bool:
        """Store the results of rows, (len(rows),); return whether other nodes are feasible now."""
        before = self.rejected_by[rows]
        if (before == rejected_by).all() and (self.index[rows] == index).all():
            return False
        self.rejected_by = own(self.rejected_by, int(rejected_by.max()))
        self.index = own(self.index, int(index.max()))
        self.rejected_by[rows], self.index[rows] = rejected_by, index
        return bool(((before == FEASIBLE) != (rejected_by == FEASIBLE)).any())

    def _change_one(self, row: int, rejected_by: int, index: int) -> bool:
        """Store the result of a row, as `_change`."""
        before = int(self.rejected_by[row])
        if before == rejected_by and self.index[row] == index:
            return False
        self.rejected_by, self.index = own(self.rejected_by, rejected_by), own(self.index, index)
        self.rejected_by[row], self.index[row] = rejected_by, index
        return (before == FEASIBLE) != (rejected_by == FEASIBLE)

    def _filter_rows(
        self, rows: Rows, evaluated: Bools | None, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return `rejected_by` and `index` of rows, (len(rows),)."""
        rejected_by, index = np.full(len(rows), FEASIBLE, dtype=np.int8), np.zeros(len(rows), dtype=np.uint8)
        are_all = len(rows) == snapshot.n_nodes
        remaining = np.ones(len(rows), dtype=np.bool_) if evaluated is None else evaluated[rows]
        left = rows if evaluated is None else selected(rows, remaining)
        for place, (adapter, cached) in enumerate(self._filters):
            if not left.size:
                break
            self._call.raising(
                adapter.plugin,
                ExtensionPoint.FILTER,
                filter_unknown_rows,
                adapter,
                cached,
                state,
                pod,
                snapshot,
                left,
                remaining if are_all else None,
            )
            if not cached.refuses:
                continue
            numbers = cached.values if are_all else cached.values[rows]
            refused = (numbers != 0) & remaining
            if refused.any():
                rejected_by, index = own(rejected_by, place), own(index, len(cached.table) - 1)
                put_where(rejected_by, refused, place)
                put_where(index, refused, numbers)
                remaining &= ~refused
                left = selected(rows, remaining)
        return rejected_by, index

    def _filter_row(self, row: int, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> tuple[int, int]:
        """Return `rejected_by` and `index` of a row."""
        for place, (adapter, cached) in enumerate(self._filters):
            if cached.misses and not cached.known[row]:
                outcome = self._call.raising(
                    adapter.plugin, ExtensionPoint.FILTER, adapter.at, state, pod, snapshot, row
                )
                number = cached.note_outcome(row, outcome)
            else:
                number = int(cached.values[row]) if cached.refuses else 0
            if number:
                return place, number
        return FEASIBLE, 0


def filter_unknown_rows(
    adapter: FilterAdapter,
    cached: CachedOutcomes,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
    among: Bools | None = None,
) -> None:
    """Call a filter for the rows that are not known; `among` is as of `CachedVerdicts.unknown`."""
    cached.make_room(min(cached.misses, len(rows)), snapshot.n_nodes)
    unknown = cached.unknown(rows, among)
    if unknown.size:
        cached.note_outcomes(unknown, adapter.each(state, pod, snapshot, unknown))
