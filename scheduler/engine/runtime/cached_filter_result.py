"""Caches the combined filter results for pods of one class, and evaluates changed nodes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.runtime.adapters import FEW_ROWS
from scheduler.engine.runtime.cached_verdicts import resized
from scheduler.framework.diagnosis import FEASIBLE
from scheduler.framework.points import ExtensionPoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from scheduler.engine.runtime.adapters import FilterAdapter
    from scheduler.engine.runtime.cached_verdicts import CachedOutcomes
    from scheduler.engine.runtime.calls import PluginCalls
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis, Outcome
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Rows, Snapshot, UInt16s
    from scheduler.snapshot.arrays import ChangeLog


class CachedFilterResult:
    """The feasible nodes of a class, and the first rejecting filter of every other node.

    Rows that `follow` leaves out count as feasible.

    Attributes:
        rejected_by: int16 (n_nodes,), the position in `plugins` of the first rejecting filter, or FEASIBLE.
        index: uint16 (n_nodes,), the position in that filter's table.
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
        self.rejected_by: NDArray[np.int16] = np.zeros(0, dtype=np.int16)
        self.index: UInt16s = np.zeros(0, dtype=np.uint16)
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
            cached.make_room(
                len(again or ()), n_nodes
            )  # so that the table stays the same while these rows are evaluated
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
            self.rejected_by[:] = FEASIBLE
            rows = snapshot.all_rows if evaluated is None else np.flatnonzero(evaluated)
            self.feasible = self._filter_rows(rows, state, pod, snapshot)
            if evaluated is not None:
                self.feasible = np.flatnonzero(self.rejected_by == FEASIBLE)
            self.unranked = None
            return
        was_feasible = [row for row in again if self.rejected_by[row] == FEASIBLE]
        if len(again) > FEW_ROWS:
            rows = np.array(sorted(again), dtype=np.intp)
            self.rejected_by[rows] = FEASIBLE
            self._filter_rows(rows if evaluated is None else rows[evaluated[rows]], state, pod, snapshot)
        else:
            for row in again:
                self.rejected_by[row] = FEASIBLE
                if evaluated is None or evaluated[row]:
                    self._filter_row(row, state, pod, snapshot)
        if was_feasible != [row for row in again if self.rejected_by[row] == FEASIBLE]:
            self.feasible = np.flatnonzero(self.rejected_by == FEASIBLE)
        if self.unranked is not None:
            self.unranked |= again

    def _filter_rows(self, rows: Rows, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Rows:
        """Evaluate rows, and return the feasible ones."""
        for place, (adapter, cached) in enumerate(self._filters):
            if not rows.size:
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
                rows,
            )
            if not cached.refuses:
                continue
            numbers = cached.values[rows]
            refused = numbers != 0
            if refused.any():
                self.rejected_by[rows[refused]] = place
                self.index[rows[refused]] = numbers[refused]
                rows = rows[~refused]
        return rows

    def _filter_row(self, row: int, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        for place, (adapter, cached) in enumerate(self._filters):
            if cached.misses and not cached.known[row]:
                outcome = self._call.raising(
                    adapter.plugin, ExtensionPoint.FILTER, adapter.at, state, pod, snapshot, row
                )
                number = cached.note_outcome(row, outcome)
            else:
                number = cached.values[row] if cached.refuses else 0
            if number:
                self.rejected_by[row], self.index[row] = place, number
                break


def filter_unknown_rows(
    adapter: FilterAdapter,
    cached: CachedOutcomes,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
) -> None:
    """Call a filter for the rows that are not known."""
    cached.make_room(min(cached.misses, len(rows)), snapshot.n_nodes)
    unknown = cached.unknown(rows)
    if unknown.size:
        cached.note_outcomes(unknown, adapter.each(state, pod, snapshot, unknown))
