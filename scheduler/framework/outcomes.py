"""One Filter plugin's result for every node: an index into a table of outcomes.

A mask alone cannot give a reason. The event "0/5 nodes are available: 3 Insufficient cpu." and `explain` use
the same object.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scheduler.framework.status import Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

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
            prints after the count, as in "3 Insufficient cpu". Unused entries are allowed.

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
