"""Which nodes have a container image, one image a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.snapshot.arrays import Column

if TYPE_CHECKING:
    from scheduler.snapshot.arrays import Bools


@dataclass(frozen=True, slots=True)
class ImageState:
    """One image in the cluster.

    Attributes:
        size_bytes: on the node that had it first; 0 where none has it.
        num_nodes: how many nodes have it.
        present: bool (n_nodes,), which ones.
    """

    size_bytes: int
    num_nodes: int
    present: Bools


class ImageColumn:
    """One image's presence, by row."""

    __slots__ = ("num_nodes", "present", "size_bytes")

    def __init__(self, length: int) -> None:
        self.present: Column[np.bool_] = Column(np.bool_, length)
        self.num_nodes = 0
        self.size_bytes = 0

    def set(self, row: int, size_bytes: int | None) -> None:
        """Note whether a row has the image; None is no."""
        cells = self.present.cells
        has, had = size_bytes is not None, bool(cells[row])
        if has == had:
            return
        cells[row] = has
        self.num_nodes += 1 if has else -1
        if size_bytes is not None and self.num_nodes == 1:
            self.size_bytes = size_bytes
        elif not self.num_nodes:
            self.size_bytes = 0

    def move(self, row: int, last: int) -> None:
        """Take a row's node out; the last row's takes its place."""
        self.num_nodes -= bool(self.present.cells[row])
        self.present.cells[row] = self.present.cells[last]
        self.present.cells[last] = False
        if not self.num_nodes:
            self.size_bytes = 0

    def state(self, n_nodes: int) -> ImageState:
        """Return what a snapshot shows."""
        return ImageState(self.size_bytes, self.num_nodes, self.present.view(n_nodes))
