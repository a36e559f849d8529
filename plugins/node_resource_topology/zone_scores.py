"""Scores of nodes by their NUMA zones: by the share of a zone that a pod would take, or by how many zones it would need.

All values are int64 arrays; a row is a node.

Source:
    scheduler-plugins, pkg/noderesourcetopology: score.go, least_allocated.go, most_allocated.go, balanced_allocation.go and
    least_numa.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.node_resource_topology.zone_table import MISSING, SCORED_ZONES, distances, zone_combinations
from scheduler.framework import MAX_NODE_SCORE
from scheduler.objects.resource_names import CPU

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from plugins.node_resource_topology.requests import Amounts, ZoneRequest
    from plugins.node_resource_topology.zone_table import ZoneTable
    from scheduler.snapshot import Bools, Float64s, Int64s

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
BALANCED_ALLOCATION: Final = "BalancedAllocation"
LEAST_NUMA_NODES: Final = "LeastNUMANodes"

_MILLI: Final = 1000
_FAR: Final = np.iinfo(np.int64).max


class ZoneScores:
    """Scores nodes by one strategy.

    Args:
        strategy: its name.
        weights: resource -> its weight; 1 for others.
    """

    def __init__(self, strategy: str, weights: Mapping[str, int]) -> None:
        self._strategy = strategy
        self._weights = weights

    def scores(self, table: ZoneTable, slots: Int64s, request: ZoneRequest) -> Generator[None, None, Int64s]:
        """Return int64 (len(slots),), 0 to 100; a step takes one container."""
        found = np.zeros(len(slots), dtype=np.int64)
        for is_by_container in (False, True):
            scored = table.by_container[slots] == is_by_container
            if self._strategy != LEAST_NUMA_NODES:
                scored &= table.aligns[slots]
            places = np.flatnonzero(scored)
            if not places.size:
                continue
            every = [each.amounts for each in request.containers] if is_by_container else [request.whole]
            if self._strategy == LEAST_NUMA_NODES:
                found[places] = yield from _by_zones_needed(table, slots[places], every)
            else:
                found[places] = yield from self._by_shares(table, slots[places], every)
        return found

    def _by_shares(
        self, table: ZoneTable, slots: Int64s, every: list[Amounts]
    ) -> Generator[None, None, Int64s]:
        """Return the mean of the containers' scores."""
        total = np.zeros(len(slots), dtype=np.int64)
        for place, amounts in enumerate(every):
            if place:
                yield
            total += self._lowest(table, slots, amounts)
        return total // max(len(every), 1)

    def _lowest(self, table: ZoneTable, slots: Int64s, amounts: Amounts) -> Int64s:
        """Return the lowest score of a node's zones other than 0; a resource of which a zone has too little counts as 0."""
        if not amounts:
            return np.zeros(len(slots), dtype=np.int64)
        by_zone = self._balance(table, slots, amounts) if self._strategy == BALANCED_ALLOCATION else None
        if by_zone is None:
            by_zone = self._share(table, slots, amounts)
        exists = np.arange(table.width) < table.n_zones[slots][:, np.newaxis]
        lowest = np.where(exists & (by_zone != 0), by_zone, _FAR).min(axis=1, initial=_FAR)
        return np.where(lowest == _FAR, 0, lowest)

    def _share(self, table: ZoneTable, slots: Int64s, amounts: Amounts) -> Int64s:
        """Return (len(slots), width), the weighted mean of what would stay free, or be used, of each resource, in percent."""
        total = np.zeros((len(slots), table.width), dtype=np.int64)
        weights = 0
        for name, amount in amounts:
            weight = max(self._weights.get(name, 1), 1)
            weights += weight
            there = _there(table, slots, name)
            if there is None:
                continue
            capacity, requested = _in_units(name, there), int(_in_units(name, np.array([amount]))[0])
            used = capacity - requested if self._strategy == LEAST_ALLOCATED else np.int64(requested)
            scores = used * MAX_NODE_SCORE // np.maximum(capacity, 1)
            total += np.where((capacity > 0) & (amount <= there), scores, 0) * weight
        return total // weights

    def _balance(self, table: ZoneTable, slots: Int64s, amounts: Amounts) -> Int64s:
        """Return (len(slots), width), 100 where all resources would be used to the same degree."""
        shares: list[Float64s] = []
        for name, amount in amounts:
            there = _there(table, slots, name)
            if there is None:
                shares.append(np.ones((len(slots), table.width)))
                continue
            capacity = _in_units(name, there)
            requested = int(_in_units(name, np.array([amount]))[0])
            shares.append(np.where(capacity > 0, requested / np.maximum(capacity, 1), 1.0))
        fractions = np.stack(shares)
        variance = fractions.var(axis=0, ddof=1) if len(shares) > 1 else np.zeros(fractions.shape[1:])
        scores = ((1.0 - variance) * MAX_NODE_SCORE).astype(np.int64)
        return np.where((fractions > 1.0).any(axis=0), 0, np.maximum(scores, 0))


def _there(table: ZoneTable, slots: Int64s, resource: str) -> Int64s | None:
    """Return (len(slots), width), what is available, 0 where a zone lacks the resource; None if all do."""
    column = table.amounts(resource)
    return None if column is None else np.maximum(column[slots], 0)


def _in_units(resource: str, amounts: Int64s) -> Int64s:
    """Return whole cpus, rounded up, as scheduler-plugins scores them; other amounts stay."""
    return -(-amounts // _MILLI) if resource == CPU else amounts


# By the number of zones.


def _by_zones_needed(table: ZoneTable, slots: Int64s, every: list[Amounts]) -> Generator[None, None, Int64s]:
    """Return a higher score for fewer zones, and for the nearest ones of as many."""
    found = np.zeros(len(slots), dtype=np.int64)
    for n_zones in np.unique(table.n_zones[slots]).tolist():
        if n_zones > SCORED_ZONES:
            continue
        places = np.flatnonzero(table.n_zones[slots] == n_zones)
        found[places] = yield from _OfSomeZones(table, slots[places], n_zones, every).scores()
    return found


class _OfSomeZones:
    """The score of nodes with the same number of zones.

    Attributes:
        most: (n_rows,), how many zones the container with most of them needs.
        is_nearest: bool (n_rows,), whether no container could have zones nearer to each other.
        fits: bool (n_rows,), whether the zones hold all containers.
    """

    def __init__(self, table: ZoneTable, slots: Int64s, n_zones: int, every: list[Amounts]) -> None:
        self._n_zones, self._every = n_zones, every
        self._max_zones = table.max_zones[slots]
        _, first, self._model = np.unique(table.cost_ids[slots], return_index=True, return_inverse=True)
        self._models = [table.topology_at(slot) for slot in slots[first].tolist()]
        self._distances: dict[int, Int64s] = {}  # size of combinations -> see `_distances_of`
        names = dict.fromkeys(name for amounts in every for name, _ in amounts)
        none = np.full((len(slots), n_zones), MISSING, dtype=np.int64)
        self._available: dict[str, Int64s] = {}
        for name in names:
            column = table.amounts(name)
            self._available[name] = none if column is None else column[slots][:, :n_zones].copy()
        self.most = np.zeros(len(slots), dtype=np.int64)
        self.is_nearest = np.ones(len(slots), dtype=np.bool_)
        self.fits = np.ones(len(slots), dtype=np.bool_)

    def scores(self) -> Generator[None, None, Int64s]:
        for place, amounts in enumerate(self._every):
            if place:
                yield
            self._place(amounts)
        of_each = MAX_NODE_SCORE // self._max_zones
        scores = MAX_NODE_SCORE - self.most * of_each + np.where(self.is_nearest, of_each // 2, 0)
        scores = np.where(self.most == 0, MAX_NODE_SCORE, np.clip(scores, 0, MAX_NODE_SCORE))
        return np.where(self.fits, scores, 0)

    def _place(self, amounts: Amounts) -> None:
        """Give a container the fewest zones that hold it, of as many the nearest, and take its amounts from them."""
        is_in_zones = np.zeros(len(self.most), dtype=np.bool_)
        has_all = np.ones((len(self.most), self._n_zones), dtype=np.bool_)
        for name, _ in amounts:
            names = self._available[name] >= 0
            has_all &= names
            is_in_zones |= names.any(axis=1)
        left = np.flatnonzero(is_in_zones & self.fits)
        for size in range(1, self._n_zones + 1):
            if not left.size:
                return
            chosen, is_nearest, fits = self._combination(left, size, amounts, has_all)
            rows = left[fits]
            if rows.size:
                self.most[rows] = np.maximum(self.most[rows], size)
                self.is_nearest[rows] &= is_nearest[fits]
                self._take(rows, zone_combinations(self._n_zones, size)[chosen[fits]], amounts)
            left = left[~fits]
        self.fits[left] = False

    def _combination(
        self, rows: Int64s, size: int, amounts: Amounts, has_all: Bools
    ) -> tuple[Int64s, Bools, Bools]:
        """Return the combination of zones of each row, whether none is nearer, and whether any holds the amounts."""
        members = zone_combinations(self._n_zones, size).T
        fits: Bools = (has_all[rows].astype(np.int64) @ members.astype(np.int64)) == size
        for name, amount in amounts:
            if amount:
                held = np.maximum(self._available[name][rows], 0) @ members.astype(np.int64)
                fits &= held >= amount
        apart = self._distances_of(rows, size)
        of_fitting = np.where(fits, apart, _FAR)
        chosen = of_fitting.argmin(axis=1)
        nearest = of_fitting[np.arange(len(rows)), chosen]
        is_nearest: Bools = nearest == apart.min(axis=1)
        any_fits: Bools = fits.max(axis=1)
        return chosen, is_nearest, any_fits

    def _distances_of(self, rows: Int64s, size: int) -> Int64s:
        """Return (len(rows), n_combinations); nodes of one model have the same distances."""
        if size not in self._distances:
            self._distances[size] = np.stack([distances(each, size) for each in self._models])
        return self._distances[size][self._model[rows]]

    def _take(self, rows: Int64s, members: Bools, amounts: Amounts) -> None:
        """Subtract amounts from zones, from the lowest one on."""
        for name, amount in amounts:
            available = self._available[name]
            wanted = np.full(len(rows), amount, dtype=np.int64)
            for zone in range(self._n_zones):
                there = available[rows, zone]
                used = np.where(members[:, zone] & (there > 0), np.minimum(wanted, there), 0)
                available[rows, zone] = there - used
                wanted -= used
