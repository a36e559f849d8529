"""Caches the results of one plugin for each node, for all pods with the same signature.

A result is valid until the node changes. Results of plugins that also read pods are valid until a pod is added to
the node or removed from it. The change logs of a snapshot list the changed rows.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from scheduler.engine.runtime.adapters import sample_of
from scheduler.engine.runtime.plugin_points import overrides
from scheduler.framework.diagnosis import PASS
from scheduler.framework.interface import Plugin
from scheduler.framework.status import Code
from scheduler.objects.caches import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import DTypeLike, NDArray

    from scheduler.framework.diagnosis import Outcome, Outcomes
    from scheduler.snapshot import Bools, Rows
    from scheduler.snapshot.arrays import ChangeLog

K = TypeVar("K", bound="CachedVerdicts")

_MOST_SIGNATURES = 128
"""Maximum number of cached signatures per plugin; the least recently used signature is dropped first."""
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
        if len(self.known) != n_nodes:
            self.known = resized(self.known, n_nodes)
            self.values = resized(self.values, n_nodes)
        if rows is None:
            self.reset()
        elif len(rows) == 1 and rows[0] < n_nodes and not self.misses:
            self.known[rows[0]] = False
            self.misses = 1
        else:
            self.known[[row for row in rows if row < n_nodes]] = False
            self.misses = n_nodes - int(np.count_nonzero(self.known))

    def reset(self) -> None:
        """Drop all results."""
        self.known[:] = False
        self.misses = len(self.known)

    def unknown(self, rows: Rows) -> Rows:
        """Return the rows that the plugin must evaluate."""
        if not self.misses:
            return rows[:0]
        unknown: Rows = rows[~self.known[rows]]
        return unknown

    def note(self, rows: Rows, values: Any) -> None:
        """Store the results of rows that were not known."""
        self.values[rows] = values
        self.known[rows] = True
        self.misses -= len(rows)
        self.notes += 1

    def note_one(self, row: int, value: int) -> None:
        """Store the result of a row that was not known."""
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

    def note(self, rows: Rows, normalized: NDArray[np.uint8] | int) -> None:
        """Store the normalized scores of rows."""
        if not isinstance(normalized, int):
            at_rows = normalized if len(rows) == len(normalized) else normalized[rows]
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

    def of(self, signature: Hashable, version: Hashable) -> K | None:
        """Return the cached results of a signature; None at its first use, which may be the only one.

        The results are empty at the second use, and after a change of the version of the plugin's data.
        """
        if signature in self._kept or (short := hash(signature)) in self._asked_once:
            return self.keep(signature, version)
        self._asked_once[short] = None
        return None

    def keep(self, signature: Hashable, version: Hashable) -> K:
        """Return the cached results of a signature; create them if necessary."""
        cached = self._kept.get(signature)
        if cached is None or cached.version != version:
            self._asked_once.pop(hash(signature), None)
            cached = self._kept[signature] = self._make(version)
            if len(self._kept) > _MOST_SIGNATURES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(signature)
        return cached

    def forget(self) -> None:
        """Drop all results, for example after a change of the configuration."""
        self._kept.clear()
        self._asked_once.clear()


def resized(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Return a copy of an array with another length; new elements are 0."""
    changed = np.zeros(length, dtype=array.dtype)
    shared = min(len(array), length)
    changed[:shared] = array[:shared]
    return changed


def gives_signatures(plugin: Plugin) -> bool:
    """Return whether results of a plugin can be cached per node; sampling plugins evaluate other nodes every time."""
    return overrides(plugin, Plugin, "signature") and sample_of(plugin) is None
