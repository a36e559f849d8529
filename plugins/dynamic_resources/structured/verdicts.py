"""What was said of nodes, kept until what they see, or what is taken of it, changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from plugins.dynamic_resources.structured.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from plugins.dynamic_resources.structured.allocated import AllocatedDevices, PoolID
    from plugins.dynamic_resources.structured.errors import Verdict
    from plugins.dynamic_resources.structured.pools import Pools
    from plugins.dynamic_resources.structured.requests import Question
    from scheduler.snapshot import Rows, UInt16s

    Said = tuple[UInt16s, tuple[Verdict, ...]]


_MOST_PLACES = 30_000
_VIEWS_OF_A_STEP = 16
_WORK_OF_A_STEP = 256


class OutOfTime:
    """Said of nodes where a search took too long."""


OUT_OF_TIME = OutOfTime()


class Searching(Protocol):
    """Says whether claims can be given devices of some pools that matter."""

    def known(self, pools: Pools) -> Verdict | OutOfTime:
        """Return what was found in pools that are alike; OUT_OF_TIME if nothing was."""
        ...

    def verdict(self, pools: Pools) -> Generator[None, None, Verdict | OutOfTime]:
        """Return what a search comes to; OUT_OF_TIME if it takes too long."""
        ...


class Verdicts:
    """What was said to one question. It depends on the pools that matter of those that a node sees, and on what is taken.

    To find out what is to be said may take long, and be left and begun again; to say it does not. That a search took too
    long ends the attempt: other nodes are not searched then, and it is said once.
    """

    def __init__(self) -> None:
        self._said: dict[Pools, Verdict] = {}
        self._depending: dict[PoolID, set[Pools]] = {}  # pool -> what was said of it and others
        self._changes = 0
        self._out_of_time: Pools | None = None
        # What was said of all nodes: see `find_all`.
        self._views: Mapping[Pools, Rows] | None = None
        self._rows: dict[Pools, Rows] = {}
        self._missing: set[Pools] = set()  # those of them of which nothing is said yet
        self._index: UInt16s = np.zeros(0, dtype=np.uint16)
        self._places: dict[Verdict, int] = {}

    def find_all(
        self,
        views: Mapping[Pools, Rows],
        n_nodes: int,
        allocated: AllocatedDevices,
        question: Question,
        searching: Searching,
    ) -> Generator[None, None, None]:
        """Find out of all nodes whether claims can be given devices there; only what is new is searched.

        Args:
            views: the pools that nodes see -> their rows; another object if any of that changed.
            n_nodes: how many rows there are.
            allocated: what is taken.
            question: says which pools matter.
            searching: searches.
        """
        self._forget(allocated)
        if views is not self._views or len(self._places) > _MOST_PLACES:
            together: dict[Pools, list[Rows]] = {}
            work = 0
            for seen, rows in views.items():
                pools = question.known_matter(seen)
                if pools is None:
                    pools = yield from question.matter(seen)
                work += _work(seen)
                if work > _WORK_OF_A_STEP:
                    work = 0
                    yield
                together.setdefault(pools, []).append(rows)
            self._lay_out(views, together, n_nodes)
        if self._missing:
            # In a fixed order, so that where it ends for want of time does not depend on chance.
            if 4 * len(self._missing) > len(self._rows):
                missing = [pools for pools in self._rows if pools in self._missing]
            else:
                missing = sorted(self._missing, key=self._first_row)
            yield from self._find(missing, allocated, searching)
            if not self._missing:
                self._missing.clear()  # a set that was large stays so, and is slow to go through, until it is cleared

    def all(self, node_name: Callable[[int], str]) -> Said:
        """Return what was found out of all nodes.

        Args:
            node_name: returns the name of the node in a row.

        Returns:
            index: (n_nodes,), a place in the table for each row.
            table: what places mean; the first is None.
        """
        index, table = self._index.copy(), tuple(self._places)
        if self._missing:
            assert self._out_of_time is not None, "else all was found out"
            for pools in self._missing:
                index[self._rows[pools]] = len(table)
            table = (*table, self._too_long(node_name(self._first_row(self._out_of_time))))
        return index, table

    def find_some(
        self,
        views: Mapping[Pools, Rows],
        allocated: AllocatedDevices,
        question: Question,
        searching: Searching,
    ) -> Generator[None, None, None]:
        """Find out the same of some nodes, as `find_all`."""
        self._forget(allocated)
        wanted: list[Pools] = []
        work = 0
        for seen in views:
            pools = question.known_matter(seen)
            if pools is None:
                pools = yield from question.matter(seen)
            work += _work(seen)
            if work > _WORK_OF_A_STEP:
                work = 0
                yield
            wanted.append(pools)
        missing = dict.fromkeys(pools for pools in wanted if pools not in self._said)
        if missing:
            yield from self._find(missing, allocated, searching)

    def some(
        self,
        views: Mapping[Pools, Rows],
        n_nodes: int,
        question: Question,
        node_name: Callable[[int], str],
    ) -> Said:
        """Return what was found out of some nodes, as `all`; what is said of others is place 0."""
        index = np.zeros(n_nodes, dtype=np.uint16)
        places: dict[Verdict, int] = {None: 0}
        missing = []
        first = 0
        for seen, rows in views.items():
            pools = question.known_matter(seen)
            assert pools is not None, "it was asked"
            if pools in self._said:
                index[rows] = places.setdefault(self._said[pools], len(places))
                continue
            missing.append(rows)
            if pools == self._out_of_time:
                first = int(rows[0])
        for rows in missing:
            index[rows] = len(places)
        if missing:
            assert self._out_of_time is not None, "else all was found out"
            return index, (*places, self._too_long(node_name(first)))
        return index, tuple(places)

    def is_about(self, views: Mapping[Pools, Rows]) -> bool:
        """Say whether all nodes that see this were judged before."""
        return self._views is views

    def _too_long(self, node_name: str) -> Refusal:
        """Say once that a search took too long: the next attempt may search again."""
        self._out_of_time = None
        return Refusal(f"node {node_name}: timed out trying to allocate devices", is_error=True)

    def _first_row(self, pools: Pools) -> int:
        return int(self._rows[pools][0])

    def _find(
        self, missing: Iterable[Pools], allocated: AllocatedDevices, searching: Searching
    ) -> Generator[None, None, None]:
        if self._out_of_time is not None:
            return
        work = 0
        for pools in missing:
            if work >= _VIEWS_OF_A_STEP:
                work = 0
                yield
            if pools in self._said:
                continue
            verdict = searching.known(pools)
            work += 1
            if isinstance(verdict, OutOfTime):
                verdict = yield from searching.verdict(pools)
                # Others may have taken devices meanwhile; what was found holds now.
                self._forget(allocated)
                if isinstance(verdict, OutOfTime):
                    self._out_of_time = pools
                    self._depend(pools)
                    return
                work = _VIEWS_OF_A_STEP
            self._remember(pools, verdict)

    def _lay_out(
        self, views: Mapping[Pools, Rows], together: Mapping[Pools, list[Rows]], n_nodes: int
    ) -> None:
        self._rows = {
            pools: rows[0] if len(rows) == 1 else np.concatenate(rows) for pools, rows in together.items()
        }
        said, self._said, self._depending = self._said, {}, {}
        self._missing = set(self._rows)
        self._index = np.zeros(n_nodes, dtype=np.uint16)
        self._places = {None: 0}
        self._views = views
        for pools in self._rows:
            if pools in said:
                self._remember(pools, said[pools])
        if self._out_of_time in self._rows:
            self._depend(self._out_of_time)
        else:
            self._out_of_time = None

    def _remember(self, pools: Pools, verdict: Verdict) -> None:
        self._said[pools] = verdict
        self._depend(pools)
        rows = self._rows.get(pools)
        if rows is not None:
            self._missing.discard(pools)
            self._index[rows] = self._places.setdefault(verdict, len(self._places))

    def _depend(self, pools: Pools) -> None:
        for pool in pools:
            self._depending.setdefault(pool.id, set()).add(pools)

    def _forget(self, allocated: AllocatedDevices) -> None:
        """Forget what depends on what was taken or given back since the last time."""
        if allocated.changes == self._changes:
            return
        changed = allocated.changed_since(self._changes)
        self._changes = allocated.changes
        for pool in tuple(self._depending) if changed is None else changed:
            for pools in self._depending.pop(pool, ()):
                self._said.pop(pools, None)
                if pools in self._rows:
                    self._missing.add(pools)
                if pools == self._out_of_time:
                    self._out_of_time = None


def _work(seen: Pools) -> int:
    """Return how much work it may be to look at some pools, in devices."""
    return 4 + (len(seen[0].devices) if len(seen) == 1 else sum(len(pool.devices) for pool in seen))
