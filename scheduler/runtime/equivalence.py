"""Pods alike share work.

Of a plugin whose verdict on a node depends on the pod's signature and that node alone, verdicts are kept per
signature and only rows that changed since are asked about again. Between two pods of a Deployment one row
changes, the one the first of them went to.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.interface import Locality
from scheduler.framework.outcomes import PASS, Outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from scheduler.framework.interface import Plugin
    from scheduler.framework.outcomes import Outcome
    from scheduler.snapshot import Int64s, Rows, Snapshot, UInt16s

_MOST_CLASSES = 128
"""Signatures kept per plugin; the one not asked for the longest goes first."""
_WIDEST_TABLE = 4096
"""Outcomes a kept table may grow to before it is made anew."""


@dataclass(slots=True)
class _Kept:
    """Verdicts of one plugin on pods of one signature.

    Attributes:
        version: of the plugin, when the verdicts were given.
        known: int64 (n_nodes,), the row's generation each verdict was given at; 0 where there is none.
        values: what was said: places in `table` of a filter, scores of a scorer.
        table: of a filter, place -> outcome.
        places: the same the other way round.
    """

    version: int
    known: Int64s
    values: Int64s
    table: list[Outcome]
    places: dict[Outcome, int]


class KeptVerdicts:
    """The kept verdicts of one NODE plugin at one extension point."""

    def __init__(self) -> None:
        self._classes: OrderedDict[Hashable, _Kept] = OrderedDict()

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
        stale = self._stale(kept, snapshot, rows)
        if stale.size:
            fresh = ask(_some(snapshot, stale))
            if len(kept.table) + len(fresh.table) > _WIDEST_TABLE:
                kept.table, kept.places = [PASS], {PASS: 0}
                kept.known[:] = 0
                stale = rows
                fresh = ask(_some(snapshot, stale))
            numbers = np.array([self._place(kept, outcome) for outcome in fresh.table], dtype=np.int64)
            kept.values[stale] = numbers[fresh.index]
            kept.known[stale] = snapshot.generation[stale]
        index: UInt16s = kept.values.astype(np.uint16)
        return Outcomes(index, tuple(kept.table))

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
        stale = self._stale(kept, snapshot, rows)
        if stale.size:
            kept.values[stale] = ask(_some(snapshot, stale))
            kept.known[stale] = snapshot.generation[stale]
        # A copy, since normalisation may write into it.
        return kept.values.copy()

    def forget(self) -> None:
        """Drop everything, as after a change of the configuration."""
        self._classes.clear()

    def _kept(self, signature: Hashable, version: int, snapshot: Snapshot) -> _Kept:
        kept = self._classes.get(signature)
        n_nodes = snapshot.n_nodes
        if kept is None or kept.version != version:
            empty = np.zeros(n_nodes, dtype=np.int64)
            kept = self._classes[signature] = _Kept(version, empty, empty.copy(), [PASS], {PASS: 0})
            if len(self._classes) > _MOST_CLASSES:
                self._classes.popitem(last=False)
        elif len(kept.known) != n_nodes:
            kept.known = _resized(kept.known, n_nodes)
            kept.values = _resized(kept.values, n_nodes)
        self._classes.move_to_end(signature)
        return kept

    @staticmethod
    def _stale(kept: _Kept, snapshot: Snapshot, rows: Rows) -> Rows:
        if len(rows) == snapshot.n_nodes:
            return np.flatnonzero(kept.known != snapshot.generation)
        stale: Rows = rows[kept.known[rows] != snapshot.generation[rows]]
        return stale

    @staticmethod
    def _place(kept: _Kept, outcome: Outcome) -> int:
        place = kept.places.get(outcome)
        if place is None:
            place = kept.places[outcome] = len(kept.table)
            kept.table.append(outcome)
        return place


def _some(snapshot: Snapshot, rows: Rows) -> Snapshot:
    return snapshot if len(rows) == snapshot.n_nodes else snapshot.take(rows)


def _resized(array: Int64s, length: int) -> Int64s:
    resized = np.zeros(length, dtype=np.int64)
    shared = min(len(array), length)
    resized[:shared] = array[:shared]
    return resized


def is_kept(plugin: Plugin) -> bool:
    """Say whether a plugin's verdicts may be kept per node."""
    return plugin.locality is Locality.NODE
