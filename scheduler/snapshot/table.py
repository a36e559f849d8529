"""The columns of the cluster, updated row by row; columns exist for names that nodes have, not for names in pods.

Only `scheduler.engine.state` writes to the table. The last row replaces the row of a removed node, so columns have no gaps.
Every changed or moved row is logged, so that caches of results per row know what to evaluate again. One log has all
changes, another one only the changes of node objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scheduler.objects.caches import BoundedDict
from scheduler.snapshot.affinity_index import AffinityIndex
from scheduler.snapshot.arrays import ChangeLog, Column, wrapped
from scheduler.snapshot.images import ImageColumns
from scheduler.snapshot.interning import InternedColumn, NamesInUse
from scheduler.snapshot.node_tally import NodeTallies
from scheduler.snapshot.object_store import ObjectStore
from scheduler.snapshot.pod_counts import PodCounts
from scheduler.snapshot.pod_tally import PodTallies
from scheduler.snapshot.port_index import PortIndex
from scheduler.snapshot.snapshot import Snapshot
from scheduler.snapshot.storage_index import StorageIndex

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from typing import Any

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerms
    from scheduler.objects.v1 import HostPort, Taint
    from scheduler.snapshot.affinity_index import TermIndex, TermKind
    from scheduler.snapshot.arrays import Bools, Int64s, Rows
    from scheduler.snapshot.images import ImagesOnNodes, ImageState
    from scheduler.snapshot.interning import Interned
    from scheduler.snapshot.node_tally import KeptNodeTally, WeighedTerms
    from scheduler.snapshot.object_store import Objects
    from scheduler.snapshot.pod_counts import PodQuery
    from scheduler.snapshot.pod_tally import PodTally, TallyTerms

_LEAST_ROOM = 16
"""Initial capacity of columns, in rows."""

_LABEL_COLUMNS = 1024
"""Maximum number of label columns; the least recently used column is dropped first."""

_OTHER_RESOURCES = 64
"""Maximum number of columns of requested resources that no node offers; the least recently used is dropped first."""


class KeptColumns(NamedTuple):
    """The names of columns that exist only while they are used."""

    resources: tuple[str, ...]
    labels: tuple[str, ...]
    images: tuple[str, ...]
    queries: tuple[PodQuery, ...]


class ClusterTable:
    """The quantities of all nodes, one array each, and the pods on nodes.

    Args:
        in_slices: whether affinity terms of pods with many terms are left for `work`.

    Attributes:
        nodes, changes, node_changes: see `Snapshot`; the same objects as long as the table exists.
    """

    def __init__(self, *, in_slices: bool = False) -> None:
        self._in_slices = in_slices
        self.nodes: list[NodeObject] = []
        self._room = 0  # capacity of every column
        self._row_of: dict[str, int] = {}  # node name -> row
        self._pods: list[dict[str, PodInfo]] = []  # by row: pod uid -> pod
        self._allocatable: dict[str, Column[np.int64]] = {}  # by resource
        self._requested: dict[str, Column[np.int64]] = {}  # by resource: offered resources and others
        self._offered = NamesInUse()
        self._other_resources: BoundedDict[str, None] = BoundedDict(
            _OTHER_RESOURCES, lambda resource, _: self._drop_requested(resource)
        )
        self._overdrawn: dict[str, int] = {}  # resource -> number of rows with a negative sum
        self._nonzero_milli_cpu: Column[np.int64] = Column(np.int64)
        self._nonzero_memory_bytes: Column[np.int64] = Column(np.int64)
        self._pod_count: Column[np.int64] = Column(np.int64)
        self._unschedulable: Column[np.bool_] = Column(np.bool_)
        self._taints: InternedColumn[tuple[Taint, ...]] = InternedColumn(())
        self._declared_features: InternedColumn[frozenset[str]] = InternedColumn(frozenset())
        # By label key.
        self._labels: BoundedDict[str, InternedColumn[str | None]] = BoundedDict(_LABEL_COLUMNS)
        self._label_keys = NamesInUse()
        self._no_label: InternedColumn[str | None] = InternedColumn(None)
        self._ports = PortIndex()
        self._images = ImageColumns()
        self._pod_counts = PodCounts()
        self._pod_tallies = PodTallies(self._pod_counts.classes, self.has_label)
        self._affinity = AffinityIndex(self._label_keys, in_slices=in_slices)
        self._storage = StorageIndex()
        self._objects: dict[str, ObjectStore] = {}  # by kind
        self._requested_on: list[dict[str, int]] = []  # by row: resource -> amount, without zeros
        self._nonzero_on: list[list[int]] = []  # by row: milliCPU and bytes
        self.changes = ChangeLog()
        self.node_changes = ChangeLog()
        self._node_tallies = NodeTallies(self, self.node_changes)
        self._snapshot: Snapshot | None = None

    # Reading.

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current cluster; valid until the next change of the table."""
        if self._snapshot is None:
            self._snapshot = Snapshot(self)
        return self._snapshot

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    def row_of(self, node_name: str) -> int | None:
        return self._row_of.get(node_name)

    def pods_on(self, row: int) -> Mapping[str, PodInfo]:
        return self._pods[row]

    def allocatable(self, resource: str) -> Int64s | None:
        column = self._allocatable.get(resource)
        return None if column is None else column.view(self.n_nodes)

    def requested(self, resource: str) -> Int64s:
        column = self._requested.get(resource)
        if column is None:
            column = self._other_resource(resource)
        elif resource in self._other_resources:
            self._other_resources.move_to_end(resource)
        return column.view(self.n_nodes)

    def resources(self) -> AbstractSet[str]:
        return self._allocatable.keys()

    def overdrawn(self) -> AbstractSet[str]:
        return self._overdrawn.keys()

    def nonzero_requested(self, resource: str) -> Int64s:
        column = self._nonzero_milli_cpu if resource == "cpu" else self._nonzero_memory_bytes
        return column.view(self.n_nodes)

    def pod_count(self) -> Int64s:
        return self._pod_count.view(self.n_nodes)

    def requested_on(self, row: int) -> Mapping[str, int]:
        return self._requested_on[row]

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        return self._nonzero_on[row]

    def unschedulable(self) -> Bools:
        return self._unschedulable.view(self.n_nodes)

    def taints(self) -> Interned[tuple[Taint, ...]]:
        return self._taints.shown(self.n_nodes)

    def declared_features(self) -> Interned[frozenset[str]]:
        return self._declared_features.shown(self.n_nodes)

    def has_label(self, key: str) -> bool:
        return key in self._label_keys

    def label(self, key: str) -> Interned[str | None]:
        if key not in self._label_keys:
            return self._no_label.shown(self.n_nodes)
        column = self._labels.get(key)
        if column is None:
            column = self._new_label_column(key)
        self._labels.move_to_end(key)
        return column.shown(self.n_nodes)

    def port_conflicts(self, wanted: Collection[HostPort]) -> Bools:
        return self._ports.conflicts(wanted, self.n_nodes)

    def used_ports_on(self, row: int) -> frozenset[HostPort]:
        return frozenset().union(*[pod.host_ports for pod in self._pods[row].values() if pod.host_ports])

    def indexed_ports(self, row: int) -> tuple[int, dict[HostPort, int]]:
        """Return the entries of a row in the index of host ports; see `PortIndex.on`."""
        return self._ports.on(row, self.used_ports_on(row))

    def images(self, names: Collection[str]) -> Mapping[str, ImageState]:
        return self._images.states(names, self.nodes, self._room)

    def images_on_nodes(self, names: Collection[str]) -> ImagesOnNodes:
        return self._images.on_nodes(names, self.nodes)

    def pods_matching(self, query: PodQuery) -> Int64s:
        return self._pod_counts.column(query, self._room).view(self.n_nodes)

    def tally(self, terms: TallyTerms) -> PodTally:
        return self._pod_tallies.of(terms)

    def node_tally(self, terms: WeighedTerms) -> KeptNodeTally:
        return self._node_tallies.of(terms)

    def affinity_terms(self, kind: TermKind) -> TermIndex:
        return self._affinity.of(kind)

    def storage(self) -> StorageIndex:
        return self._storage

    def objects(self, kind: str) -> Objects | None:
        return self._objects.get(kind)

    @property
    def kept_columns(self) -> KeptColumns:
        """The names of the current columns that exist only while they are used."""
        return KeptColumns(
            tuple(self._requested), tuple(self._labels), self._images.names, self._pod_counts.queries
        )

    def _other_resource(self, resource: str) -> Column[np.int64]:
        """Return the column of requests for a resource that no node offers."""
        column = self._new_requested_column(resource)
        self._other_resources[resource] = None
        return column

    def _new_requested_column(self, resource: str) -> Column[np.int64]:
        column = self._requested[resource] = Column(np.int64, self._room)
        # One loop over nodes for each resource that becomes offered or is read for the first time.
        for row, there in enumerate(self._requested_on):
            if resource in there:
                column.cells[row] = there[resource]
        self._layout_changed()
        return column

    def _drop_requested(self, resource: str) -> None:
        del self._requested[resource]
        self._other_resources.pop(resource, None)
        self._layout_changed()

    def _new_label_column(self, key: str) -> InternedColumn[str | None]:
        column: InternedColumn[str | None] = InternedColumn(None)
        column.codes.reserve(self._room)
        # One loop over nodes for each label key that nodes have and a pod or plugin reads.
        for row, node in enumerate(self.nodes):
            column.set(row, node.labels.get(key))
        self._labels[key] = column
        return column

    # Nodes.

    def add_node(self, node: NodeObject) -> int:
        """Append a node without pods and return its row."""
        assert node.name not in self._row_of, f"node {node.name} is already in the table"
        row = len(self.nodes)
        self.nodes.append(node)
        self._pods.append({})
        self._requested_on.append({})
        self._nonzero_on.append([0, 0])
        self._row_of[node.name] = row
        if row == self._room:
            self._make_room(max(_LEAST_ROOM, 2 * row))
        self._note_names(None, node)
        self._write_node(row, node)
        self._layout_changed()
        return row

    def update_node(self, node: NodeObject) -> bool:
        """Replace a node's own values; its pods stay.

        Returns:
            Whether anything changed; false for a heartbeat, so that cached results of the row stay valid.
        """
        row = self._row_of[node.name]
        before, self.nodes[row] = self.nodes[row], node
        if node.is_heartbeat_of(before):
            return False
        self._note_names(before, node)
        # Resources that the node no longer offers become zero.
        for resource in before.allocatable:
            if resource not in node.allocatable and resource in self._allocatable:
                self._allocatable[resource].cells[row] = 0
        self._write_node(row, node)
        return True

    def remove_node(self, node_name: str) -> None:
        """Remove a node and its pods; the last row moves into its row. The change logs note this row."""
        row = self._row_of.pop(node_name)
        last = len(self.nodes) - 1
        self._note_names(self.nodes[row], None)
        for resource, amount in self._requested_on[row].items():
            self._note_overdrawn(resource, amount, 0)
        self._affinity.move(self._pods[row].values(), start=row, end=None)
        self._index(row, row, -1)
        self._pod_counts.move(self._pods[row].values(), start=row, end=None)
        if row != last:
            self._affinity.move(self._pods[last].values(), start=last, end=row)
            self._index(last, last, -1)
            self._index(row, last, 1)
            self._pod_counts.move(self._pods[last].values(), start=last, end=row)
        for interned in self._interned():
            if row != last:
                interned.set(row, interned.values[int(interned.codes.cells[last])])
            interned.clear(last)
        self._images.move(row, last)
        moved = {id(interned.codes) for interned in self._interned()}
        moved.update(map(id, self._images.columns()))
        for column in self._columns():
            if id(column) not in moved:
                column.cells[row] = column.cells[last]
                column.cells[last] = 0
        by_row: tuple[list[Any], ...] = (self.nodes, self._pods, self._requested_on, self._nonzero_on)
        for each in by_row:
            each[row] = each[last]
            each.pop()
        if row != last:
            self._row_of[self.nodes[row].name] = row
        self._node_changed(row)
        self._layout_changed()

    def _index(self, row: int, pods_of: int, sign: int) -> None:
        """Add the storage and the host ports of the pods on one row to another row, or remove them."""
        for pod in self._pods[pods_of].values():
            if pod.storage_volumes:
                self._storage.count(row, pod, sign, self.n_nodes)
            if pod.host_ports:
                self._count_ports(row, pod, sign)

    def _note_names(self, before: NodeObject | None, after: NodeObject | None) -> None:
        """Create columns for names that only this node has, and drop columns for names that no node has any more."""
        nothing: Mapping[str, Any] = {}
        old, new = (nothing if node is None else node.allocatable for node in (before, after))
        if old.keys() != new.keys():
            for resource in self._offered.add(new.keys() - old.keys()):
                self._offer(resource)
            for resource in self._offered.remove(old.keys() - new.keys()):
                del self._allocatable[resource]
                self._drop_requested(resource)
        old, new = (nothing if node is None else node.labels for node in (before, after))
        if old.keys() != new.keys():
            for key in self._label_keys.add(new.keys() - old.keys()):
                self._affinity.show(key)
            for key in self._label_keys.remove(old.keys() - new.keys()):
                self._affinity.hide(key)
                self._labels.pop(key, None)
        self._images.note_names(before, after)

    def _offer(self, resource: str) -> None:
        self._allocatable[resource] = Column(np.int64, self._room)
        if resource in self._other_resources:
            del self._other_resources[resource]
        else:
            self._new_requested_column(resource)
        self._layout_changed()

    def _write_node(self, row: int, node: NodeObject) -> None:
        for resource, amount in node.allocatable.items():
            self._allocatable[resource].cells[row] = amount
        self._unschedulable.cells[row] = node.unschedulable
        self._taints.set(row, node.taints)
        self._declared_features.set(row, node.declared_features)
        for key, column in self._labels.items():
            column.set(row, node.labels.get(key))
        self._images.set(row, node)
        self._node_changed(row)

    # Pods on nodes.

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Count a pod on a node."""
        assert pod.uid not in self._pods[row], f"pod {pod.key} is already counted on {self.nodes[row].name}"
        self._pods[row][pod.uid] = pod
        self._count(row, pod, 1)

    def remove_pod(self, row: int, uid: str) -> PodInfo:
        """Stop counting a pod on a node, and return it."""
        pod = self._pods[row].pop(uid)
        self._count(row, pod, -1)
        return pod

    def replace_pod(self, row: int, pod: PodInfo, *, invalidates: bool) -> None:
        """Replace a pod on a node by another version with the same requests.

        Args:
            row: the row of the node.
            pod: the other version; see `PodInfo.takes_the_same_as`.
            invalidates: whether the change invalidates cached results of the row.
        """
        self._pods[row][pod.uid] = pod
        if pod.storage_volumes:
            self._storage.replace(row, pod)
        if invalidates:
            self._pods_changed(row)

    def _count(self, row: int, pod: PodInfo, sign: int) -> None:
        resources, requested = pod.resources, self._requested_on[row]
        for resource, amount in resources.taken.items():
            before = requested.get(resource, 0)
            total = wrapped(before + sign * amount)
            if total:
                requested[resource] = total
            else:
                requested.pop(resource, None)
            if total < 0 or before < 0:
                self._note_overdrawn(resource, before, total)
            column = self._requested.get(resource)
            if column is not None:
                column.cells[row] = total
        nonzero = self._nonzero_on[row]
        nonzero[0] = wrapped(nonzero[0] + sign * resources.nonzero_milli_cpu)
        nonzero[1] = wrapped(nonzero[1] + sign * resources.nonzero_memory_bytes)
        self._nonzero_milli_cpu.cells[row] = nonzero[0]
        self._nonzero_memory_bytes.cells[row] = nonzero[1]
        self._pod_count.cells[row] = len(self._pods[row])
        self._pod_counts.count(row, pod, sign)
        self._affinity.count(row, pod, sign)
        if pod.storage_volumes:
            self._storage.count(row, pod, sign, self.n_nodes)
        if pod.host_ports:
            self._count_ports(row, pod, sign)
        self._pods_changed(row)

    def _count_ports(self, row: int, pod: PodInfo, sign: int) -> None:
        (self._ports.add if sign > 0 else self._ports.remove)(row, pod.host_ports)

    def start_over(self) -> None:
        """Remove all pods and everything that was counted for them; the nodes stay.

        This repairs the table after a column was found to be wrong, which is a bug of this scheduler.
        """
        fresh = ClusterTable(in_slices=self._in_slices)
        for node in self.nodes:
            fresh.add_node(node)
        fresh._objects = self._objects
        # In place, because readers keep the table. The change logs are new, so readers evaluate all rows again.
        vars(self).update(vars(fresh))

    def _note_overdrawn(self, resource: str, before: int, after: int) -> None:
        rows = self._overdrawn.get(resource, 0) + (after < 0) - (before < 0)
        if rows:
            self._overdrawn[resource] = rows
        else:
            self._overdrawn.pop(resource, None)

    @property
    def is_behind(self) -> bool:
        """Whether `work` has affinity terms left to insert or remove."""
        return self._affinity.is_behind

    def work(self) -> Sequence[PodInfo]:
        """Insert or remove some of the remaining affinity terms; it takes a few milliseconds.

        Returns:
            The pods whose terms this slice began to insert; only one of pods with equal terms.
        """
        return self._affinity.work()

    @property
    def pods_by_terms(self) -> Iterator[tuple[AffinityTerms, tuple[Rows, Int64s]]]:
        """Yield affinity terms, the rows of the pods with equal terms, and the number of these pods in each row."""
        return self._affinity.rows()

    # Objects of other kinds, for the plugins that need them.

    def watch_kind(self, kind: str) -> ObjectStore:
        """Return the store of a kind; the caller keeps its objects up to date."""
        return self._objects.setdefault(kind, ObjectStore())

    # The layout.

    def _interned(self) -> tuple[InternedColumn[Any], ...]:
        labels = (self._no_label, *self._labels.values())
        return (self._taints, self._declared_features, *labels)

    def _make_room(self, rows: int) -> None:
        self._room = rows
        for column in self._columns():
            column.reserve(rows)

    def _columns(self) -> tuple[Column[Any], ...]:
        return (
            *self._allocatable.values(),
            *self._requested.values(),
            self._nonzero_milli_cpu,
            self._nonzero_memory_bytes,
            self._pod_count,
            self._unschedulable,
            *(interned.codes for interned in self._interned()),
            *self._images.columns(),
            *self._pod_counts.columns(),
        )

    def _node_changed(self, row: int) -> None:
        self.node_changes.note(row, self.n_nodes)
        self._pods_changed(row)

    def _pods_changed(self, row: int) -> None:
        self.changes.note(row, self.n_nodes)

    def _layout_changed(self) -> None:
        self._snapshot = None
