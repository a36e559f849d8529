"""What one plugin said of each node, kept for all pods that are alike to it.

A verdict holds until the node changes, or, of plugins that look at pods as well, until a pod comes to the node or
leaves it; the logs of a snapshot say which rows those are.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from scheduler.framework.interface import Plugin
from scheduler.framework.outcomes import PASS
from scheduler.framework.status import Code
from scheduler.runtime.asking import sample_of
from scheduler.runtime.points import overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import DTypeLike, NDArray

    from scheduler.framework.outcomes import Outcome, Outcomes
    from scheduler.snapshot import Bools, Rows
    from scheduler.snapshot.change_log import ChangeLog

K = TypeVar("K", bound="KeptVerdicts")

_MOST_SIGNATURES = 128
"""Signatures whose verdicts are kept per plugin; the one not asked for the longest goes first."""
_MOST_ASKED_ONCE = 1024
"""Signatures asked for once that are remembered per plugin, by their hash; the oldest goes first."""
_PAST_OUTCOMES = 4096
"""How many outcomes beyond one per node a table may hold before it is made anew: they are of the past."""


class KeptVerdicts:
    """What one plugin said of nodes for pods of one signature.

    Attributes:
        version: of the plugin, when it was asked.
        known: bool (n_nodes,), where what was said still holds.
        values: (n_nodes,), what was said.
        misses: how many rows are not known; `known` need not be looked at where there is none.
        notes: how often something was noted.
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
        """Let go of what was said of rows that changed since the last time."""
        assert changes is not None, "nothing is kept of a cluster that is not"
        is_same = self._log is changes
        if is_same and self._seen == changes.end and len(self.known) == n_nodes:
            return
        rows = changes.since(self._seen) if is_same else None
        self._log, self._seen = changes, changes.end
        if len(self.known) != n_nodes:
            self.known = resized(self.known, n_nodes)
            self.values = resized(self.values, n_nodes)
        if rows is None:
            self.start_anew()
        elif len(rows) == 1 and rows[0] < n_nodes and not self.misses:
            self.known[rows[0]] = False
            self.misses = 1
        else:
            self.known[[row for row in rows if row < n_nodes]] = False
            self.misses = n_nodes - int(np.count_nonzero(self.known))

    def start_anew(self) -> None:
        """Let go of everything."""
        self.known[:] = False
        self.misses = len(self.known)

    def unknown(self, rows: Rows) -> Rows:
        """Return which of the rows the plugin has to be asked about."""
        if not self.misses:
            return rows[:0]
        unknown: Rows = rows[~self.known[rows]]
        return unknown

    def note(self, rows: Rows, values: Any) -> None:
        """Keep what was said of rows that were not known."""
        self.values[rows] = values
        self.known[rows] = True
        self.misses -= len(rows)
        self.notes += 1

    def note_one(self, row: int, value: int) -> None:
        """Keep what was said of a row that was not known."""
        self.values[row] = value
        self.known[row] = True
        self.misses -= 1
        self.notes += 1


class KeptScores(KeptVerdicts):
    """What a scorer said that does not normalise: 0 to 100."""

    dtype = np.uint8


class KeptRawScores(KeptVerdicts):
    """What a scorer said that normalises.

    Attributes:
        normalized: what came of it for pods of whom no class is kept.
    """

    def __init__(self, version: Hashable) -> None:
        super().__init__(version)
        self.normalized = NormalizedScores(self)


class NormalizedScores:
    """What came of kept scores when they were normalised last.

    Attributes:
        raw: the kept scores.
        values: uint8 (n_nodes,), or one number for all rows that were normalised.
    """

    def __init__(self, raw: KeptVerdicts) -> None:
        self.raw = raw
        self.values: NDArray[np.uint8] | int = 0
        self._rows: Rows | None = None  # what was normalised last
        self._state = (0, 0)  # when it was

    def hold_at(self, rows: Rows) -> bool:
        """Say whether nothing changed since the same rows were normalised."""
        before, n_nodes = self._rows, len(self.raw.values)
        if before is None or self._state != (self.raw.notes, n_nodes):
            return False
        if rows is before:
            return True
        return len(rows) == len(before) and (len(rows) == n_nodes or bool((rows == before).all()))

    def note(self, rows: Rows, normalized: NDArray[np.uint8] | int) -> None:
        """Keep what came of rows."""
        if not isinstance(normalized, int):
            at_rows = normalized if len(rows) == len(normalized) else normalized[rows]
            lowest = int(at_rows.min())
            normalized = lowest if lowest == at_rows.max() else normalized
        self.values, self._rows = normalized, rows
        self._state = self.raw.notes, len(self.raw.values)


class KeptOutcomes(KeptVerdicts):
    """What a filter said: `values` are places in a table.

    Attributes:
        table: outcome -> its place; the first is PASS.
        refuses: whether any node may be refused; False is certain.
        failed: rows of which the plugin could not tell when it was asked last; they are not known.
    """

    dtype = np.uint16

    def __init__(self, version: Hashable) -> None:
        super().__init__(version)
        self.table: dict[Outcome, int] = {PASS: 0}
        self.refuses = False
        self.failed: set[int] = set()

    def make_room(self, more: int, n_nodes: int) -> None:
        """Let go of everything if the table, with so many more outcomes, would grow out of all proportion."""
        if len(self.table) > 1 and len(self.table) + more > n_nodes + _PAST_OUTCOMES:
            self.start_anew()

    def start_anew(self) -> None:
        super().start_anew()
        self.table = {PASS: 0}
        self.refuses = False
        self.failed.clear()

    def note_outcomes(self, rows: Rows, outcomes: Outcomes) -> None:
        """Keep what was said of rows, (len(rows),); a failure is no verdict, so it is said but not kept."""
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
        """Keep what was said of a row, and return its place in the table."""
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


class KeptBySignature(Generic[K]):
    """The kept verdicts of one plugin at one extension point."""

    def __init__(self, make: Callable[[Hashable], K]) -> None:
        self._make = make
        self._kept: OrderedDict[Hashable, K] = OrderedDict()
        # Whose hash is another's as well is only kept one time too early.
        self._asked_once: dict[int, None] = {}

    def of(self, signature: Hashable, version: Hashable) -> K | None:
        """Return what is kept for a signature; None when it is asked for the first time, which may be the only one.

        Nothing is said yet where it is asked for the second time, or the plugin's data are of another version now.
        """
        if signature in self._kept or (short := hash(signature)) in self._asked_once:
            return self.keep(signature, version)
        self._asked_once[short] = None
        if len(self._asked_once) > _MOST_ASKED_ONCE:
            del self._asked_once[next(iter(self._asked_once))]
        return None

    def keep(self, signature: Hashable, version: Hashable) -> K:
        """Return what is kept for a signature from now on."""
        kept = self._kept.get(signature)
        if kept is None or kept.version != version:
            self._asked_once.pop(hash(signature), None)
            kept = self._kept[signature] = self._make(version)
            if len(self._kept) > _MOST_SIGNATURES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(signature)
        return kept

    def forget(self) -> None:
        """Drop everything, as after a change of the configuration."""
        self._kept.clear()
        self._asked_once.clear()


def resized(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Return an array of another length; what is new is 0."""
    changed = np.zeros(length, dtype=array.dtype)
    shared = min(len(array), length)
    changed[:shared] = array[:shared]
    return changed


def gives_signatures(plugin: Plugin) -> bool:
    """Say whether verdicts of a plugin can be kept per node; not those of a sample, which is another every time."""
    return overrides(plugin, Plugin, "signature") and sample_of(plugin) is None
