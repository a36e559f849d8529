"""Sums the weights of many node selector terms on each node, in steps.

Each term is read and evaluated requirement by requirement, on all nodes at once; only the sums are kept. Nodes that
change meanwhile are evaluated again afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np

from scheduler.objects.caches import BoundedDict
from scheduler.objects.selectors import METADATA_NAME, Operator, SelectorError, read_node_term

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Sequence

    from numpy.typing import NDArray

    from scheduler.objects.selectors import NodeSelectorTerm, Requirement
    from scheduler.snapshot.arrays import Bools, ChangeLog, Int64s, Rows
    from scheduler.snapshot.interning import Interned

T = TypeVar("T", bound=np.generic)

_REQUIREMENTS_A_STEP: Final = 32
"""Number of requirements evaluated in one step; it takes about a millisecond with 5000 nodes."""
_MOST_TALLIES: Final = 16
"""Maximum number of cached tallies; the least recently used tally is dropped first."""
NUMBERS: Final = (Operator.GT, Operator.LT)
"""The operators that compare a label's value as a number."""


class Nodes(Protocol):
    """The node data that a tally reads; see `Snapshot`."""

    @property
    def n_nodes(self) -> int: ...
    def has_label(self, key: str) -> bool: ...
    def label(self, key: str) -> Interned[str | None]: ...
    def row_of(self, node_name: str) -> int | None: ...


@dataclass(frozen=True, slots=True)
class WeighedTerms:
    """Node selector terms, with the weight that each adds to matching nodes.

    Attributes:
        key: equal keys mean equal lists of terms.
        terms: the terms of the pod spec; an empty term matches no node.
        weights: the weight of each term; None means 1 for all terms.
        needs_rules: whether an invalid term is an error; otherwise it matches no node.
    """

    key: Hashable
    terms: Sequence[NodeSelectorTerm] = field(compare=False)
    weights: Sequence[int] | None = field(default=None, compare=False)
    needs_rules: bool = field(default=False, compare=False)


class NodeTally(Protocol):
    """The sums of one list of terms on each node; see `Snapshot.node_tally`."""

    def steps(self) -> Generator[None, None, None]:
        """Compute the unknown sums, in steps of a few milliseconds; nodes may change between steps.

        Raises:
            SelectorError: a term is invalid and `needs_rules` is set.
        """

    def worth(self) -> Int64s:
        """Return int64 (n_nodes,), the sums of the matching terms; valid only after all steps and before any change."""


class KeptNodeTally:
    """Implements `NodeTally`.

    Args:
        nodes: the current nodes.
        changes: the log of changed nodes.
        terms: the list of terms.
    """

    def __init__(self, nodes: Nodes, changes: ChangeLog, terms: WeighedTerms) -> None:
        self._nodes, self._changes, self._terms = nodes, changes, terms
        self._known: Bools = np.zeros(0, dtype=np.bool_)
        self._worth: Int64s = np.zeros(0, dtype=np.int64)
        self._seen = changes.end
        self._judging: Generator[None, None, None] | None = None
        self._error: SelectorError | None = None
        self._work = 0  # number of requirements read so far

    def steps(self) -> Generator[None, None, None]:
        while True:
            if self._error is not None:
                raise self._error
            self._follow()
            if self._judging is None:
                unknown = np.flatnonzero(~self._known)
                if not unknown.size:
                    return
                self._judging = self._judge(unknown)
            judging, self._judging = self._judging, None  # an error discards it
            try:
                next(judging)
            except SelectorError as error:
                self._error = error
            except StopIteration:
                pass
            else:
                self._judging = judging
            yield

    def worth(self) -> Int64s:
        self._follow()
        assert self._known.all(), "called before all steps"
        return self._worth.copy()

    def _follow(self) -> None:
        """Drop the sums of changed nodes."""
        n_nodes = self._nodes.n_nodes
        if len(self._known) != n_nodes:
            self._known, self._worth = _resized(self._known, n_nodes), _resized(self._worth, n_nodes)
        rows = self._changes.since(self._seen)
        self._seen = self._changes.end
        if rows is None:
            self._known[:] = False
        else:
            self._known[[row for row in rows if row < n_nodes]] = False

    def _judge(self, rows: Rows) -> Generator[None, None, None]:
        """Evaluate all terms on rows; rows that change meanwhile stay unknown."""
        began = self._changes.end
        worth = np.zeros(len(rows), dtype=np.int64)
        for place, term in enumerate(self._terms.terms):
            weight = 1 if self._terms.weights is None else self._terms.weights[place]
            if weight and not term.is_empty:
                holds = yield from self._holding(rows, term, f"[{place}]")
                if holds is not None:
                    worth += holds * np.int64(weight)
        there = rows < len(self._known)
        self._worth[rows[there]], self._known[rows[there]] = worth[there], True
        changed = self._changes.since(began)
        if changed is None:
            self._known[:] = False
        else:
            self._known[[row for row in changed if row < len(self._known)]] = False

    def _holding(self, rows: Rows, term: NodeSelectorTerm, path: str) -> Generator[None, None, Bools | None]:
        """Find the rows that a term matches; None means no row."""
        holds: Bools | None = np.ones(len(rows), dtype=np.bool_)
        try:
            for read in read_node_term(term, path):
                self._work += 1
                if read is None or self._work % _REQUIREMENTS_A_STEP == 0:
                    yield
                if read is not None and holds is not None:
                    holds = self._narrowed(holds, rows, *read)
                if holds is None and not self._terms.needs_rules:
                    break
        except SelectorError:
            if self._terms.needs_rules:
                raise
            return None
        return holds

    def _narrowed(self, holds: Bools, rows: Rows, is_field: bool, requirement: Requirement) -> Bools | None:
        """Return `holds` restricted to the rows that a requirement matches; None means no row.

        The result is undefined for rows that were removed meanwhile; the caller drops it.
        """
        nodes = self._nodes
        if not is_field and not nodes.has_label(requirement.key):
            return holds if requirement.admits(None) else None
        if not nodes.n_nodes:
            return None
        there = rows if len(rows) == nodes.n_nodes else np.minimum(rows, nodes.n_nodes - 1)
        if is_field:
            return holds & nodes_with_field(nodes, requirement)[there]
        label = nodes.label(requirement.key)
        return holds & nodes_with_label(label if there is rows else label.take(there), requirement)


def nodes_with_label(label: Interned[str | None], requirement: Requirement) -> Bools:
    """Return bool (n_nodes,), the nodes that match a requirement on a label."""
    if requirement.operator in NUMBERS:
        is_number, numbers = label.numbers()
        is_above = requirement.operator is Operator.GT
        beyond = numbers > requirement.bound if is_above else numbers < requirement.bound
        found: Bools = label.spread(is_number & beyond)
        return found
    is_absent = requirement.operator in {Operator.EXISTS, Operator.DOES_NOT_EXIST}
    among = label.among((None,) if is_absent else requirement.values)
    return among if requirement.operator in {Operator.IN, Operator.DOES_NOT_EXIST} else ~among


def nodes_with_field(nodes: Nodes, requirement: Requirement) -> Bools:
    """Return bool (n_nodes,), the nodes that match a requirement on a field; fields except the name are empty."""
    if requirement.key != METADATA_NAME:
        return np.full(nodes.n_nodes, requirement.admits(""), dtype=np.bool_)
    named = np.zeros(nodes.n_nodes, dtype=np.bool_)
    for name in requirement.values:
        row = nodes.row_of(name)
        if row is not None:
            named[row] = True
    return named if requirement.operator is Operator.IN else ~named


class TakenNodeTally:
    """Implements `NodeTally` for some of the rows."""

    def __init__(self, base: NodeTally, rows: Rows) -> None:
        self._base, self._rows = base, rows
        self.steps = base.steps

    def worth(self) -> Int64s:
        return self._base.worth()[self._rows]


class NodeTallies:
    """A cache of recent tallies; see `KeptNodeTally` for the arguments."""

    __slots__ = ("_changes", "_kept", "_nodes")

    def __init__(self, nodes: Nodes, changes: ChangeLog) -> None:
        self._nodes, self._changes = nodes, changes
        self._kept: BoundedDict[Hashable, KeptNodeTally] = BoundedDict(_MOST_TALLIES)

    def of(self, terms: WeighedTerms) -> KeptNodeTally:
        """Return the tally of a list of terms; create it if necessary."""
        tally = self._kept.get(terms.key)
        if tally is None:
            tally = self._kept[terms.key] = KeptNodeTally(self._nodes, self._changes, terms)
        self._kept.move_to_end(terms.key)
        return tally


def _resized(cells: NDArray[T], length: int) -> NDArray[T]:
    """Return a copy of an array with another length; new elements are 0."""
    resized = np.zeros(length, dtype=cells.dtype)
    shared = min(len(cells), length)
    resized[:shared] = cells[:shared]
    return resized
