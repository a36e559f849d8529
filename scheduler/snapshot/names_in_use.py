"""Which names nodes have, of labels, resources or images: what none has needs no column, however often pods name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NamesInUse:
    """Names, and how many nodes have each."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def count(self, name: str) -> int:
        """Return how many nodes have a name."""
        return self._nodes.get(name, 0)

    def add(self, names: Iterable[str]) -> list[str]:
        """Note that a node has names now, and return those that none had before."""
        nodes, fresh = self._nodes, []
        for name in names:
            if name in nodes:
                nodes[name] += 1
            else:
                nodes[name] = 1
                fresh.append(name)
        return fresh

    def remove(self, names: Iterable[str]) -> list[str]:
        """Note that a node no longer has names, and return those that none has any more."""
        nodes, gone = self._nodes, []
        for name in names:
            nodes[name] -= 1
            if not nodes[name]:
                del nodes[name]
                gone.append(name)
        return gone
