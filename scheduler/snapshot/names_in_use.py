"""The names of labels, resources or images that nodes have: other names need no column, even if pods use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NamesInUse:
    """Names, with the number of nodes that have each name."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def count(self, name: str) -> int:
        """Return the number of nodes that have a name."""
        return self._nodes.get(name, 0)

    def add(self, names: Iterable[str]) -> list[str]:
        """Count names of a node, and return the names that no node had before."""
        nodes, fresh = self._nodes, []
        for name in names:
            if name in nodes:
                nodes[name] += 1
            else:
                nodes[name] = 1
                fresh.append(name)
        return fresh

    def remove(self, names: Iterable[str]) -> list[str]:
        """Stop counting names of a node, and return the names that no node has any more."""
        nodes, gone = self._nodes, []
        for name in names:
            nodes[name] -= 1
            if not nodes[name]:
                del nodes[name]
                gone.append(name)
        return gone
