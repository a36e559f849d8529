"""What was said of the nodes of the cluster, kept until what they see, or what is taken of it, changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plugins.dynamic_resources.structured.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from plugins.dynamic_resources.structured.allocated import AllocatedDevices, PoolID
    from plugins.dynamic_resources.structured.errors import Verdict
    from plugins.dynamic_resources.structured.inventory import NodeView
    from plugins.dynamic_resources.structured.pools import Pool
    from scheduler.snapshot import Rows, UInt16s

Layout = dict["NodeView", "Rows"]
"""What nodes see -> the rows of those that see it; it is another object when any of that changed."""


class Verdicts:
    """What was said of the nodes of a layout.

    Attributes:
        layout: the nodes.
        index: (n_nodes,), a place in the table for each row of the layout.
        has_errors: whether it says of some nodes that the attempt fails: that is not for other pods.
    """

    def __init__(self, layout: Layout, n_nodes: int) -> None:
        self.layout = layout
        self.index: UInt16s = np.zeros(n_nodes, dtype=np.uint16)
        self.has_errors = False
        self._places: dict[Verdict, int] = {None: 0}
        self._views_of: dict[PoolID, list[NodeView]] = {}
        self._changes = -1

    @property
    def table(self) -> tuple[Verdict, ...]:
        """What places in `index` mean; the first is None."""
        return tuple(self._places)

    def refresh(
        self,
        allocated: AllocatedDevices,
        pools: Callable[[NodeView], tuple[Pool, ...]],
        judge: Callable[[Sequence[Pool], Rows], Verdict],
    ) -> None:
        """Judge what was not judged since it changed.

        Args:
            allocated: what is taken.
            pools: returns those pools of a view on which a verdict depends.
            judge: says of pools, and rows of nodes that see them, whether claims can be given devices there.
        """
        changed = None if self._changes < 0 else allocated.changed_since(self._changes)
        self._changes = allocated.changes
        views: Iterable[NodeView]
        if changed is None:
            self._views_of.clear()
            views = self.layout
            for view in views:
                for pool in pools(view):
                    self._views_of.setdefault(pool.id, []).append(view)
        else:
            views = {view for pool in changed for view in self._views_of.get(pool, ())}
        said: dict[tuple[Pool, ...], Verdict] = {}
        for view in views:
            rows, seen = self.layout[view], pools(view)
            if seen not in said:
                said[seen] = judge(seen, rows)
            verdict = said[seen]
            self.has_errors |= isinstance(verdict, Refusal) and verdict.is_error
            self.index[rows] = self._places.setdefault(verdict, len(self._places))
