"""From which nodes a thing can be reached, and which of many things each node reaches.

A local volume is reached from one node, so a cluster of thousands of nodes has thousands of them. They are filed by the
label that chooses their node, and all nodes look their own label up; nobody compares nodes with volumes pair by pair.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.objects.selectors import NodeRule, NodeSelector, Operator, node_rules
from scheduler.snapshot import nodes_of_any

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from scheduler.objects.storage import PersistentVolume
    from scheduler.snapshot import Bools, Int64s, Snapshot

Reach = tuple[NodeRule, ...] | None
"""The nodes that reach something: any of the rules has to hold. None is all of them."""

NONE: Final = (1 << 62) - 1
"""No number: beyond all others."""


def reach_of(volume: PersistentVolume) -> Reach:
    """Return the nodes that reach a volume.

    Source:
        kube-scheduler v1.36, component-helpers/storage/volume/helpers.go, CheckNodeAffinity.
    """
    affinity = volume.spec.node_affinity
    return None if affinity is None or affinity.required is None else rules_of(affinity.required)


@lru_cache(maxsize=16_384)
def rules_of(selector: NodeSelector) -> tuple[NodeRule, ...]:
    """Return the rules about labels: storage is compared with nodes that have nothing else, and no name to be refused for."""
    return tuple(NodeRule(rule.labels) for rule in node_rules(selector))


def reaches(reach: Reach, labels: Mapping[str, str]) -> bool:
    """Say whether a node with these labels is one of them."""
    return reach is None or any(rule.matches("", labels) for rule in reach)


def nodes_in(snapshot: Snapshot, reach: Reach) -> Bools:
    """Return bool (n_nodes,), where a node is one of them."""
    return np.ones(snapshot.n_nodes, dtype=np.bool_) if reach is None else nodes_of_any(snapshot, reach)


class Places:
    """Numbered things, filed by the nodes that reach them."""

    __slots__ = ("_drawers",)

    def __init__(self) -> None:
        # label key -> its value -> the numbers of what one value of one label chooses, ascending, at least one; in the
        # drawer of no key, Reach -> the numbers of all else
        self._drawers: defaultdict[str | None, dict[Any, list[int]]] = defaultdict(dict)

    def add(self, number: int, reach: Reach) -> None:
        """File a thing."""
        for key, place in _places(reach):
            insort(self._drawers[key].setdefault(place, []), number)

    def remove(self, number: int, reach: Reach) -> None:
        """Take a thing out that was filed so."""
        for key, place in _places(reach):
            numbers = self._drawers[key][place]
            del numbers[bisect_left(numbers, number)]
            if not numbers:
                del self._drawers[key][place]

    def first(self, snapshot: Snapshot, count: int = 1) -> Int64s:
        """Return the smallest numbers each node reaches: int64 (count, n_nodes), ascending, NONE where there are fewer."""
        found = np.full((count, snapshot.n_nodes), NONE, dtype=np.int64)
        for key, drawer in self._drawers.items():
            if key is not None and drawer:
                label = snapshot.label(key)
                # A look-up for each distinct value, of which every host may have one.
                numbers = [drawer.get(value, _NOTHING) for value in label.values]
                found = _smallest(found, _columns(numbers, count)[:, label.codes])
        for reach, those in self._drawers[None].items():
            there = np.full_like(found, NONE)
            there[:, nodes_in(snapshot, reach)] = _columns([those], count)
            found = _smallest(found, there)
        return found


_NOTHING: Final = (NONE,)


def _places(reach: Reach) -> Sequence[tuple[str | None, Hashable]]:
    """Return where a thing is filed: drawer and place."""
    if reach is not None and len(reach) == 1 and len(reach[0].labels) == 1:
        requirement = reach[0].labels[0]
        if requirement.operator is Operator.IN:
            return [(requirement.key, value) for value in requirement.values]
    return [(None, reach)]


def _columns(numbers: Sequence[Sequence[int]], count: int) -> Int64s:
    """Return the first numbers of each list, int64 (count, len(numbers)); NONE where a list has fewer."""
    columns = [[each[0] for each in numbers]]
    columns += [[each[place] if len(each) > place else NONE for each in numbers] for place in range(1, count)]
    return np.array(columns, dtype=np.int64)


def _smallest(some: Int64s, more: Int64s) -> Int64s:
    """Return the smallest numbers of two arrays (count, n_nodes), each ascending."""
    if len(some) == 1:
        return np.minimum(some, more)
    both: Int64s = np.sort(np.concatenate([some, more]), axis=0)[: len(some)]
    return both
