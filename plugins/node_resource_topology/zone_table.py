"""The NUMA zones of all nodes as arrays, so that all nodes are evaluated at once.

A node has a slot as long as it has a NodeResourceTopology. A slot gets a new stamp with each change of its node, so
results are kept for slots with the same stamp.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from plugins.node_resource_topology.topology_objects import LARGEST_COST, SINGLE_NUMA_NODE, NodeTopology
from scheduler.objects.caches import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot
    from scheduler.snapshot.arrays import ChangeLog

MISSING: Final = -1
"""The amount of a resource that a zone does not name."""
NO_SLOT: Final = -1
"""The slot of a node without a NodeResourceTopology."""
_MOST_COLUMNS: Final = 32
"""Maximum number of resources whose amounts are kept as arrays; the one that was not used for longest is dropped."""
_MOST_COSTS: Final = 4096
"""Maximum number of different tables of distances; with more of them, those that no node has are dropped."""
SCORED_ZONES: Final = 8
"""Nodes with more zones get the lowest score by the number of zones: the number of combinations doubles with each zone.

The kubelet supports no more of them without an option, for the same reason.
"""
_SMALLEST: Final = 16
_NOTHING: Final[Mapping[str, int]] = {}
_NOWHERE: Final[Mapping[tuple[int, str], int]] = {}


class _Content(NamedTuple):
    """The content of a slot; see `ZoneTable.put`."""

    topology: NodeTopology
    taken: Mapping[str, int]
    freed: Mapping[tuple[int, str], int]


class ZoneTable:
    """The zones of the nodes that have a NodeResourceTopology.

    Attributes:
        width: the largest number of zones of a node.
        stamps: int64 (n_slots,), another number after each change of a slot; never 0.
        n_zones: int64 (n_slots,), how many zones a node has.
        aligns: bool (n_slots,), whether the policy requires one zone for each container or pod.
        by_container: bool (n_slots,), whether containers are aligned, not the pod as a whole.
        max_zones: int64 (n_slots,), how many zones the kubelet supports.
        is_stale: bool (n_slots,), whether the data must not be used.
        cost_ids: int64 (n_slots,), equal for nodes with the same distances between their zones.
    """

    def __init__(self) -> None:
        self.width = 1
        self._slots: dict[str, int] = {}  # node name -> slot
        self._free: list[int] = []
        self._content: list[_Content | None] = []
        self._columns: BoundedDict[str, Int64s] = BoundedDict(_MOST_COLUMNS)
        self._holders: dict[str, int] = {}  # resource -> how many slots name it
        self._changes = 0
        self._layout = 0
        self._cost_ids: dict[tuple[tuple[int, ...], ...], int] = {}
        self._rows = _RowSlots()
        self._allocate(_SMALLEST)

    def _allocate(self, n_slots: int) -> None:
        self.stamps = np.zeros(n_slots, dtype=np.int64)
        self.n_zones = np.zeros(n_slots, dtype=np.int64)
        self.aligns = np.zeros(n_slots, dtype=np.bool_)
        self.by_container = np.zeros(n_slots, dtype=np.bool_)
        self.max_zones = np.ones(n_slots, dtype=np.int64)
        self.is_stale = np.zeros(n_slots, dtype=np.bool_)
        self.cost_ids = np.zeros(n_slots, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._slots)

    # Changes.

    def put(
        self,
        node_name: str,
        topology: NodeTopology,
        taken: Mapping[str, int] = _NOTHING,
        freed: Mapping[tuple[int, str], int] = _NOWHERE,
        *,
        is_stale: bool = False,
    ) -> None:
        """Add or replace a node.

        Args:
            node_name: its name.
            topology: its zones.
            taken: resource -> what pods take that the zones do not show yet; it is subtracted from each zone, because
                nobody knows from which one they take it.
            freed: (place of the zone, resource) -> what ended pods have left that the zone does not show yet.
            is_stale: whether the data must not be used.
        """
        slot = self._slots.get(node_name)
        if slot is None:
            slot = self._new_slot(node_name)
        self._count(slot, -1)
        self._content[slot] = _Content(topology, taken, freed)
        self._count(slot, 1)
        self.n_zones[slot] = len(topology.zones)
        self.aligns[slot] = topology.policy == SINGLE_NUMA_NODE
        self.by_container[slot] = topology.scope == "container"
        self.max_zones[slot] = topology.max_zones
        self.is_stale[slot] = is_stale
        self.cost_ids[slot] = self._cost_id(topology)
        if len(topology.zones) > self.width:
            self.width = len(topology.zones)
            self._columns.clear()
        self._changed(slot)

    def remove(self, node_name: str) -> None:
        """Remove a node, if it is there."""
        slot = self._slots.pop(node_name, None)
        if slot is not None:
            self._count(slot, -1)
            self._content[slot] = None
            self.is_stale[slot] = False
            self._changed(slot)
            self._free.append(slot)
            self._layout += 1

    def _new_slot(self, node_name: str) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._content)
            self._content.append(None)
            if slot == len(self.stamps):
                self._grow()
        self._slots[node_name] = slot
        self._layout += 1
        return slot

    def _grow(self) -> None:
        before = (
            self.stamps,
            self.n_zones,
            self.aligns,
            self.by_container,
            self.max_zones,
            self.is_stale,
            self.cost_ids,
        )
        length = len(self.stamps)
        self._allocate(2 * length)
        after = (
            self.stamps,
            self.n_zones,
            self.aligns,
            self.by_container,
            self.max_zones,
            self.is_stale,
            self.cost_ids,
        )
        for old, new in zip(before, after, strict=True):
            new[:length] = old
        self._columns.clear()

    def _changed(self, slot: int) -> None:
        self._changes += 1
        self.stamps[slot] = self._changes
        for resource, column in self._columns.items():
            self._fill(column, resource, slot)

    def _count(self, slot: int, sign: int) -> None:
        content = self._content[slot]
        if content is not None:
            for resource in content.topology.resources:
                holders = self._holders.get(resource, 0) + sign
                if holders:
                    self._holders[resource] = holders
                else:
                    del self._holders[resource]

    # Reading.

    def slots_of(self, snapshot: Snapshot, rows: Rows) -> Int64s:
        """Return int64 (len(rows),), the slot of each row's node, or NO_SLOT."""
        if snapshot.node_changes is None:
            # A snapshot of some nodes has rows of its own.
            names = (snapshot.name_of(row) for row in rows.tolist())
            return np.array([self._slots.get(name, NO_SLOT) for name in names], dtype=np.int64)
        return self._rows.follow(snapshot, self._slots, self._layout)[rows]

    def slot_of(self, node_name: str) -> int | None:
        """Return the slot of a node; None without a NodeResourceTopology."""
        return self._slots.get(node_name)

    def topology_at(self, slot: int) -> NodeTopology:
        """Return the zones of a used slot, as the object has them."""
        content = self._content[slot]
        assert content is not None, "the slot is in use"
        return content.topology

    def amounts(self, resource: str) -> Int64s | None:
        """Return int64 (n_slots, width), what is available in each zone, or MISSING; None if no zone names the resource."""
        if resource not in self._holders:
            return None
        column = self._columns.get(resource)
        if column is None:
            column = np.full((len(self.stamps), self.width), MISSING, dtype=np.int64)
            for slot in range(len(self._content)):
                self._fill(column, resource, slot)
            self._columns[resource] = column
        else:
            self._columns.move_to_end(resource)
        return column

    def reading(self, resources: Iterable[str]) -> Generator[None, None, None]:
        """Build the arrays of resources, one in a step, so that `amounts` need not build them."""
        for resource in resources:
            if resource in self._holders and resource not in self._columns:
                self.amounts(resource)
                yield

    def _fill(self, column: Int64s, resource: str, slot: int) -> None:
        column[slot] = MISSING
        content = self._content[slot]
        if content is not None:
            less, freed = content.taken.get(resource, 0), content.freed
            for place, zone in enumerate(content.topology.zones):
                amount = zone.available.get(resource)
                if amount is not None:
                    column[slot, place] = max(amount + freed.get((place, resource), 0) - less, 0)

    def _cost_id(self, topology: NodeTopology) -> int:
        if len(topology.zones) > SCORED_ZONES:
            return 0
        costs = _costs(topology)
        known = self._cost_ids.get(costs)
        if known is not None:
            return known
        if len(self._cost_ids) >= _MOST_COSTS:
            used = set(self.cost_ids.tolist())
            self._cost_ids = {each: number for each, number in self._cost_ids.items() if number in used}
        self._changes += 1
        self._cost_ids[costs] = self._changes
        return self._changes


def distances(topology: NodeTopology, size: int) -> Int64s:
    """Return int64 (n_combinations,), the sum of the distances within each combination of a number of zones of a node."""
    chosen = zone_combinations(len(topology.zones), size).astype(np.int64)
    found: Int64s = ((chosen @ np.array(_costs(topology), dtype=np.int64)) * chosen).sum(axis=1)
    return found


def _costs(topology: NodeTopology) -> tuple[tuple[int, ...], ...]:
    """Return the distances between the zones of a node."""
    zones = topology.zones
    return tuple(tuple(zone.costs.get(other.number, LARGEST_COST) for other in zones) for zone in zones)


_COMBINATIONS: dict[tuple[int, int], Bools] = {}
"""(zones, size) -> combinations; there are few, because scores read few zones."""


def zone_combinations(n_zones: int, size: int) -> Bools:
    """Return bool (n_combinations, n_zones), all combinations of a number of zones, in lexicographic order."""
    known = _COMBINATIONS.get((n_zones, size))
    if known is None:
        found = list(combinations(range(n_zones), size))
        known = np.zeros((len(found), n_zones), dtype=np.bool_)
        for place, members in enumerate(found):
            known[place, list(members)] = True
        _COMBINATIONS[n_zones, size] = known
    return known


class _RowSlots:
    """The slot of each row of the cluster's snapshots."""

    def __init__(self) -> None:
        self._slots: Int64s = np.zeros(0, dtype=np.int64)
        self._log: ChangeLog | None = None
        self._seen = 0
        self._layout = -1

    def follow(self, snapshot: Snapshot, slots: Mapping[str, int], layout: int) -> Int64s:
        """Return int64 (n_nodes,), the slot of each row, or NO_SLOT.

        Args:
            snapshot: a snapshot with the rows of the cluster.
            slots: node name -> slot.
            layout: changes with `slots`.
        """
        log = snapshot.node_changes
        assert log is not None, "the rows are those of the cluster"
        is_same = log is self._log and layout == self._layout and len(self._slots) == snapshot.n_nodes
        if is_same and log.end == self._seen:
            return self._slots
        changed = log.since(self._seen) if is_same else None
        if changed is None:
            names = snapshot.names  # all nodes: nodes or NodeResourceTopologies were added or removed
            self._slots = np.array([slots.get(name, NO_SLOT) for name in names], dtype=np.int64)
        else:
            for row in changed:
                if row < snapshot.n_nodes:
                    self._slots[row] = slots.get(snapshot.name_of(row), NO_SLOT)
        self._log, self._seen, self._layout = log, log.end, layout
        return self._slots


class SlotResults:
    """Results for one request, kept by slot until the slot changes."""

    def __init__(self) -> None:
        self._stamps: Int64s = np.zeros(0, dtype=np.int64)
        self._values: Int64s = np.zeros(0, dtype=np.int64)

    def unknown(self, table: ZoneTable, slots: Int64s) -> Int64s:
        """Return those of some slots that have no result."""
        missing = len(table.stamps) - len(self._stamps)
        if missing > 0:
            self._stamps = np.concatenate([self._stamps, np.zeros(missing, dtype=np.int64)])
            self._values = np.concatenate([self._values, np.zeros(missing, dtype=np.int64)])
        unknown: Int64s = slots[self._stamps[slots] != table.stamps[slots]]
        return unknown

    def note(self, slots: Int64s, stamps: Int64s, values: Int64s) -> None:
        """Keep results; `stamps` are those of the slots when the evaluation began."""
        self._stamps[slots] = stamps
        self._values[slots] = values

    def of(self, slots: Int64s) -> Int64s:
        """Return int64 (len(slots),), the results of slots without unknown ones."""
        values: Int64s = self._values[slots]
        return values
