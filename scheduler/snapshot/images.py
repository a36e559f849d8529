"""The container images of nodes, one column for each image."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scheduler.errors import ObjectError
from scheduler.snapshot.arrays import Column
from scheduler.snapshot.interning import NamesInUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.snapshot.arrays import Bools, Rows

_COLUMNS = 256
"""Maximum number of image columns; the least recently used column is dropped first."""


@dataclass(frozen=True, slots=True)
class ImageState:
    """One image in the cluster.

    Attributes:
        size_bytes: its size on the first node that had it; 0 if no node has it.
        num_nodes: the number of nodes with the image.
        present: bool (n_nodes,), the nodes with the image.
    """

    size_bytes: int
    num_nodes: int
    present: Bools

    @classmethod
    def on_no_node(cls, n_nodes: int) -> ImageState:
        """Return the state of an image that no node has."""
        return cls(0, 0, Column(np.bool_, n_nodes).view(n_nodes))


class ImagesOnNodes(NamedTuple):
    """Images on nodes, and their rows.

    Attributes:
        names: the names of the images.
        sizes_bytes: the size of each image on the first node that had it.
        rows: intp (n,), one row for each image on each node.
        places: intp (n,), the position of that image in `names`.
    """

    names: Sequence[str]
    sizes_bytes: Sequence[int]
    rows: Rows
    places: Rows


class ImageColumn:
    """The presence of one image, by row."""

    __slots__ = ("num_nodes", "present")

    def __init__(self, length: int) -> None:
        self.present: Column[np.bool_] = Column(np.bool_, length)
        self.num_nodes = 0

    def set(self, row: int, *, has: bool) -> None:
        """Set whether a row has the image."""
        self.num_nodes += has - bool(self.present.cells[row])
        self.present.cells[row] = has

    def move(self, row: int, last: int) -> None:
        """Remove the node of a row; the node of the last row moves into this row."""
        self.num_nodes -= bool(self.present.cells[row])
        self.present.cells[row] = self.present.cells[last]
        self.present.cells[last] = False

    def state(self, size_bytes: int, n_nodes: int) -> ImageState:
        """Return the state for a snapshot."""
        return ImageState(size_bytes, self.num_nodes, self.present.view(n_nodes))


class ImageColumns:
    """The columns of requested images.

    The names on nodes are counted as nodes come and go: to count those of 100,000 nodes at the first request would hold the
    event loop for a second.
    """

    def __init__(self) -> None:
        self._columns: OrderedDict[str, ImageColumn] = OrderedDict()  # by image name
        self._names = NamesInUse()
        self._sizes: dict[str, int] = {}  # image name -> size on the first node that had it

    @property
    def names(self) -> tuple[str, ...]:
        """The images that have a column."""
        return tuple(self._columns)

    def states(self, names: Iterable[str], nodes: Sequence[NodeObject], room: int) -> dict[str, ImageState]:
        """Return the states of those images that any node has; new columns get a capacity of `room` rows."""
        in_use, states = self._names, {}
        there = [name for name in names if name in in_use]
        missing = {name for name in there if name not in self._columns}
        if missing:
            self._make_columns(missing, nodes, room)
        for name in there:
            states[name] = self._columns[name].state(self._sizes[name], len(nodes))
            self._columns.move_to_end(name)
        while len(self._columns) > _COLUMNS:
            self._columns.popitem(last=False)
        return states

    def on_nodes(self, names: Iterable[str], nodes: Sequence[NodeObject]) -> ImagesOnNodes:
        """Return the nodes of images, with one loop over all nodes and without columns."""
        in_use = self._names
        places = {name: place for place, name in enumerate(name for name in names if name in in_use)}
        rows: list[int] = []
        found: list[int] = []
        if places:
            for row, node in enumerate(nodes):
                here = [places[name] for name in places.keys() & _images(node).keys()]
                if here:
                    found += here
                    rows += [row] * len(here)
        sizes = [self._sizes[name] for name in places]
        return ImagesOnNodes(
            list(places), sizes, np.array(rows, dtype=np.intp), np.array(found, dtype=np.intp)
        )

    def _make_columns(self, names: Iterable[str], nodes: Sequence[NodeObject], room: int) -> None:
        """Create columns for images on nodes, with one loop over all nodes."""
        found = self.on_nodes(names, nodes)
        for place, name in enumerate(found.names):
            column = self._columns[name] = ImageColumn(room)
            rows = found.rows[found.places == place]
            column.present.cells[rows] = True
            column.num_nodes = len(rows)

    def note_names(self, before: NodeObject | None, after: NodeObject | None) -> None:
        """Update the sizes after a change of a node, and drop the columns of images that no node has any more."""
        if before is None and after is not None:  # most nodes of the first list
            images = _images(after)
            self._sizes.update((name, images[name]) for name in self._names.add(images))
            return
        nothing: Mapping[str, int] = {}
        old, new = (nothing if node is None else _images(node) for node in (before, after))
        if old is new:
            return
        self._names.add(new.keys() - old.keys())
        for name, size_bytes in new.items() - old.items():
            if self._names.count(name) == 1:
                self._sizes[name] = size_bytes
        for name in self._names.remove(old.keys() - new.keys()):
            del self._sizes[name]
            self._columns.pop(name, None)

    def set(self, row: int, node: NodeObject) -> None:
        """Write the images of a row's node."""
        images = _images(node)
        for name, column in self._columns.items():
            column.set(row, has=name in images)

    def move(self, row: int, last: int) -> None:
        """Remove the node of a row; the node of the last row moves into this row."""
        for column in self._columns.values():
            column.move(row, last)

    def columns(self) -> Iterator[Column[np.bool_]]:
        """Yield the column of each image: which nodes have it."""
        for column in self._columns.values():
            yield column.present


def _images(node: NodeObject) -> Mapping[str, int]:
    """Return image -> size of a node; empty if its list is invalid."""
    try:
        return node.images
    except ObjectError:
        return {}
