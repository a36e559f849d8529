"""A source with more nodes, which have no pods."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from scheduler.snapshot.images import ImageState
from scheduler.snapshot.interning import Interned
from scheduler.snapshot.storage_index import TakenStorage

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Hashable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import HostPort, Taint
    from scheduler.snapshot.affinity_index import TermKind, TermsInUse
    from scheduler.snapshot.arrays import Bools, Int64s
    from scheduler.snapshot.derived import Source
    from scheduler.snapshot.images import ImagesOnNodes
    from scheduler.snapshot.node_tally import NodeTally, WeighedTerms
    from scheduler.snapshot.pod_counts import PodQuery
    from scheduler.snapshot.pod_tally import Tally, TallyTerms
    from scheduler.snapshot.storage_index import StorageInUse

T = TypeVar("T", bound="Hashable")


class MoreNodes:
    """The nodes of two sources: the rows of the second follow those of the first.

    Args:
        base: the first source.
        added: the second source; its nodes have other names and no pods.
    """

    # Results for hypothetical nodes are not cached.
    changes = None
    node_changes = None

    def __init__(self, base: Source, added: Source) -> None:
        self._base, self._added = base, added
        self.n_nodes = base.n_nodes + added.n_nodes
        self.overdrawn, self.objects = base.overdrawn, base.objects
        self._nodes: list[NodeObject] | None = None

    @property
    def nodes(self) -> Sequence[NodeObject]:
        if self._nodes is None:
            self._nodes = [*self._base.nodes, *self._added.nodes]
        return self._nodes

    def row_of(self, node_name: str) -> int | None:
        row = self._added.row_of(node_name)
        return self._base.row_of(node_name) if row is None else self._base.n_nodes + row

    def pods_on(self, row: int) -> Mapping[str, PodInfo]:
        return self._base.pods_on(row) if row < self._base.n_nodes else {}

    def requested_on(self, row: int) -> Mapping[str, int]:
        return self._base.requested_on(row) if row < self._base.n_nodes else {}

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        return self._base.nonzero_requested_on(row) if row < self._base.n_nodes else (0, 0)

    def resources(self) -> AbstractSet[str]:
        return self._base.resources() | self._added.resources()

    def allocatable(self, resource: str) -> Int64s | None:
        arrays = [each.allocatable(resource) for each in (self._base, self._added)]
        if all(array is None for array in arrays):
            return None
        sizes = self._base.n_nodes, self._added.n_nodes
        return np.concatenate(
            [
                np.zeros(size, dtype=np.int64) if array is None else array
                for size, array in zip(sizes, arrays, strict=True)
            ]
        )

    def requested(self, resource: str) -> Int64s:
        return self._without_pods(self._base.requested(resource))

    def nonzero_requested(self, resource: str) -> Int64s:
        return self._without_pods(self._base.nonzero_requested(resource))

    def pod_count(self) -> Int64s:
        return self._without_pods(self._base.pod_count())

    def pods_matching(self, query: PodQuery) -> Int64s:
        return self._without_pods(self._base.pods_matching(query))

    def _without_pods(self, counts: Int64s) -> Int64s:
        return np.concatenate([counts, np.zeros(self._added.n_nodes, dtype=np.int64)])

    def unschedulable(self) -> Bools:
        return np.concatenate([self._base.unschedulable(), self._added.unschedulable()])

    def taints(self) -> Interned[tuple[Taint, ...]]:
        return _joined(self._base.taints(), self._added.taints())

    def declared_features(self) -> Interned[frozenset[str]]:
        return _joined(self._base.declared_features(), self._added.declared_features())

    def has_label(self, key: str) -> bool:
        return self._base.has_label(key) or self._added.has_label(key)

    def label(self, key: str) -> Interned[str | None]:
        return _joined(self._base.label(key), self._added.label(key))

    def port_conflicts(self, wanted: Collection[HostPort]) -> Bools:
        return np.concatenate([each.port_conflicts(wanted) for each in (self._base, self._added)])

    def used_ports_on(self, row: int) -> frozenset[HostPort]:
        return self._base.used_ports_on(row) if row < self._base.n_nodes else frozenset()

    def images(self, names: Collection[str]) -> Mapping[str, ImageState]:
        absent = np.zeros(self._added.n_nodes, dtype=np.bool_)
        return {
            name: ImageState(image.size_bytes, image.num_nodes, np.concatenate([image.present, absent]))
            for name, image in self._base.images(names).items()
        }

    def images_on_nodes(self, names: Collection[str]) -> ImagesOnNodes:
        return self._base.images_on_nodes(names)

    # These name rows, and new nodes have no pods.

    def tally(self, terms: TallyTerms) -> Tally:
        return self._base.tally(terms)

    def affinity_terms(self, kind: TermKind) -> TermsInUse:
        return self._base.affinity_terms(kind)

    def storage(self) -> StorageInUse:
        return TakenStorage(self._base.storage(), np.arange(self._base.n_nodes))

    def node_tally(self, terms: WeighedTerms) -> NodeTally:
        return _BothTallies(self._base.node_tally(terms), self._added.node_tally(terms))


class _BothTallies:
    """Implements `NodeTally` for the nodes of two sources."""

    def __init__(self, first: NodeTally, second: NodeTally) -> None:
        self._both = first, second

    def steps(self) -> Generator[None, None, None]:
        yield from chain.from_iterable(each.steps() for each in self._both)

    def worth(self) -> Int64s:
        return np.concatenate([each.worth() for each in self._both])


def _joined(first: Interned[T], second: Interned[T]) -> Interned[T]:
    """Return the values of the nodes of two sources; equal values have one position."""
    values = list(first.values)
    known = {value: code for code, value in enumerate(values)} if first.code_of is None else first.code_of
    codes: dict[T, int] = {}
    for value in second.values:
        if value in known:
            codes[value] = known[value]
        else:
            codes[value] = len(values)
            values.append(value)
    others = np.array([codes[value] for value in second.values], dtype=np.int32)[second.codes]
    return Interned(np.concatenate([first.codes, others]), values)
