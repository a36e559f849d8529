"""The nodes as the map shows them: a short row of text and numbers for each node that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.engine.state.cache import Cache
    from scheduler.objects.node import NodeObject
    from scheduler.snapshot import Snapshot

    Tile = tuple[str, str, int, str, list[int], list[int], int]

ZONE: Final = "topology.kubernetes.io/zone"
CORDONED, TAINTED, NOT_READY = 1, 2, 4
"""Flags of a tile; they are added."""
_FIRST = ("cpu", "memory", "pods", "ephemeral-storage")
_MOST_RESOURCES = 24
_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_OF_OTHER_FLAGS = frozenset(
    f"node.kubernetes.io/{key}" for key in ("unschedulable", "not-ready", "unreachable")
)
"""The taints that a node has because it is cordoned or not ready."""
_NODES_AT_A_TIME = 1000


def resources_of(snapshot: Snapshot) -> list[str]:
    """Return the resources for the map: the common ones first, then the others by name."""
    offered = snapshot.resources
    first = [name for name in _FIRST if name in offered]
    return [*first, *sorted(offered - set(_FIRST))][:_MOST_RESOURCES]


class Tiles:
    """The tiles of a cluster, as they were last sent.

    A tile is (name, zone, flags, why it is paused or "", allocatable by resource, requested by resource, number of pods).

    Attributes:
        resources: resources of the numbers of a tile, in order.
        sent: node name -> tile.
    """

    def __init__(self, cache: Cache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self.resources: list[str] = []
        self.sent: dict[str, Tile] = {}
        self._seen = -1  # number of changes of the table that are in `sent`
        self._names: tuple[str, ...] = ()
        self._resting: Mapping[str, str] = {}

    def changes(self) -> Iterator[list[Tile]]:
        """Yield the changed tiles, a few milliseconds at a time and at least once; `gone` returns the deleted nodes.

        Changes that happen meanwhile are in the next call.
        """
        table, snapshot = self._cache.table, self._cache.snapshot()
        paused = self._paused(snapshot)
        rows = self._changed_rows(snapshot, paused)
        self._seen, self._resting = table.changes.end, paused
        resources = resources_of(snapshot)
        if resources != self.resources:
            self.resources, self.sent, rows = resources, {}, range(snapshot.n_nodes)
        picked = _Columns(snapshot, resources, rows)
        for start in range(0, max(1, len(rows)), _NODES_AT_A_TIME):
            fresh = [
                tile
                for tile in picked.tiles(start, start + _NODES_AT_A_TIME, paused)
                if self.sent.get(tile[0]) != tile
            ]
            self.sent.update({tile[0]: tile for tile in fresh})
            yield fresh

    def gone(self) -> list[str]:
        """Remove deleted nodes, and return their names."""
        names = self._cache.snapshot().names
        if names is self._names:
            return []
        self._names = names
        gone = list(self.sent.keys() - set(names))
        for name in gone:
            del self.sent[name]
        return gone

    def _paused(self, snapshot: Snapshot) -> Mapping[str, str]:
        rows = self._cache.pauses.rows(snapshot, at=self._clock.monotonic())
        return {snapshot.name_of(row): why for row, why in rows.items()}

    def _changed_rows(self, snapshot: Snapshot, paused: Mapping[str, str]) -> Sequence[int]:
        changed = None if self._seen < 0 else self._cache.table.changes.since(self._seen)
        if changed is None:
            return range(snapshot.n_nodes)
        rows = {row for row in changed if row < snapshot.n_nodes}
        for name in paused.keys() ^ self._resting.keys():
            row = snapshot.row_of(name)
            if row is not None:
                rows.add(row)
        return sorted(rows)


class _Columns:
    """The columns of tiles, copied at one moment, because other tasks run in between."""

    def __init__(self, snapshot: Snapshot, resources: Iterable[str], rows: Sequence[int]) -> None:
        all_of_them = len(rows) == snapshot.n_nodes
        picked: Any = slice(None) if all_of_them else list(rows)
        self._nodes: list[NodeObject] = [snapshot.nodes[row] for row in rows]
        self._allocatable = [snapshot.allocatable[name][picked].tolist() for name in resources]
        self._requested = [
            (snapshot.pod_count if name == "pods" else snapshot.requested[name])[picked].tolist()
            for name in resources
        ]
        self._pods = snapshot.pod_count[picked].tolist()

    def tiles(self, start: int, end: int, paused: Mapping[str, str]) -> Iterator[Tile]:
        allocatable, requested = (
            [column[start:end] for column in each] for each in (self._allocatable, self._requested)
        )
        # A loop over the nodes that changed: the page needs text anyway.
        for place, node in enumerate(self._nodes[start:end]):
            yield (
                node.name,
                node.labels.get(ZONE, ""),
                flags_of(node),
                paused.get(node.name, ""),
                [column[place] for column in allocatable],
                [column[place] for column in requested],
                self._pods[start + place],
            )


def flags_of(node: NodeObject) -> int:
    """Return the sum of CORDONED, TAINTED and NOT_READY of a node."""
    flags = CORDONED if node.unschedulable else 0
    if any(taint.effect in _REPELLING and taint.key not in _OF_OTHER_FLAGS for taint in node.taints):
        flags |= TAINTED
    if any(each.type == "Ready" and each.status != "True" for each in node.node.status.conditions):
        flags |= NOT_READY
    return flags
