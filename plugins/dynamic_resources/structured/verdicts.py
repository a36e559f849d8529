"""What was said of nodes, kept until what they see, or what is taken of it, changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plugins.dynamic_resources.structured.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from plugins.dynamic_resources.structured.allocated import AllocatedDevices, PoolID
    from plugins.dynamic_resources.structured.errors import Verdict
    from plugins.dynamic_resources.structured.pools import Pools
    from scheduler.snapshot import Rows, UInt16s

    Search = Callable[[Pools, Rows], Verdict]
    Said = tuple[UInt16s, tuple[Verdict, ...]]


class Verdicts:
    """What was said to one question. It depends on the pools that matter of those that a node sees, and on what is taken.

    That an attempt fails is not kept: it names a claim.
    """

    def __init__(self) -> None:
        self._said: dict[Pools, Verdict] = {}
        self._depending: dict[PoolID, set[Pools]] = {}  # pool -> what was said of it and others
        self._changes = 0
        # What was said of all nodes: see `of_all`.
        self._views: Mapping[Pools, Rows] | None = None
        self._rows: dict[Pools, Rows] = {}
        self._index: UInt16s = np.zeros(0, dtype=np.uint16)
        self._places: dict[Verdict, int] = {}

    def of_all(
        self,
        views: Mapping[Pools, Rows],
        n_nodes: int,
        allocated: AllocatedDevices,
        matter: Callable[[Pools], Pools],
        search: Search,
    ) -> Said:
        """Say of all nodes whether claims can be given devices there; only what is new is searched, and written.

        Args:
            views: the pools that nodes see -> their rows; another object if any of that changed.
            n_nodes: how many rows there are.
            allocated: what is taken.
            matter: returns those of some pools that matter.
            search: says whether claims can be given devices of pools that nodes in some rows see.

        Returns:
            index: (n_nodes,), a place in the table for each row.
            table: what places mean; the first is None.
        """
        again: Iterable[Pools] = self._forget(allocated) & self._rows.keys()
        if views is not self._views:
            self._lay_out(views, n_nodes, matter)
            again = self._rows
        self._views = None
        has_errors = False
        for pools in again:
            verdict = self._verdict(pools, self._rows[pools], search)
            has_errors |= _is_error(verdict)
            self._index[self._rows[pools]] = self._places.setdefault(verdict, len(self._places))
        if not has_errors:
            self._views = views
        return self._index.copy(), tuple(self._places)

    def of_some(
        self,
        views: Mapping[Pools, Rows],
        n_nodes: int,
        allocated: AllocatedDevices,
        matter: Callable[[Pools], Pools],
        search: Search,
    ) -> Said:
        """Say the same of some nodes; what is said of others is place 0."""
        if self._forget(allocated):
            self._views = None
        index = np.zeros(n_nodes, dtype=np.uint16)
        places: dict[Verdict, int] = {None: 0}
        for seen, rows in views.items():
            verdict = self._verdict(matter(seen), rows, search)
            index[rows] = places.setdefault(verdict, len(places))
        return index, tuple(places)

    def is_about(self, views: Mapping[Pools, Rows]) -> bool:
        """Say whether all nodes that see this were judged before."""
        return self._views is views

    def _lay_out(self, views: Mapping[Pools, Rows], n_nodes: int, matter: Callable[[Pools], Pools]) -> None:
        together: dict[Pools, list[Rows]] = {}
        for seen, rows in views.items():
            together.setdefault(matter(seen), []).append(rows)
        self._rows = {
            pools: rows[0] if len(rows) == 1 else np.concatenate(rows) for pools, rows in together.items()
        }
        said, self._said, self._depending = self._said, {}, {}
        for pools in said.keys() & self._rows.keys():
            self._remember(pools, said[pools])
        self._index = np.zeros(n_nodes, dtype=np.uint16)
        self._places = {None: 0}

    def _verdict(self, pools: Pools, rows: Rows, search: Search) -> Verdict:
        if pools in self._said:
            return self._said[pools]
        verdict = search(pools, rows)
        if not _is_error(verdict):
            self._remember(pools, verdict)
        return verdict

    def _remember(self, pools: Pools, verdict: Verdict) -> None:
        self._said[pools] = verdict
        for pool in pools:
            self._depending.setdefault(pool.id, set()).add(pools)

    def _forget(self, allocated: AllocatedDevices) -> set[Pools]:
        """Forget what depends on what was taken or given back since the last time; return of whom."""
        changed = allocated.changed_since(self._changes)
        self._changes = allocated.changes
        forgotten: set[Pools] = set()
        for pool in tuple(self._depending) if changed is None else changed:
            forgotten |= self._depending.pop(pool, set())
        for pools in forgotten:
            self._said.pop(pools, None)
        return forgotten


def _is_error(verdict: Verdict) -> bool:
    return isinstance(verdict, Refusal) and verdict.is_error
