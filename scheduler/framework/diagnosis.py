"""Why a pod does not fit on nodes: each Filter plugin's result for every node, and kube-scheduler's messages.

A mask alone cannot give a reason. The event "0/5 nodes are available: 3 Insufficient cpu." and `explain` use
the same object.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scheduler.framework.reasons import (
    EXCLUDED_BY_PRE_FILTER,
    NO_NODES_CODE,
    Cause,
    Reason,
    causes_by_number,
    codes_of,
)
from scheduler.framework.status import Code, Status
from scheduler.snapshot.arrays import own, put_where, selected, shared

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from scheduler.snapshot import Bools, Rows, UInt16s

_MOST = np.iinfo(np.uint16).max
_MOST_REASONS_KNOWN = 256
"""Larger tables are checked each time, and not cached."""


class Outcome(NamedTuple):
    """The result for a node: a code, and the reasons as kube-scheduler writes them."""

    code: Code
    reasons: tuple[str, ...]


PASS = Outcome(Code.SUCCESS, ())


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One plugin's result for every node.

    Attributes:
        index: uint16 (n_nodes,); 0 if the node passes, else an index of `table`.
        table: (code, reasons) for each index, the first is PASS; a reason is the text that kube-scheduler
            prints after the count, as in "3 Insufficient cpu", perhaps with a code, see `Reason`. Unused entries are
            allowed.

    Raises:
        ValueError: the table does not begin with PASS, is longer than 65536, has a rejection without a
            reason, or has reasons that are not a tuple of strings.
    """

    index: UInt16s
    table: tuple[Outcome, ...]

    def __post_init__(self) -> None:
        try:
            if sum([len(outcome[1]) for outcome in self.table]) > _MOST_REASONS_KNOWN:
                _check_table.__wrapped__(self.table)
            else:
                _check_table(self.table)
        except TypeError:  # a list in it, which is not hashable
            _check_words(self.table)
            raise

    @classmethod
    def all_pass(cls, n_nodes: int) -> Self:
        """Return outcomes in which every node passes."""
        return cls(np.zeros(n_nodes, dtype=np.uint16), (PASS,))

    @classmethod
    def reject(cls, rejected: Bools, reason: str, *, resolvable: bool = True) -> Self:
        """Reject some nodes, all for one reason.

        Args:
            rejected: bool (n_nodes,), True if the node cannot run the pod.
            reason: text for people, as in "node(s) were unschedulable".
            resolvable: whether removing pods from such a node might help.

        Raises:
            TypeError: `rejected` is not an array of bool.
        """
        found: object = rejected
        if not isinstance(found, np.ndarray) or found.dtype != np.bool_:
            raise TypeError(f"reject takes an array of bool, one per node, was {found!r:.200}")
        code = Code.UNSCHEDULABLE if resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return cls(rejected.astype(np.uint16), (PASS, Outcome(code, (reason,))))

    @classmethod
    def from_statuses(cls, n_nodes: int, rows: Rows, statuses: Iterable[Status]) -> Self:
        """Collect one status per row; other rows pass.

        Raises:
            ValueError: a status is neither a success, a rejection nor an error, or there are more than 65535
                different ones.
        """
        index = np.zeros(n_nodes, dtype=np.uint16)
        places: dict[Outcome, int] = {PASS: 0}
        for row, status in zip(rows.tolist(), statuses, strict=True):
            outcome = PASS if status.is_success else Outcome(status.code, status.reasons)
            place = places.setdefault(outcome, len(places))
            if place > _MOST:
                raise ValueError("more than 65535 different outcomes; leave out what differs for each node")
            index[row] = place
        return cls(index, tuple(places))

    @property
    def passing(self) -> Bools:
        """Bool (n_nodes,), True where the node passes."""
        passing: Bools = self.index == 0
        return passing

    def of(self, row: int) -> Outcome:
        """Return the outcome of one node."""
        return self.table[int(self.index[row])]

    def taken(self, rows: Rows) -> Self:
        """Return the outcomes of some rows, (len(rows),)."""
        return type(self)(self.index[rows], self.table)

    def spread(self, rows: Rows, n_nodes: int) -> Self:
        """Return outcomes of n_nodes: these ones at `rows`; all others pass."""
        index = np.zeros(n_nodes, dtype=np.uint16)
        index[rows] = self.index
        return type(self)(index, self.table)


# A plugin returns the same table cycle after cycle, so the check is cached.
@lru_cache(maxsize=1024)
def _check_table(table: Sequence[Outcome]) -> None:
    if not table or table[0] != PASS:
        raise ValueError(f"the first outcome of a table is PASS, was {table[:1]}")
    if len(table) > _MOST + 1:
        raise ValueError(f"a table holds at most 65536 outcomes, was {len(table)}")
    for outcome in table[1:]:
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise ValueError(f"an outcome is (code, reasons), was {outcome!r}")
        if outcome[0] is not Code.ERROR and not Code(outcome[0]).is_rejection:
            raise ValueError(f"a node is rejected with Unschedulable or Error, was {outcome[0].value}")
        if not outcome[1]:
            raise ValueError("a rejected node needs a reason")
    _check_words(table)


def _check_words(table: Sequence[Outcome]) -> None:
    """Reject a common mistake: a single string would be read letter by letter."""
    if not isinstance(table, tuple):
        raise ValueError(f"Outcomes.table is a tuple, was {type(table).__name__}")  # noqa: TRY004 - as the other faults
    for outcome in table:
        code, reasons = outcome
        found: object = reasons
        if not isinstance(found, tuple) or not all(isinstance(reason, str) for reason in found):
            fix = f"({found!r},)" if isinstance(found, str) else "(reason, ...)"
            raise ValueError(
                f"the reasons of {Code(code).value} are a tuple of texts, write {fix}; was {found!r:.200}"
            )


FEASIBLE = -1
"""In `Diagnosis.rejected_by`: no plugin rejected the node."""
NARROWED = -2
"""In `Diagnosis.rejected_by`: PreFilter narrowed the search to other nodes."""
NOT_EXAMINED = -3
"""In `Diagnosis.rejected_by`: the node was not evaluated."""

_FEW = 4
"""If fewer than one of this number of nodes remain, they are selected before they are compared."""


# Only the last numbers of nodes: every diagnosis of a cluster begins with the same arrays.
@lru_cache(maxsize=2)
def _blank_arrays(n_nodes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return shared(np.full(n_nodes, FEASIBLE, dtype=np.int8)), shared(np.zeros(n_nodes, dtype=np.uint8))


NO_NODES = Reason("no nodes available to schedule pods", NO_NODES_CODE)


@dataclass(slots=True)
class Diagnosis:
    """The result for every node of a snapshot.

    Its arrays have the smallest type that suffices. Arrays that are read-only are shared with other diagnoses or with cached
    results, and are copied before the first change.

    Attributes:
        n_nodes: number of nodes.
        rejected_by: int8 or int16 (n_nodes,), the index in `plugins` of the first one that rejected the node, or
            FEASIBLE, NARROWED or NOT_EXAMINED.
        index: uint8 or uint16 (n_nodes,), the index in that plugin's table, if a plugin rejected the node.
        plugins: the called Filter plugins, in order; one that was called twice occurs twice.
        tables: the tables of their outcomes, in the same order.
        has_failures: whether the evaluation of some node failed.
        pre_filter_status: PreFilter's rejection of the pod on all nodes.
        narrowed_to: the node names that PreFilter restricted the search to; None without a restriction.
        narrowing_plugins: the plugins that restricted the search, sorted.
        post_filter_message: PostFilter's message; "" without one.
        post_filter_causes: why PostFilter found no node either.
        avoided: row -> reason, of the nodes that are used only if no other is feasible.
        n_within: number of eligible nodes: fewer than `n_nodes` for a member of a group with a placement.
    """

    n_nodes: int
    rejected_by: NDArray[Any]
    index: NDArray[Any]
    plugins: list[str] = field(default_factory=list)
    tables: list[tuple[Outcome, ...]] = field(default_factory=list)
    has_failures: bool = False
    pre_filter_status: Status | None = None
    narrowed_to: frozenset[str] | None = None
    narrowing_plugins: tuple[str, ...] = ()
    post_filter_message: str = ""
    post_filter_causes: tuple[Cause, ...] = ()
    avoided: Mapping[int, str] = field(default_factory=dict)
    n_within: int = field(kw_only=True)
    _counted: list[tuple[str, Outcome, int]] | None = field(default=None, repr=False, compare=False)
    # All feasible rows, if they are known.
    _feasible: Rows | None = field(default=None, repr=False, compare=False)

    @classmethod
    def blank(cls, n_nodes: int) -> Diagnosis:
        """Return a diagnosis in which every node is feasible."""
        return cls(n_nodes, *_blank_arrays(n_nodes), n_within=n_nodes)

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
        self._mark(~keep, NARROWED)

    def _mark(self, nodes: Bools | Rows, what: int) -> None:
        self.rejected_by = own(self.rejected_by)
        self.rejected_by[nodes] = what
        self._counted = self._feasible = None

    def take_over(
        self,
        plugins: Sequence[str],
        tables: Sequence[tuple[Outcome, ...]],
        rejected_by: NDArray[Any],
        index: NDArray[Any],
        feasible: Rows,
        *,
        has_failures: bool,
    ) -> None:
        """Begin with the first plugins' results for all nodes; arrays are as in the attributes, and read-only from now on."""
        self.plugins, self.tables = list(plugins), list(tables)
        self.rejected_by, self.index, self._feasible = shared(rejected_by), shared(index), feasible
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
        places = np.flatnonzero(rejected)
        if not places.size:
            return rows
        place = self._add(plugin, table)
        rejected_rows, numbers = rows[places], at_rows[places]
        self.rejected_by[rejected_rows] = place
        self.index[rejected_rows] = numbers
        self._note_failures(table, numbers)
        return selected(rows, ~rejected)

    def reject_across(self, plugin: str, table: tuple[Outcome, ...], index: UInt16s, rows: Rows) -> Rows:
        """Record one plugin's result as `reject` does; `index` is (n_nodes,), and valid at `rows`.

        All nodes are compared, because to select the remaining ones takes many times as long.
        """
        if _FEW * len(rows) < self.n_nodes:
            return self.reject(plugin, table, index[rows], rows)
        remaining = self.rejected_by == FEASIBLE
        are_all = rows is self._feasible or (len(rows) == self.n_nodes and bool(remaining.all()))
        if not are_all:  # others are feasible too, or the results of some of these nodes are replaced
            remaining = np.zeros(self.n_nodes, dtype=np.bool_)
            remaining[rows] = True
        rejected = (index != 0) & remaining
        if not rejected.any():
            return rows
        place = self._add(plugin, table)
        put_where(self.rejected_by, rejected, place)
        put_where(self.index, rejected, index)
        self._note_failures(table, index, rejected)
        left = np.flatnonzero(remaining > rejected)
        self._feasible = left if are_all else None
        return left

    def _add(self, plugin: str, table: tuple[Outcome, ...]) -> int:
        """Add a plugin that rejects nodes, with room in the arrays for its numbers, and return its place."""
        place = len(self.plugins)
        self.plugins.append(plugin)
        self.tables.append(table)
        self.rejected_by, self.index = own(self.rejected_by, place), own(self.index, len(table) - 1)
        self._counted = self._feasible = None
        return place

    def _note_failures(
        self, table: tuple[Outcome, ...], numbers: UInt16s, rejected: Bools | None = None
    ) -> None:
        """Record whether some of the nodes failed; `rejected` is where `numbers` are valid, None is everywhere."""
        if self.has_failures:
            return
        failures = [number for number, outcome in enumerate(table) if outcome.code is Code.ERROR]
        if failures:
            failed = np.isin(numbers, failures)
            self.has_failures = bool(failed.any() if rejected is None else (failed & rejected).any())

    def leave_out(self, rows: Rows) -> None:
        """Mark nodes as not evaluated: they were skipped, or their result does not count."""
        self._mark(rows, NOT_EXAMINED)

    def look_within(self, rows: Rows) -> None:
        """Record that only these nodes are eligible, whatever the results of the others."""
        others = np.ones(self.n_nodes, dtype=np.bool_)
        others[rows] = False
        self._mark(others, NOT_EXAMINED)
        self.n_within = len(rows)

    def look_at_only(self, rows: Rows) -> None:
        """Record that only these nodes, which are feasible, were evaluated."""
        self.rejected_by = np.full_like(self.rejected_by, NOT_EXAMINED)
        self._mark(rows, FEASIBLE)

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

    def causes(self) -> tuple[Cause, ...]:
        """Return why no node fits, the cause of most nodes first; a node counts once for each code. Those of PostFilter follow."""
        if self.pre_filter_status is not None:
            return (*self.pre_filter_status.causes, *self.post_filter_causes)
        nodes: Counter[tuple[str, str]] = Counter()
        for plugins, outcome, number in self.rejections():
            if outcome.code.is_rejection:
                for plugin in plugins.split(","):  # several, if they narrowed the search together
                    for code in codes_of(outcome.reasons, plugin):
                        nodes[code, plugin] += number
        return (*(Cause(*cause) for cause in causes_by_number(nodes)), *self.post_filter_causes)

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
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            (Reason(f"node(s) didn't satisfy plugin(s) [{plugins}]", EXCLUDED_BY_PRE_FILTER),),
        )
