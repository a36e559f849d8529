"""Why a pod does not fit on nodes: stored as arrays, formatted as kube-scheduler's messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.outcomes import Outcome
from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from scheduler.framework.status import Status
    from scheduler.snapshot import Bools, Rows, UInt16s

FEASIBLE = -1
"""In `Diagnosis.rejected_by`: no plugin rejected the node."""
NARROWED = -2
"""In `Diagnosis.rejected_by`: PreFilter narrowed the search to other nodes."""
NOT_EXAMINED = -3
"""In `Diagnosis.rejected_by`: the node was not evaluated."""

NO_NODES = "no nodes available to schedule pods"


@dataclass(slots=True)
class Diagnosis:
    """The result for every node of a snapshot.

    Attributes:
        n_nodes: number of nodes.
        rejected_by: int16 (n_nodes,), the index in `plugins` of the first one that rejected the node, or
            FEASIBLE, NARROWED or NOT_EXAMINED.
        index: uint16 (n_nodes,), the index in that plugin's table.
        plugins: the called Filter plugins, in order; one that was called twice occurs twice.
        tables: the tables of their outcomes, in the same order.
        has_failures: whether the evaluation of some node failed.
        pre_filter_status: PreFilter's rejection of the pod on all nodes.
        narrowed_to: the node names that PreFilter restricted the search to; None without a restriction.
        narrowing_plugins: the plugins that restricted the search, sorted.
        post_filter_message: PostFilter's message; "" without one.
        avoided: row -> reason, of the nodes that are used only if no other is feasible.
        n_within: number of eligible nodes: fewer than `n_nodes` for a member of a group with a placement.
    """

    n_nodes: int
    rejected_by: np.ndarray[tuple[int], np.dtype[np.int16]]
    index: UInt16s
    plugins: list[str] = field(default_factory=list)
    tables: list[tuple[Outcome, ...]] = field(default_factory=list)
    has_failures: bool = False
    pre_filter_status: Status | None = None
    narrowed_to: frozenset[str] | None = None
    narrowing_plugins: tuple[str, ...] = ()
    post_filter_message: str = ""
    avoided: Mapping[int, str] = field(default_factory=dict)
    n_within: int = field(kw_only=True)
    _counted: list[tuple[str, Outcome, int]] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def blank(cls, n_nodes: int) -> Diagnosis:
        """Return a diagnosis in which every node is feasible."""
        rejected_by = np.full(n_nodes, FEASIBLE, dtype=np.int16)
        return cls(n_nodes, rejected_by, np.zeros(n_nodes, dtype=np.uint16), n_within=n_nodes)

    @property
    def feasible(self) -> Rows:
        """The feasible rows, ascending."""
        return np.flatnonzero(self.rejected_by == FEASIBLE)

    def refused_by(self, plugins: Collection[str]) -> Bools:
        """Return bool (n_nodes,), the nodes whose first rejection came from one of some Filter plugins."""
        places = [place for place, name in enumerate(self.plugins) if name in plugins]
        return np.isin(self.rejected_by, places)

    @property
    def n_not_examined(self) -> int:
        """Number of nodes that were not evaluated."""
        return int(np.count_nonzero(self.rejected_by == NOT_EXAMINED))

    def avoid(self, feasible: Rows, avoided: Mapping[int, str]) -> Rows:
        """Return the feasible rows without the avoided ones, or all if there are no others.

        Args:
            feasible: the feasible rows.
            avoided: row -> reason.
        """
        if not avoided:
            return feasible
        self.avoided = avoided
        others = feasible[~np.isin(feasible, list(avoided))]
        return others if others.size else feasible

    @property
    def unschedulable_plugins(self) -> frozenset[str]:
        """Every plugin with a rejection."""
        return frozenset(plugin for plugin, _ in self._rejecting())

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that returned PENDING."""
        return frozenset(plugin for plugin, code in self._rejecting() if code is Code.PENDING)

    def _rejecting(self) -> Iterator[tuple[str, Code]]:
        for plugin in self.narrowing_plugins:
            yield plugin, Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        status = self.pre_filter_status
        if status is not None and status.plugin and status.code.is_rejection:
            yield status.plugin, status.code
        for plugin, outcome, _ in self.rejections():
            if outcome.code.is_rejection and plugin in self.plugins:
                yield plugin, outcome.code

    def reject_all(self, status: Status, narrowing_plugins: Iterable[str] = ()) -> None:
        """Record PreFilter's rejection of the pod on all nodes, and the plugins that restricted the search before it."""
        self.pre_filter_status = status
        self.narrowing_plugins = tuple(sorted(narrowing_plugins))
        self._counted = None

    def narrow(self, keep: Bools, node_names: frozenset[str], plugins: tuple[str, ...]) -> None:
        """Record PreFilter's restriction to some nodes; `keep` is bool (n_nodes,)."""
        self.narrowed_to = node_names
        self.narrowing_plugins = plugins
        self.rejected_by[~keep] = NARROWED
        self._counted = None

    def take_over(
        self,
        plugins: Sequence[str],
        tables: Sequence[tuple[Outcome, ...]],
        rejected_by: np.ndarray[tuple[int], np.dtype[np.int16]],
        index: UInt16s,
        *,
        has_failures: bool,
    ) -> None:
        """Begin with the first plugins' results for all nodes; arrays are as in the attributes, and are copied."""
        self.plugins, self.tables = list(plugins), list(tables)
        self.rejected_by, self.index = rejected_by.copy(), index.copy()
        self._counted = None
        self.has_failures = has_failures

    def reject(self, plugin: str, table: tuple[Outcome, ...], at_rows: UInt16s, rows: Rows) -> Rows:
        """Record one plugin's result for the remaining nodes, and return those that still remain.

        Args:
            plugin: name of the plugin.
            table: the table of its `Outcomes`.
            at_rows: uint16 (len(rows),), indices of the table.
            rows: the evaluated nodes.
        """
        rejected = at_rows != 0
        if not rejected.any():
            return rows
        place = len(self.plugins)
        self.plugins.append(plugin)
        self.tables.append(table)
        rejected_rows, numbers = rows[rejected], at_rows[rejected]
        self.rejected_by[rejected_rows] = place
        self.index[rejected_rows] = numbers
        self._counted = None
        occurring = np.flatnonzero(np.bincount(numbers)).tolist()
        self.has_failures |= any(table[number].code is Code.ERROR for number in occurring)
        feasible: Rows = rows[~rejected]
        return feasible

    def leave_out(self, rows: Rows) -> None:
        """Mark nodes as not evaluated: they were skipped, or their result does not count."""
        self.rejected_by[rows] = NOT_EXAMINED
        self._counted = None

    def look_within(self, rows: Rows) -> None:
        """Record that only these nodes are eligible, whatever the results of the others."""
        others = np.ones(self.n_nodes, dtype=np.bool_)
        others[rows] = False
        self.rejected_by[others] = NOT_EXAMINED
        self._counted = None
        self.n_within = len(rows)

    def look_at_only(self, rows: Rows) -> None:
        """Record that only these nodes, which are feasible, were evaluated."""
        self.rejected_by[:] = NOT_EXAMINED
        self.rejected_by[rows] = FEASIBLE
        self._counted = None

    def outcome_of(self, row: int) -> tuple[str, Outcome] | None:
        """Return the rejecting plugin and the outcome of a node; None if it is feasible or was not evaluated.

        For a node that PreFilter excluded, the plugin is the comma-separated list of all narrowing plugins.
        """
        if self.pre_filter_status is not None:
            status = self.pre_filter_status
            return status.plugin, Outcome(status.code, status.reasons)
        place = int(self.rejected_by[row])
        if place in {FEASIBLE, NOT_EXAMINED}:
            return None
        if place == NARROWED:
            return ",".join(self.narrowing_plugins), self._narrowed_outcome()
        return self.plugins[place], self.tables[place][int(self.index[row])]

    def first_error(self) -> tuple[str, Outcome, int] | None:
        """Return (plugin, outcome, row) of a node whose evaluation failed, if there is one."""
        if not self.has_failures:
            return None
        for place, (plugin, table) in enumerate(zip(self.plugins, self.tables, strict=True)):
            for number, outcome in enumerate(table):
                if outcome.code is Code.ERROR:
                    rows = np.flatnonzero((self.rejected_by == place) & (self.index == number))
                    if rows.size:
                        return plugin, outcome, int(rows[0])
        return None

    def message(self) -> str:
        """Return the text of the FailedScheduling event.

        Source:
            kube-scheduler v1.36, framework/types.go, FitError.Error.
        """
        if self.n_nodes == 0:
            return NO_NODES
        head = f"0/{self.n_within} nodes are available:"
        if self.pre_filter_status is not None:
            text = f"{head} {self.pre_filter_status.message}." if self.pre_filter_status.reasons else head
        else:
            counts = sorted(f"{count} {reason}" for reason, count in self.reason_counts().items())
            text = f"{head} {', '.join(counts)}." if counts else head
        return f"{text} {self.post_filter_message}" if self.post_filter_message else text

    def reason_counts(self) -> Counter[str]:
        """Return the number of nodes with each reason; a node may have several."""
        counts: Counter[str] = Counter()
        for _, outcome, nodes in self.rejections():
            for reason in outcome.reasons:
                counts[reason] += nodes
        return counts

    def rejections(self) -> Sequence[tuple[str, Outcome, int]]:
        """Return (plugin, outcome, number of nodes) of all rejections; counted once after each change."""
        if self._counted is None:
            self._counted = [*self._count()]
        return self._counted

    def _count(self) -> Iterator[tuple[str, Outcome, int]]:
        for place, (plugin, table) in enumerate(zip(self.plugins, self.tables, strict=True)):
            numbers = np.bincount(self.index[self.rejected_by == place], minlength=len(table))
            for number in np.flatnonzero(numbers).tolist():
                yield plugin, table[number], int(numbers[number])
        narrowed = int(np.count_nonzero(self.rejected_by == NARROWED)) if self.narrowing_plugins else 0
        if narrowed:
            yield ",".join(self.narrowing_plugins), self._narrowed_outcome(), narrowed

    def _narrowed_outcome(self) -> Outcome:
        plugins = " ".join(self.narrowing_plugins)
        return Outcome(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{plugins}]",)
        )
