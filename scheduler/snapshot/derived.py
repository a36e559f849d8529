"""Derived snapshots: some of the rows, or the same rows with other pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from scheduler.objects.v1 import conflicts_with
from scheduler.snapshot.affinity_index import ChangedTerms, TakenTerms
from scheduler.snapshot.arrays import wrapped
from scheduler.snapshot.images import ImageState
from scheduler.snapshot.node_tally import TakenNodeTally
from scheduler.snapshot.pod_tally import ChangedTally, TakenTally
from scheduler.snapshot.storage_index import ChangedStorage, TakenStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import HostPort, Taint
    from scheduler.snapshot.affinity_index import TermKind, TermsInUse
    from scheduler.snapshot.arrays import Bools, ChangeLog, Int64s, Rows
    from scheduler.snapshot.images import ImagesOnNodes
    from scheduler.snapshot.interning import Interned
    from scheduler.snapshot.node_tally import NodeTally, WeighedTerms
    from scheduler.snapshot.object_store import Objects
    from scheduler.snapshot.pod_counts import PodQuery
    from scheduler.snapshot.pod_tally import Tally, TallyTerms
    from scheduler.snapshot.storage_index import StorageInUse


class Source(Protocol):
    """The table, some rows of a source, or a source with other pods."""

    @property
    def n_nodes(self) -> int: ...
    @property
    def nodes(self) -> Sequence[NodeObject]: ...
    @property
    def changes(self) -> ChangeLog | None: ...
    @property
    def node_changes(self) -> ChangeLog | None: ...
    def row_of(self, node_name: str) -> int | None: ...
    def requested_on(self, row: int) -> Mapping[str, int]: ...
    def nonzero_requested_on(self, row: int) -> Sequence[int]: ...
    def pods_on(self, row: int) -> Mapping[str, PodInfo]: ...
    def resources(self) -> AbstractSet[str]: ...
    def overdrawn(self) -> AbstractSet[str]: ...
    def allocatable(self, resource: str) -> Int64s | None: ...
    def requested(self, resource: str) -> Int64s: ...
    def nonzero_requested(self, resource: str) -> Int64s: ...
    def pod_count(self) -> Int64s: ...
    def unschedulable(self) -> Bools: ...
    def taints(self) -> Interned[tuple[Taint, ...]]: ...
    def declared_features(self) -> Interned[frozenset[str]]: ...
    def has_label(self, key: str) -> bool: ...
    def label(self, key: str) -> Interned[str | None]: ...
    def port_conflicts(self, wanted: Collection[HostPort]) -> Bools: ...
    def used_ports_on(self, row: int) -> frozenset[HostPort]: ...
    def images(self, names: Collection[str]) -> Mapping[str, ImageState]: ...
    def images_on_nodes(self, names: Collection[str]) -> ImagesOnNodes: ...
    def pods_matching(self, query: PodQuery) -> Int64s: ...
    def tally(self, terms: TallyTerms) -> Tally: ...
    def node_tally(self, terms: WeighedTerms) -> NodeTally: ...
    def affinity_terms(self, kind: TermKind) -> TermsInUse: ...
    def storage(self) -> StorageInUse: ...
    def objects(self, kind: str) -> Objects | None: ...


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

    def port_conflicts(self, wanted: Collection[HostPort]) -> Bools:
        return self._base.port_conflicts(wanted)[self._rows]

    def used_ports_on(self, row: int) -> frozenset[HostPort]:
        return self._base.used_ports_on(int(self._rows[row]))

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


_REQUESTED, _NONZERO, _COUNT = "requested", "nonzero", "count"
_NONZERO_RESOURCES = ("cpu", "memory")


class OtherPods:
    """A source with added and removed pods; more pods can be added and removed later.

    The requests of a changed row are stored for that row. A column of requests is copied when it is first read; later
    changes write only the changed cells. All other columns belong to the base.
    """

    changes = None  # results for hypothetical pods are not cached

    def __init__(self, base: Source) -> None:
        self._base = base
        self.n_nodes, self.node_changes, self.row_of = base.n_nodes, base.node_changes, base.row_of
        self.allocatable, self.unschedulable, self.taints = base.allocatable, base.unschedulable, base.taints
        self.declared_features, self.label = base.declared_features, base.label
        self.node_tally = base.node_tally
        self.images, self.images_on_nodes = base.images, base.images_on_nodes
        self.resources, self.has_label, self.objects = base.resources, base.has_label, base.objects
        self._pods: dict[int, dict[str, PodInfo]] = {}  # changed row -> pod uid -> pod
        self._requested_on: dict[int, dict[str, int]] = {}  # changed row -> resource -> amount
        self._nonzero_on: dict[int, list[int]] = {}  # changed row -> milliCPU and bytes
        # kind -> resource -> copied column
        self._columns: dict[str, dict[str, Int64s]] = {_REQUESTED: {}, _NONZERO: {}, _COUNT: {}}
        self._freed: dict[int, frozenset[HostPort]] = {}  # row -> ports of removed pods
        self._added: dict[int, dict[str, PodInfo]] = {}  # row -> pod uid -> added pod with ports
        self._changes: list[tuple[int, PodInfo, int]] = []  # row, pod, 1 if added and -1 if removed
        self._storage = ChangedStorage(base.storage())
        self._overdrawn: set[str] = set()  # resources with a negative sum of requests on a changed row

    # Changing.

    def add(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Count pods on rows."""
        for row, pod in pods:
            self._begin(row)[pod.uid] = pod
            self._count(row, pod, 1)
            if pod.host_ports:
                self._added.setdefault(row, {})[pod.uid] = pod

    def remove(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Stop counting pods on their rows."""
        for row, pod in pods:
            del self._begin(row)[pod.uid]
            self._count(row, pod, -1)
            if pod.host_ports and self._added.get(row, {}).pop(pod.uid, None) is None:
                self._freed[row] = self._freed.get(row, frozenset()).union(pod.host_ports)

    def _begin(self, row: int) -> dict[str, PodInfo]:
        """Copy the data of a row before its first change, and return its pods."""
        pods = self._pods.get(row)
        if pods is None:
            pods = self._pods[row] = dict(self._base.pods_on(row))
            self._requested_on[row] = dict(self._base.requested_on(row))
            self._nonzero_on[row] = list(self._base.nonzero_requested_on(row))
        return pods

    def _count(self, row: int, pod: PodInfo, sign: int) -> None:
        # Preemption calls this up to three times for each victim on each node, so speed matters here.
        self._changes.append((row, pod, sign))
        if pod.storage_volumes:
            self._storage.count(row, pod, sign)
        requested, resources, columns = self._requested_on[row], pod.resources, self._columns
        copied = columns[_REQUESTED]
        for resource, amount in resources.taken.items():
            total = wrapped(requested.get(resource, 0) + sign * amount)
            if total:
                requested[resource] = total
                if total < 0:
                    self._overdrawn.add(resource)
            else:
                requested.pop(resource, None)
            if resource in copied:
                copied[resource][row] = total
        nonzero, copied = self._nonzero_on[row], columns[_NONZERO]
        nonzero[0] = wrapped(nonzero[0] + sign * resources.nonzero_milli_cpu)
        nonzero[1] = wrapped(nonzero[1] + sign * resources.nonzero_memory_bytes)
        for resource, column in copied.items():
            column[row] = nonzero[_NONZERO_RESOURCES.index(resource)]
        for column in columns[_COUNT].values():
            column[row] = len(self._pods[row])

    def _column(
        self,
        kind: str,
        resource: str,
        base: Callable[[], Int64s],
        values: Callable[[], Mapping[int, int]],
    ) -> Int64s:
        """Return a read-only column; the first call copies it, with the values of changed rows."""
        copied = self._columns[kind]
        column = copied.get(resource)
        if column is None:
            column = copied[resource] = base().copy()
            for row, value in values().items():
                column[row] = value
        shown = column.view()
        shown.flags.writeable = False
        return shown

    # Reading.

    @property
    def nodes(self) -> Sequence[NodeObject]:
        return self._base.nodes

    def pods_on(self, row: int) -> Mapping[str, PodInfo]:
        changed = self._pods.get(row)
        return self._base.pods_on(row) if changed is None else changed

    def requested_on(self, row: int) -> Mapping[str, int]:
        changed = self._requested_on.get(row)
        return self._base.requested_on(row) if changed is None else changed

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        changed = self._nonzero_on.get(row)
        return self._base.nonzero_requested_on(row) if changed is None else changed

    def overdrawn(self) -> AbstractSet[str]:
        return self._base.overdrawn() | self._overdrawn

    def requested(self, resource: str) -> Int64s:
        rows = self._requested_on.items
        return self._column(
            _REQUESTED,
            resource,
            lambda: self._base.requested(resource),
            lambda: {row: there.get(resource, 0) for row, there in rows()},
        )

    def nonzero_requested(self, resource: str) -> Int64s:
        place, rows = _NONZERO_RESOURCES.index(resource), self._nonzero_on.items
        return self._column(
            _NONZERO,
            resource,
            lambda: self._base.nonzero_requested(resource),
            lambda: {row: there[place] for row, there in rows()},
        )

    def pod_count(self) -> Int64s:
        return self._column(
            _COUNT, "", self._base.pod_count, lambda: {row: len(pods) for row, pods in self._pods.items()}
        )

    def port_conflicts(self, wanted: Collection[HostPort]) -> Bools:
        found = self._base.port_conflicts(wanted)
        if not (self._freed or self._added):
            return found
        conflict = conflicts_with(wanted)
        for row, freed in self._freed.items():
            if found[row]:
                found[row] = conflict(self._base.used_ports_on(row) - freed)
        for row, pods in self._added.items():
            found[row] = found[row] or any(conflict(pod.host_ports) for pod in pods.values())
        return found

    def used_ports_on(self, row: int) -> frozenset[HostPort]:
        there = self._base.used_ports_on(row) - self._freed.get(row, frozenset())
        return there.union(*[pod.host_ports for pod in self._added.get(row, {}).values()])

    def pods_matching(self, query: PodQuery) -> Int64s:
        counts = self._base.pods_matching(query).copy()
        for row, pods in self._pods.items():
            counts[row] = query.count(pods.values())
        counts.flags.writeable = False
        return counts

    def tally(self, terms: TallyTerms) -> Tally:
        return ChangedTally(self._base.tally(terms), self._changes)

    def affinity_terms(self, kind: TermKind) -> TermsInUse:
        return ChangedTerms(self._base.affinity_terms(kind), kind, self._changes)

    def storage(self) -> StorageInUse:
        return self._storage
