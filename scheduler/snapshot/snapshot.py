"""What a scheduling cycle sees of the cluster: read-only, and free to take.

Nothing changes during a synchronous cycle, so a snapshot is a set of views of the table's own columns. The two
derived kinds answer "and what if" without touching the table: `take` keeps some rows, `overlay` adds and
removes pods. Both make a column only when somebody reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from scheduler.snapshot.images import ImageState
from scheduler.snapshot.other_pods import OtherPods
from scheduler.snapshot.taken_rows import TakenRows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.objects.host_ports import HostPort
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.taints import Taint
    from scheduler.snapshot.affinity_index import TermKind, TermsInUse
    from scheduler.snapshot.arrays import Bools, Int64s, Rows
    from scheduler.snapshot.change_log import ChangeLog
    from scheduler.snapshot.images import ImagesOnNodes
    from scheduler.snapshot.interning import Interned
    from scheduler.snapshot.node_tally import NodeTally, WeighedTerms
    from scheduler.snapshot.object_store import Objects
    from scheduler.snapshot.pod_counts import PodQuery
    from scheduler.snapshot.pod_tally import Tally, TallyTerms
    from scheduler.snapshot.source import Source
    from scheduler.snapshot.storage_index import StorageInUse

T = TypeVar("T")
S = TypeVar("S", bound=np.generic)


class ResourceArrays:
    """Resource name -> int64 (n_nodes,): cpu in milli, bytes, or a count; zeros for what nobody has."""

    __slots__ = ("_arrays", "_n_nodes", "_offered", "_read")

    def __init__(
        self, read: Callable[[str], Int64s | None], n_nodes: int, offered: Callable[[], AbstractSet[str]]
    ) -> None:
        self._read = read
        self._n_nodes = n_nodes
        self._offered = offered
        self._arrays: dict[str, Int64s] = {}

    def __getitem__(self, resource: str) -> Int64s:
        array = self._arrays.get(resource)
        if array is None:
            array = self._read(resource)
            if array is None:
                return _zeros(self._n_nodes)
            if resource in self._offered():  # others are without number, and may come with the next node
                self._arrays[resource] = array
        return array


class Snapshot:
    """The nodes and the pods on them, as arrays of length n_nodes.

    Attributes:
        n_nodes: how many nodes there are.
        allocatable: resource -> int64 (n_nodes,), what each node's pods may ask for in all; "pods" is a resource.
        requested: resource -> int64 (n_nodes,), what the pods there ask for, assumed ones included.
        nonzero_requested: the same for "cpu" and "memory" only, where a container that asks for none counts with
            100 milli and 200 MiB: for scores, so that such pods do not all go to one node.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.n_nodes = source.n_nodes
        self.allocatable, self.requested, self.nonzero_requested = (
            ResourceArrays(read, self.n_nodes, source.resources)
            for read in (source.allocatable, source.requested, source.nonzero_requested)
        )
        self._all_rows: Rows | None = None
        self._names: tuple[str, ...] | None = None

    @property
    def nodes(self) -> Sequence[NodeObject]:
        """The node objects, by row."""
        return self._source.nodes

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names by row; unlike `nodes` it stays as it is when nodes come and go."""
        if self._names is None:
            self._names = tuple(node.name for node in self._source.nodes)
        return self._names

    @property
    def all_rows(self) -> Rows:
        """Every row: 0 to n_nodes - 1."""
        if self._all_rows is None:
            self._all_rows = np.arange(self.n_nodes, dtype=np.intp)
            self._all_rows.flags.writeable = False
        return self._all_rows

    @property
    def pod_count(self) -> Int64s:
        """(n_nodes,), pods on each node, assumed ones included."""
        return self._source.pod_count()

    @property
    def changes(self) -> ChangeLog | None:
        """The rows that change, by their nodes or by the pods there; None of a snapshot of what might be."""
        return self._source.changes

    @property
    def node_changes(self) -> ChangeLog | None:
        """The rows whose node objects change; None where rows are not those of the cluster itself."""
        return self._source.node_changes

    @property
    def taken(self) -> tuple[ChangeLog, Rows] | None:
        """Of a snapshot of some of the cluster's nodes, as they are: the log of that cluster, and their rows there."""
        source = self._source
        if not isinstance(source, TakenRows) or source.base.changes is None:
            return None
        return source.base.changes, source.rows

    def requested_on(self, row: int) -> Mapping[str, int]:
        """Return what the pods on one node ask for: resource -> amount as in `requested`; zeros are left out."""
        return self._source.requested_on(row)

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        """Return the same as in `nonzero_requested`: milliCPU, and bytes of memory."""
        return self._source.nonzero_requested_on(row)

    @property
    def unschedulable(self) -> Bools:
        """(n_nodes,), where spec.unschedulable is set, as by `kubectl cordon`."""
        return self._source.unschedulable()

    @property
    def taints(self) -> Interned[tuple[Taint, ...]]:
        """Each node's taints, in the order of the object."""
        return self._source.taints()

    @property
    def declared_features(self) -> Interned[frozenset[str]]:
        """The names of the features each node says it has."""
        return self._source.declared_features()

    @property
    def resources(self) -> AbstractSet[str]:
        """The names of all resources that nodes offer; of another, `allocatable` is 0 everywhere."""
        return self._source.resources()

    @property
    def overdrawn(self) -> AbstractSet[str]:
        """The names of the resources of which the pods on some node may ask for less than nothing, or for more than fits int64."""
        return self._source.overdrawn()

    def has_label(self, key: str) -> bool:
        """Say whether any node may have a label of this key."""
        return self._source.has_label(key)

    def label(self, key: str) -> Interned[str | None]:
        """Each node's value of one label; None where it has none."""
        return self._source.label(key)

    @property
    def used_ports(self) -> Interned[frozenset[HostPort]]:
        """The ports of each node that the pods there hold, assumed ones included."""
        return self._source.used_ports()

    def image(self, name: str) -> ImageState:
        """Return which nodes have a container image; `name` as nodes report it, tag included."""
        state = self._source.images((name,)).get(name)
        return ImageState.on_no_node(self.n_nodes) if state is None else state

    def images(self, names: Collection[str]) -> Mapping[str, ImageState]:
        """Return the same of those of several images that nodes have, by name."""
        return self._source.images(names)

    def images_on_nodes(self, names: Collection[str]) -> ImagesOnNodes:
        """Return where very many images are: nothing is kept, and all nodes are looked at each time."""
        return self._source.images_on_nodes(names)

    def pods_matching(self, query: PodQuery) -> Int64s:
        """Return (n_nodes,), how many pods of a description each node has, assumed ones included.

        A description that was asked for before costs nothing: its column is kept up to date with the pods.
        """
        return self._source.pods_matching(query)

    def tally(self, terms: TallyTerms) -> Tally:
        """Return what the pods on nodes, assumed ones included, are worth to very many terms; kept as a column is."""
        return self._source.tally(terms)

    def node_tally(self, terms: WeighedTerms) -> NodeTally:
        """Return what very many node selector terms are worth on each node; the last few are kept."""
        return self._source.node_tally(terms)

    def affinity_terms(self, kind: TermKind) -> TermsInUse:
        """Return the inter-pod affinity terms that pods on nodes have, assumed ones included."""
        return self._source.affinity_terms(kind)

    @property
    def storage(self) -> StorageInUse:
        """The pods on nodes that attach storage, assumed ones included."""
        return self._source.storage()

    def row_of(self, node_name: str) -> int | None:
        """Return a node's row, or None where there is no such node."""
        return self._source.row_of(node_name)

    def name_of(self, row: int) -> str:
        """Return the name of the node in a row."""
        return self._source.nodes[row].name

    def pods_on(self, row: int) -> Collection[PodInfo]:
        """Return the pods on the node in a row, assumed ones included."""
        return self._source.pods_on(row).values()

    def node_info(self, row: int) -> NodeInfo:
        """Return one node with its pods, for rules that look at nodes one by one."""
        return NodeInfo(self, row)

    def objects(self, kind: str) -> Objects:
        """Return all objects of another kind, `namespace/name` -> object.

        Args:
            kind: as in the plugin's `needs`, "v1/services" for example.

        Raises:
            LookupError: no enabled plugin needs that kind, so it is not watched.
        """
        objects = self._source.objects(kind)
        if objects is None:
            raise LookupError(f"{kind} is not watched; a plugin that reads it names it in its `needs`")
        return objects

    def take(self, rows: Rows) -> Snapshot:
        """Return a snapshot of some nodes only; row i of it is `rows[i]` of this one, in any order."""
        return Snapshot(TakenRows(self._source, rows))

    def overlay(
        self, add: Iterable[tuple[int, PodInfo]] = (), remove: Iterable[tuple[int, PodInfo]] = ()
    ) -> Overlay:
        """Return this snapshot as if pods were added to and removed from nodes; rows stay the same.

        Args:
            add: (row, pod) pairs to count.
            remove: (row, pod) pairs to stop counting; each pod is on that row. They are taken out first.

        A port of a node that a removed pod holds is free in the overlay even where a second pod on the node holds
        it too, as in kube-scheduler's dry runs; a pod added later takes it again.
        """
        overlay = Overlay(OtherPods(self._source))
        overlay.remove(remove)
        overlay.add(add)
        return overlay


class NodeInfo:
    """A node with the pods on it, as upstream's NodeInfo; valid as long as its snapshot.

    Attributes:
        row: its place in the snapshot's arrays.
    """

    __slots__ = ("_node", "_snapshot", "row")

    def __init__(self, snapshot: Snapshot, row: int) -> None:
        self._snapshot = snapshot
        self._node: NodeObject = snapshot.nodes[row]
        self.row = row

    @property
    def snapshot(self) -> Snapshot:
        """The cluster that the node is part of."""
        return self._snapshot

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self._node.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self._node.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self._node.taints

    @property
    def unschedulable(self) -> bool:
        return self._node.unschedulable

    @property
    def object(self) -> Mapping[str, Any]:
        """The whole Node as the API server sent it."""
        return self._node.object

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Resource -> what its pods may ask for in all: cpu in milli, bytes, or a count."""
        return self._node.allocatable

    @property
    def requested(self) -> Mapping[str, int]:
        """Resource -> what the pods on it ask for: cpu in milli, bytes, or a count; zeros are left out."""
        return self._snapshot.requested_on(self.row)

    @property
    def nonzero_requested(self) -> Sequence[int]:
        """The same for cpu and memory, where a container that asks for none counts with 100 milli and 200 MiB."""
        return self._snapshot.nonzero_requested_on(self.row)

    @property
    def pods(self) -> Collection[PodInfo]:
        """The pods on it, assumed ones included."""
        return self._snapshot.pods_on(self.row)

    def __repr__(self) -> str:
        return f"NodeInfo({self.name})"


class Overlay(Snapshot):
    """A snapshot of what might be. More pods can come and go: what was read of it before follows."""

    def __init__(self, pods: OtherPods) -> None:
        super().__init__(pods)
        self._other_pods = pods

    def add(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Count more pods, (row, pod) each."""
        self._other_pods.add(pods)

    def remove(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Stop counting more pods, (row, pod) each; each is on that row."""
        self._other_pods.remove(pods)


def _zeros(length: int) -> Int64s:
    zeros = np.zeros(length, dtype=np.int64)
    zeros.flags.writeable = False
    return zeros
