"""Pods alike share a whole decision, as far as it depends on one node at a time.

Between two pods of a Deployment one node changes: the one that the first of them went to. So of each class of pods
the combined verdict of the filters and the weighted total of the scores are kept, and judged again where nodes changed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.framework.diagnosis import FEASIBLE
from scheduler.framework.interface import Plugin
from scheduler.framework.points import ExtensionPoint
from scheduler.runtime.asking import FEW_ROWS
from scheduler.runtime.kept_verdicts import gives_signatures, resized
from scheduler.runtime.points import overrides

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.outcomes import Outcome
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.asking import AskFilter
    from scheduler.runtime.calls import PluginCalls
    from scheduler.runtime.kept_verdicts import KeptOutcomes
    from scheduler.runtime.ranking import Ranking
    from scheduler.snapshot import Rows, Snapshot, UInt16s
    from scheduler.snapshot.change_log import ChangeLog

_MOST_CLASSES = 128
"""Classes kept per profile; the one that had no pod for the longest goes first."""


@dataclass(slots=True)
class Prepared:
    """What plugins said of a class of pods before any node was judged: at PreFilter or PreScore.

    Attributes:
        state: what they wrote.
        skipped: the plugins that had nothing to say.
        others: the plugins that have to be asked for each pod.
    """

    state: CycleState
    skipped: frozenset[str]
    others: Sequence[Any]


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Pods that no plugin which gives signatures can tell apart.

    Attributes:
        signatures: plugin -> signature, without those that gave none.
        versions: plugin -> its version; with another the class is made anew.
        pre_filter: what was said at PreFilter; None where a plugin rejects or narrows, which it does for each pod anew.
        pre_score: likewise at PreScore; None until it was asked.
        standing: plugins skipped at Filter -> what the filters say of each node.
    """

    signatures: Mapping[str, Hashable]
    versions: Mapping[str, Hashable]
    pre_filter: Prepared | None = None
    pre_score: Prepared | None = None
    standing: dict[frozenset[str], Standing] = field(default_factory=dict)


class EquivalenceClasses:
    """The classes of one profile's pods."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        giving = [plugin for plugin in plugins if gives_signatures(plugin)]
        self._signing = [(plugin.name, plugin.signature) for plugin in giving]
        self._versioned = [plugin for plugin in giving if overrides(plugin, Plugin, "version")]
        self._classes: OrderedDict[Hashable, EquivalenceClass] = OrderedDict()

    def of(self, pod: PodInfo, snapshot: Snapshot) -> tuple[EquivalenceClass | None, bool]:
        """Return a pod's class, and whether it is new; None where nothing can be shared.

        A plugin that raises, or gives what is no key, is found out when it is asked by itself.
        """
        if snapshot.changes is None or not self._signing:
            return None, False
        try:
            key = tuple([signature(pod) for _, signature in self._signing])
            known = self._classes.get(key)
            versions = {plugin.name: plugin.version() for plugin in self._versioned}
        except Exception:  # noqa: BLE001 - an author's code; it is called again where its failure has a name
            return None, False
        if known is not None and known.versions == versions:
            self._classes.move_to_end(key)
            return known, False
        names = (name for name, _ in self._signing)
        given = {name: signature for name, signature in zip(names, key, strict=True) if signature is not None}
        made = self._classes[key] = EquivalenceClass(given, versions)
        if len(self._classes) > _MOST_CLASSES:
            self._classes.popitem(last=False)
        return made, True

    def forget(self) -> None:
        """Drop everything, as after a change of the configuration."""
        self._classes.clear()


class Standing:
    """Which nodes the filters of a class leave, and who refused the others first.

    Attributes:
        rejected_by: int16 (n_nodes,), the place in `plugins` of the first that refused, or FEASIBLE.
        index: uint16 (n_nodes,), the place in that plugin's table.
        plugins: the names of the filters, in order.
        feasible: the rows nobody refused, ascending; the same array as long as they are the same.
        failed: whether a plugin could not tell of some node.
        ranking: the scores of the nodes, once they were asked for.
        unranked: the rows that changed since they were ranked; None is all.
    """

    def __init__(self, calls: PluginCalls, filters: Sequence[tuple[AskFilter, KeptOutcomes]]) -> None:
        self._call = calls
        self._filters = filters
        self._log: ChangeLog | None = None  # what was followed; None where nothing is judged
        self._seen = 0
        # The filters' tables when they were asked.
        self._numbers: list[Mapping[Outcome, int] | None] = [None] * len(filters)
        self._tables: list[tuple[Outcome, ...]] = [()] * len(filters)
        self.plugins = [each.plugin.name for each, _ in filters]
        self.rejected_by: NDArray[np.int16] = np.zeros(0, dtype=np.int16)
        self.index: UInt16s = np.zeros(0, dtype=np.uint16)
        self.feasible: Rows = np.zeros(0, dtype=np.intp)
        self.failed = False
        self.ranking: Ranking | None = None
        self.unranked: set[int] | None = None

    @property
    def tables(self) -> list[tuple[Outcome, ...]]:
        """The filters' outcomes, in the same order as `plugins`."""
        for place, (_, kept) in enumerate(self._filters):
            if len(self._tables[place]) != len(kept.table):
                self._tables[place] = tuple(kept.table)
        return self._tables

    def follow(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        """Judge again what changed since the last pod of the class.

        Args:
            state: of the pod, with what PreFilter wrote.
            pod: any of the class.
            snapshot: the cluster.

        Raises:
            PluginError: a plugin raised, or gave a malformed answer; nothing is taken for judged then.
        """
        n_nodes, changes = snapshot.n_nodes, snapshot.changes
        assert changes is not None, "nothing is kept of a cluster that is not"
        changed = changes.since(self._seen) if self._log is changes else None
        for place, (asking, kept) in enumerate(self._filters):
            kept.make_room(FEW_ROWS, n_nodes)
            kept.follow(changes if asking.plugin.reads_pods else snapshot.node_changes, n_nodes)
            if kept.table is not self._numbers[place]:  # numbers mean something else there
                changed, self._tables[place] = None, ()
        if len(self.rejected_by) != n_nodes:
            self.rejected_by, self.index = resized(self.rejected_by, n_nodes), resized(self.index, n_nodes)
            self.feasible = np.flatnonzero(self.rejected_by == FEASIBLE)
        again: set[int] = {row for row in changed or () if row < n_nodes}
        if self.failed:
            again.update(row for _, kept in self._filters for row in kept.failed if row < n_nodes)
        if changed is not None and not again:
            self._seen = changes.end
            return
        self._log = None  # unless all goes well
        if changed is None:
            self.rejected_by[:] = FEASIBLE
            self.feasible = self._judge_all(snapshot.all_rows, state, pod, snapshot)
            self.unranked = None
        else:
            was_feasible = [row for row in again if self.rejected_by[row] == FEASIBLE]
            if len(again) > FEW_ROWS:
                rows = np.array(sorted(again), dtype=np.intp)
                self.rejected_by[rows] = FEASIBLE
                self._judge_all(rows, state, pod, snapshot)
            else:
                for row in again:
                    self._judge(row, state, pod, snapshot)
            if was_feasible != [row for row in again if self.rejected_by[row] == FEASIBLE]:
                self.feasible = np.flatnonzero(self.rejected_by == FEASIBLE)
            if self.unranked is not None:
                self.unranked |= again
        self._log, self._seen = changes, changes.end
        self._numbers = [kept.table for _, kept in self._filters]
        self.failed = any(kept.failed for _, kept in self._filters)

    def _judge_all(self, rows: Rows, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Rows:
        """Judge rows, and return those that nobody refuses."""
        for place, (asking, kept) in enumerate(self._filters):
            if not rows.size:
                break
            self._call.raising(
                asking.plugin, ExtensionPoint.FILTER, ask_unknown, asking, kept, state, pod, snapshot, rows
            )
            if not kept.refuses:
                continue
            numbers = kept.values[rows]
            refused = numbers != 0
            if refused.any():
                self.rejected_by[rows[refused]] = place
                self.index[rows[refused]] = numbers[refused]
                rows = rows[~refused]
        return rows

    def _judge(self, row: int, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        self.rejected_by[row] = FEASIBLE
        for place, (asking, kept) in enumerate(self._filters):
            if kept.misses and not kept.known[row]:
                outcome = self._call.raising(
                    asking.plugin, ExtensionPoint.FILTER, asking.at, state, pod, snapshot, row
                )
                number = kept.note_outcome(row, outcome)
            else:
                number = kept.values[row] if kept.refuses else 0
            if number:
                self.rejected_by[row], self.index[row] = place, number
                break


def ask_unknown(
    asking: AskFilter,
    kept: KeptOutcomes,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
) -> None:
    """Ask a filter about those of the rows that are not known."""
    kept.make_room(min(kept.misses, len(rows)), snapshot.n_nodes)
    unknown = kept.unknown(rows)
    if unknown.size:
        kept.note_outcomes(unknown, asking.each(state, pod, snapshot, unknown))


_CLASS: Final = "runtime/EquivalenceClass"
_STANDING: Final = "runtime/Standing"


def class_of(state: CycleState) -> EquivalenceClass | None:
    """Return the class of the pod that a state is of, where PreFilter found one."""
    return state.read(_CLASS, EquivalenceClass) if _CLASS in state else None


def standing_of(state: CycleState) -> Standing | None:
    """Return what the filters of the pod's class say, where they were asked in this cycle."""
    return state.read(_STANDING, Standing) if _STANDING in state else None


def remember_class(state: CycleState, alike: EquivalenceClass) -> None:
    """Keep a pod's class for the points that follow."""
    state.write(_CLASS, alike)


def remember_standing(state: CycleState, standing: Standing) -> None:
    """Keep what the filters of the pod's class say for the points that follow."""
    state.write(_STANDING, standing)
