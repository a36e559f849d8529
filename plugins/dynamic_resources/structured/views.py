"""What nodes see of the devices."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from plugins.dynamic_resources.structured.pools import Pools
    from scheduler.snapshot import Rows, Snapshot
    from scheduler.snapshot.arrays import ChangeLog

_REMEMBERED_CHANGES = 4096


class InventoryNode(Protocol):
    """The fields of a node that are read; NodeObject and NodeInfo have them."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


class AllViews:
    """What all nodes see, at a position in the log of node changes.

    Attributes:
        by_row: what each node sees.
        changes: how often the view of a node changed.

    Args:
        views: view -> the rows of the nodes that have it.
        log: the log of node changes.
        n_nodes: the number of nodes.
    """

    def __init__(self, views: Mapping[Pools, Rows], log: ChangeLog, n_nodes: int) -> None:
        self.by_row: list[Pools] = [()] * n_nodes
        self.changes = 0
        self._log = log
        self._seen = log.end
        self._changed: deque[int] = deque(maxlen=_REMEMBERED_CHANGES)  # the rows of the last changes
        for view, rows in views.items():
            for row in rows.tolist():
                self.by_row[row] = view

    def follow(
        self, snapshot: Snapshot, names: Iterable[str], view_of: Callable[[InventoryNode], Pools]
    ) -> bool:
        """Update the views of nodes that changed and of the named nodes; return False if all nodes have to be read."""
        if not self.has_rows_of(snapshot):
            return False
        log, nodes, n_nodes = self._log, snapshot.nodes, len(self.by_row)
        changed = log.since(self._seen)
        self._seen = log.end
        if changed is None:
            return False
        # Rows beyond the last belong to nodes that were added and deleted since.
        rows = {row for row in (*changed, *map(snapshot.row_of, names)) if row is not None and row < n_nodes}
        for row in rows:
            self.put(row, view_of(nodes[row]))
        return True

    def has_rows_of(self, snapshot: Snapshot) -> bool:
        """Return whether the rows of a snapshot are those of the views."""
        return snapshot.node_changes is self._log and snapshot.n_nodes == len(self.by_row)

    def put(self, row: int, view: Pools) -> None:
        """Update the view of one node."""
        if view != self.by_row[row]:
            self.by_row[row] = view
            self.changes += 1
            self._changed.append(row)

    def changed_since(self, changes: int) -> set[int] | None:
        """Return the rows of nodes whose view changed since that count; None if the log does not reach back that far."""
        missed = self.changes - changes
        if missed > len(self._changed):
            return None
        return set(islice(reversed(self._changed), missed))
