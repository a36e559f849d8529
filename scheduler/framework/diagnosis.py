"""Why no node could run a pod, or why some could not: kept as arrays, told in kube-scheduler's words."""

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
"""In `Diagnosis.rejected_by`: no plugin refused the node."""
NARROWED = -2
"""In `Diagnosis.rejected_by`: PreFilter narrowed the search to other nodes."""
NOT_EXAMINED = -3
"""In `Diagnosis.rejected_by`: nobody looked at the node."""

NO_NODES = "no nodes available to schedule pods"


@dataclass(slots=True)
class Diagnosis:
    """The verdict on every node of a snapshot.

    Attributes:
        n_nodes: how many nodes there were.
        rejected_by: int16 (n_nodes,), the place in `plugins` of the first that refused the node, or FEASIBLE,
            NARROWED or NOT_EXAMINED.
        index: uint16 (n_nodes,), the place in that plugin's table.
        plugins: the Filter plugins that were asked, in order; one that was asked twice is there twice.
        tables: their outcomes' tables, in the same order.
        has_failures: whether the judging of some node failed.
        pre_filter_status: PreFilter's rejection of the whole pod, which speaks for all nodes.
        narrowed_to: the node names PreFilter narrowed the search to; None without narrowing.
        narrowing_plugins: who narrowed, sorted.
        post_filter_message: what PostFilter added; "" without.
        avoided: row -> why, of the nodes that are taken only if no other is feasible.
        n_within: how many nodes the pod might go to at all: fewer than there are for a member of a group that keeps to some.
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
    n_within: int = -1

    def __post_init__(self) -> None:
        if self.n_within < 0:
            self.n_within = self.n_nodes

    @classmethod
    def blank(cls, n_nodes: int) -> Diagnosis:
        """Every node feasible so far."""
        return cls(n_nodes, np.full(n_nodes, FEASIBLE, dtype=np.int16), np.zeros(n_nodes, dtype=np.uint16))

    @property
    def feasible(self) -> Rows:
        """The rows nobody refused, ascending."""
        return np.flatnonzero(self.rejected_by == FEASIBLE)

    def refused_by(self, plugins: Collection[str]) -> Bools:
        """Return bool (n_nodes,), the nodes that one of some Filter plugins was the first to refuse."""
        places = [place for place, name in enumerate(self.plugins) if name in plugins]
        return np.isin(self.rejected_by, places)

    @property
    def n_not_examined(self) -> int:
        """How many nodes nobody looked at."""
        return int(np.count_nonzero(self.rejected_by == NOT_EXAMINED))

    def avoid(self, feasible: Rows, avoided: Mapping[int, str]) -> Rows:
        """Return the feasible rows without those to be avoided, or all if there are no others.

        Args:
            feasible: what nobody refused.
            avoided: row -> why.
        """
        if not avoided:
            return feasible
        self.avoided = avoided
        others = feasible[~np.isin(feasible, list(avoided))]
        return others if others.size else feasible

    @property
    def unschedulable_plugins(self) -> frozenset[str]:
        """Every plugin that refused anything."""
        return frozenset(plugin for plugin, _ in self._rejections())

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The ones that answered PENDING."""
        return frozenset(plugin for plugin, code in self._rejections() if code is Code.PENDING)

    def _rejections(self) -> Iterator[tuple[str, Code]]:
        for plugin in self.narrowing_plugins:
            yield plugin, Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        status = self.pre_filter_status
        if status is not None and status.plugin and status.code.is_rejection:
            yield status.plugin, status.code
        for plugin, outcome, _ in self._refusals():
            if outcome.code.is_rejection and plugin in self.plugins:
                yield plugin, outcome.code

    def reject_all(self, status: Status, narrowing_plugins: Iterable[str] = ()) -> None:
        """Note PreFilter's rejection of the pod, whatever the node, and who narrowed the search before it."""
        self.pre_filter_status = status
        self.narrowing_plugins = tuple(sorted(narrowing_plugins))

    def narrow(self, keep: Bools, node_names: frozenset[str], plugins: tuple[str, ...]) -> None:
        """Note that PreFilter left only some nodes to be judged; `keep` is bool (n_nodes,)."""
        self.narrowed_to = node_names
        self.narrowing_plugins = plugins
        self.rejected_by[~keep] = NARROWED

    def take_over(
        self,
        plugins: Sequence[str],
        tables: Sequence[tuple[Outcome, ...]],
        rejected_by: np.ndarray[tuple[int], np.dtype[np.int16]],
        index: UInt16s,
        *,
        has_failures: bool,
    ) -> None:
        """Begin with what the first plugins say of all nodes; the arrays are as the attributes, and are copied."""
        self.plugins, self.tables = list(plugins), list(tables)
        self.rejected_by, self.index = rejected_by.copy(), index.copy()
        self.has_failures = has_failures

    def reject(self, plugin: str, table: tuple[Outcome, ...], at_rows: UInt16s, rows: Rows) -> Rows:
        """Note what one plugin says of the nodes still standing, and return those that still stand.

        Args:
            plugin: its name.
            table: as in its `Outcomes`.
            at_rows: uint16 (len(rows),), places in the table.
            rows: the nodes it was asked about.
        """
        refused = at_rows != 0
        if not refused.any():
            return rows
        place = len(self.plugins)
        self.plugins.append(plugin)
        self.tables.append(table)
        refused_rows, numbers = rows[refused], at_rows[refused]
        self.rejected_by[refused_rows] = place
        self.index[refused_rows] = numbers
        occurring = np.flatnonzero(np.bincount(numbers)).tolist()
        self.has_failures |= any(table[number].code is Code.ERROR for number in occurring)
        standing: Rows = rows[~refused]
        return standing

    def leave_out(self, rows: Rows) -> None:
        """Take nodes out of the verdict: nobody looked at them, or it does not count."""
        self.rejected_by[rows] = NOT_EXAMINED

    def look_within(self, rows: Rows) -> None:
        """Note that other nodes than these are out of question, whatever was said of them."""
        others = np.ones(self.n_nodes, dtype=np.bool_)
        others[rows] = False
        self.rejected_by[others] = NOT_EXAMINED
        self.n_within = len(rows)

    def look_at_only(self, rows: Rows) -> None:
        """Note that nobody looked at other nodes than these, which are feasible."""
        self.rejected_by[:] = NOT_EXAMINED
        self.rejected_by[rows] = FEASIBLE

    def outcome_of(self, row: int) -> tuple[str, Outcome] | None:
        """Return who refused a node and how; None for one that is feasible or was not examined.

        Of nodes that PreFilter narrowed away, "who" is every narrowing plugin, comma separated.
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
        """Return (plugin, outcome, row) of a node whose judging failed, if any did."""
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
        """Return how many nodes were refused for each reason; a node may have several."""
        counts: Counter[str] = Counter()
        for _, outcome, nodes in self._refusals():
            for reason in outcome.reasons:
                counts[reason] += nodes
        return counts

    def _refusals(self) -> Iterator[tuple[str, Outcome, int]]:
        """Yield (plugin, outcome, how many nodes)."""
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
