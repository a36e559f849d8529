"""Pods alike share work.

Of a plugin whose verdict on a node depends on the pod's signature and that node alone, verdicts are kept per
signature and only rows that changed since are asked about again. Between two pods of a Deployment one row
changes, the one the first of them went to.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.interface import Locality
from scheduler.framework.outcomes import PASS, Outcomes
from scheduler.framework.slow_plugins import SlowPlugin
from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Self

    from scheduler.framework.interface import Plugin
    from scheduler.framework.outcomes import Outcome
    from scheduler.snapshot import Int64s, Rows, Snapshot

_MOST_CLASSES = 128
"""Signatures kept per plugin; the one not asked for the longest goes first."""
_PAST_OUTCOMES = 4096
"""How many outcomes beyond one per node a table may hold before it is made anew: they are of the past."""


@dataclass(slots=True)
class _Kept:
    """Verdicts of one plugin on pods of one signature.

    Attributes:
        version: of the plugin, when the verdicts were given.
        known: int64 (n_nodes,), the row's generation each verdict was given at; 0 where there is none.
        values: int64 (n_nodes,), what was said: places in `table` of a filter, scores of a scorer.
        table: of a filter, outcome -> place.
    """

    version: int
    known: Int64s
    values: Int64s
    table: dict[Outcome, int] = field(default_factory=lambda: {PASS: 0})

    @classmethod
    def nothing(cls, version: int, n_nodes: int) -> Self:
        """No verdicts yet."""
        return cls(version, np.zeros(n_nodes, dtype=np.int64), np.zeros(n_nodes, dtype=np.int64))

    def resize(self, n_nodes: int) -> None:
        """Follow the number of nodes."""
        self.known = _resized(self.known, n_nodes)
        self.values = _resized(self.values, n_nodes)

    def stale(self, snapshot: Snapshot, rows: Rows) -> Rows:
        """Return the rows that changed since they were judged."""
        if len(rows) == snapshot.n_nodes:
            return np.flatnonzero(self.known != snapshot.generation)
        stale: Rows = rows[self.known[rows] != snapshot.generation[rows]]
        return stale

    def note(self, snapshot: Snapshot, rows: Rows, values: Int64s) -> None:
        """Keep what was said of rows; `values` is (len(rows),)."""
        self.values[rows] = values
        self.known[rows] = snapshot.generation[rows]

    def note_outcomes(self, snapshot: Snapshot, rows: Rows, outcomes: Outcomes) -> None:
        """Keep what a filter said of rows; a failure is no verdict, so it is said but not kept."""
        places = np.zeros(len(outcomes.table), dtype=np.int64)
        failed = np.zeros(len(outcomes.table), dtype=bool)
        for number in np.flatnonzero(np.bincount(outcomes.index)).tolist():
            outcome = outcomes.table[number]
            places[number] = self.table.setdefault(outcome, len(self.table))
            failed[number] = outcome.code is Code.ERROR
        self.note(snapshot, rows, places[outcomes.index])
        if failed.any():
            self.known[rows[failed[outcomes.index]]] = 0


class KeptVerdicts:
    """The kept verdicts of one NODE plugin at one extension point."""

    def __init__(self) -> None:
        self._classes: OrderedDict[Hashable, _Kept] = OrderedDict()  # signature -> verdicts

    def outcomes(
        self,
        signature: Hashable,
        version: int,
        snapshot: Snapshot,
        rows: Rows,
        ask: Callable[[Snapshot], Outcomes],
    ) -> Outcomes:
        """Return outcomes that hold at `rows`, asking only about those that changed.

        Args:
            signature: of the pod.
            version: of the plugin.
            snapshot: the cluster.
            rows: the nodes wanted.
            ask: gives the outcomes of all nodes of a snapshot; called with one of the stale rows only.
        """
        kept = self._kept(signature, version, snapshot)
        stale = kept.stale(snapshot, rows)
        if stale.size:
            if len(kept.table) + len(stale) > snapshot.n_nodes + _PAST_OUTCOMES:
                kept = self._classes[signature] = _Kept.nothing(version, snapshot.n_nodes)
                stale = rows
            kept.note_outcomes(snapshot, stale, ask(_some(snapshot, stale)))
        return Outcomes(kept.values.astype(np.uint16), tuple(kept.table))

    def scores(
        self,
        signature: Hashable,
        version: int,
        snapshot: Snapshot,
        rows: Rows,
        ask: Callable[[Snapshot], Int64s],
    ) -> Int64s:
        """Return scores that hold at `rows`, before normalisation, asking only about those that changed."""
        kept = self._kept(signature, version, snapshot)
        stale = kept.stale(snapshot, rows)
        if stale.size:
            kept.note(snapshot, stale, ask(_some(snapshot, stale)))
        # A copy, since normalisation may write into it.
        return kept.values.copy()

    def forget(self) -> None:
        """Drop everything, as after a change of the configuration."""
        self._classes.clear()

    def _kept(self, signature: Hashable, version: int, snapshot: Snapshot) -> _Kept:
        kept = self._classes.get(signature)
        if kept is None or kept.version != version:
            kept = self._classes[signature] = _Kept.nothing(version, snapshot.n_nodes)
            if len(self._classes) > _MOST_CLASSES:
                self._classes.popitem(last=False)
        elif len(kept.known) != snapshot.n_nodes:
            kept.resize(snapshot.n_nodes)
        self._classes.move_to_end(signature)
        return kept


def _some(snapshot: Snapshot, rows: Rows) -> Snapshot:
    return snapshot if len(rows) == snapshot.n_nodes else snapshot.take(rows)


def _resized(array: Int64s, length: int) -> Int64s:
    resized = np.zeros(length, dtype=np.int64)
    shared = min(len(array), length)
    resized[:shared] = array[:shared]
    return resized


def is_kept(plugin: Plugin) -> bool:
    """Say whether a plugin's verdicts may be kept per node; not those of a sample, which is another every time."""
    is_sampled = isinstance(plugin, SlowPlugin) and plugin.sample is not None
    return plugin.locality is Locality.NODE and not is_sampled
