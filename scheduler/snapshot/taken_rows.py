"""Derived snapshots: some of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.snapshot.affinity_index import TakenTerms
from scheduler.snapshot.images import ImageState
from scheduler.snapshot.node_tally import TakenNodeTally
from scheduler.snapshot.pod_tally import TakenTally
from scheduler.snapshot.storage_index import TakenStorage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scheduler.objects.host_ports import HostPort
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.taints import Taint
    from scheduler.snapshot.affinity_index import TermKind, TermsInUse
    from scheduler.snapshot.arrays import Bools, Int64s, Rows
    from scheduler.snapshot.images import ImagesOnNodes
    from scheduler.snapshot.interning import Interned
    from scheduler.snapshot.node_tally import NodeTally, WeighedTerms
    from scheduler.snapshot.pod_counts import PodQuery
    from scheduler.snapshot.pod_tally import Tally, TallyTerms
    from scheduler.snapshot.source import Source
    from scheduler.snapshot.storage_index import StorageInUse


class TakenRows:
    """Some rows of a source, in a given order."""

    # Results for some of the rows are not cached.
    changes = None
    node_changes = None

    def __init__(self, base: Source, rows: Rows) -> None:
        self._base = self.base = base
        self._rows = self.rows = rows
        self.n_nodes = len(rows)
        self.resources, self.overdrawn = base.resources, base.overdrawn
        self.has_label, self.objects = base.has_label, base.objects
        self._nodes: list[NodeObject] | None = None
        self._row_of: dict[str, int] | None = None

    @property
    def nodes(self) -> Sequence[NodeObject]:
        if self._nodes is None:
            nodes = self._base.nodes
            self._nodes = [nodes[row] for row in self._rows.tolist()]
        return self._nodes

    def row_of(self, node_name: str) -> int | None:
        if self._row_of is None:
            self._row_of = {node.name: row for row, node in enumerate(self.nodes)}
        return self._row_of.get(node_name)

    def pods_on(self, row: int) -> Mapping[str, PodInfo]:
        return self._base.pods_on(int(self._rows[row]))

    def allocatable(self, resource: str) -> Int64s | None:
        array = self._base.allocatable(resource)
        return None if array is None else array[self._rows]

    def requested(self, resource: str) -> Int64s:
        return self._base.requested(resource)[self._rows]

    def nonzero_requested(self, resource: str) -> Int64s:
        return self._base.nonzero_requested(resource)[self._rows]

    def pod_count(self) -> Int64s:
        return self._base.pod_count()[self._rows]

    def requested_on(self, row: int) -> Mapping[str, int]:
        return self._base.requested_on(int(self._rows[row]))

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        return self._base.nonzero_requested_on(int(self._rows[row]))

    def unschedulable(self) -> Bools:
        return self._base.unschedulable()[self._rows]

    def taints(self) -> Interned[tuple[Taint, ...]]:
        return self._base.taints().take(self._rows)

    def declared_features(self) -> Interned[frozenset[str]]:
        return self._base.declared_features().take(self._rows)

    def label(self, key: str) -> Interned[str | None]:
        return self._base.label(key).take(self._rows)

    def used_ports(self) -> Interned[frozenset[HostPort]]:
        return self._base.used_ports().take(self._rows)

    def images(self, names: Collection[str]) -> Mapping[str, ImageState]:
        taken = {}
        for name, image in self._base.images(names).items():
            present = image.present[self._rows]
            taken[name] = ImageState(image.size_bytes, int(np.count_nonzero(present)), present)
        return taken

    def images_on_nodes(self, names: Collection[str]) -> ImagesOnNodes:
        new_row = np.full(self._base.n_nodes, -1, dtype=np.intp)
        new_row[self._rows] = np.arange(self.n_nodes)
        found = self._base.images_on_nodes(names)
        rows = new_row[found.rows]
        return found._replace(rows=rows[rows >= 0], places=found.places[rows >= 0])

    def pods_matching(self, query: PodQuery) -> Int64s:
        return self._base.pods_matching(query)[self._rows]

    def tally(self, terms: TallyTerms) -> Tally:
        return TakenTally(self._base.tally(terms), self._rows, self._base.n_nodes)

    def node_tally(self, terms: WeighedTerms) -> NodeTally:
        return TakenNodeTally(self._base.node_tally(terms), self._rows)

    def affinity_terms(self, kind: TermKind) -> TermsInUse:
        return TakenTerms(self._base.affinity_terms(kind), self._rows, self._base.n_nodes)

    def storage(self) -> StorageInUse:
        return TakenStorage(self._base.storage(), self._rows)
