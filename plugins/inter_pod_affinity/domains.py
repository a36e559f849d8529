"""Numbers by topology domain: a node counts the pods of its own domain."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from plugins.pod_topology_spread.constraints import lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from scheduler.snapshot import Bools, Int64s, Interned, Rows, Snapshot


class Domains:
    """A number for each value of a label, with differences for single rows.

    A change on a row is visible from that row only: all other rows see their domain as it was counted, even if they
    share it.
    """

    __slots__ = ("_changes", "_label", "_numbers")

    def __init__(self, label: Interned[str | None], numbers: Int64s, changes: Counter[int]) -> None:
        self._label = label
        self._numbers = numbers  # by the label's code; 0 for nodes without the label
        self._changes = changes  # row -> the difference of its domain, visible from this row only

    @classmethod
    def empty(cls, label: Interned[str | None]) -> Self:
        """Return domains that all have 0."""
        return cls(label, np.zeros(len(label.values), dtype=np.int64), Counter())

    @classmethod
    def added_up(cls, label: Interned[str | None], rows: Rows, amounts: Int64s) -> Self | None:
        """Add amounts of rows to their domains; None if no row has the label, so that there is no domain."""
        codes, none = label.codes[rows], label.values.index(None)
        if not (codes != none).any():
            return None
        # Such sums are exact in 64-bit floating point.
        numbers = np.bincount(codes, weights=amounts, minlength=len(label.values)).astype(np.int64)
        numbers[none] = 0
        return cls(label, numbers, Counter())

    def clone(self) -> Self:
        return type(self)(self._label, self._numbers, self._changes.copy())

    def change(self, amounts: Mapping[int, int]) -> None:
        """Add row -> amount to the domain of each row, visible from that row; a row without the label has none."""
        changed = np.fromiter(amounts, dtype=np.intp, count=len(amounts))
        labelled = self._label.codes[changed] != self._label.values.index(None)
        for row in changed[labelled].tolist():
            self._changes[row] += amounts[row]

    @property
    def lacking(self) -> Bools:
        """Bool (n_nodes,), where nodes lack the label."""
        return lacking(self._label)

    def here(self) -> Int64s:
        """Return the number of each node's domain, (n_nodes,); 0 where the node lacks the label."""
        here: Int64s = self._numbers[self._label.codes]
        if self._changes:
            rows, amounts = self._changed()
            here[rows] += amounts
        return here

    def occupied(self) -> Int64s:
        """Return how many domains have a number other than 0, seen from each node, (n_nodes,)."""
        seen = np.full(len(self._label.codes), np.count_nonzero(self._numbers), dtype=np.int64)
        if self._changes:
            rows, amounts = self._changed()
            before = self._numbers[self._label.codes[rows]]
            seen[rows] += (before + amounts != 0).astype(np.int64) - (before != 0)
        return seen

    def _changed(self) -> tuple[Rows, Int64s]:
        count = len(self._changes)
        rows = np.fromiter(self._changes, dtype=np.intp, count=count)
        return rows, np.fromiter(self._changes.values(), dtype=np.int64, count=count)


def added_up(snapshot: Snapshot, found: Iterable[tuple[str, Rows, Int64s]]) -> dict[str, Domains]:
    """Add up amounts by topology key.

    Args:
        snapshot: the cluster.
        found: (topology key, rows, amount for each of them); keys and rows may repeat.

    Returns:
            Topology key -> domains; only keys with an amount, even 0, on a node with that label.
    """
    by_key: defaultdict[str, list[tuple[Rows, Int64s]]] = defaultdict(list)
    for key, rows, amounts in found:
        if rows.size:
            by_key[key].append((rows, amounts))
    domains = {}
    for key, parts in by_key.items():
        all_rows, all_amounts = (
            parts[0] if len(parts) == 1 else (np.concatenate(each) for each in zip(*parts, strict=True))
        )
        of_key = Domains.added_up(snapshot.label(key), all_rows, all_amounts)
        if of_key is not None:
            domains[key] = of_key
    return domains
