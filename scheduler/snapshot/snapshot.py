"""A read-only snapshot of the cluster for a scheduling cycle.

Nothing changes during a synchronous cycle, so a snapshot is a set of views of the table's columns and costs nothing.
Four derived kinds represent hypothetical clusters without changing the table: `take` keeps some rows, `overlay` adds
and removes pods, `with_nominated` adds nominated pods, `with_nodes_of` adds nodes. All create a column when it is first
read.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from scheduler.snapshot.derived import OtherPods, TakenRows
from scheduler.snapshot.images import ImageState
from scheduler.snapshot.interning import Interned
from scheduler.snapshot.nominated_pods import WithNominatedPods
from scheduler.snapshot.object_store import Objects
from scheduler.snapshot.storage_index import TakenStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import HostPort, Taint
    from scheduler.snapshot.affinity_index import TermKind, TermsInUse
    from scheduler.snapshot.arrays import Bools, ChangeLog, Int64s, Rows
    from scheduler.snapshot.derived import Source
    from scheduler.snapshot.images import ImagesOnNodes
    from scheduler.snapshot.node_tally import NodeTally, WeighedTerms
    from scheduler.snapshot.nominated_pods import NominatedPods
    from scheduler.snapshot.pod_counts import PodQuery
    from scheduler.snapshot.pod_tally import Tally, TallyTerms
    from scheduler.snapshot.storage_index import StorageInUse

Key = TypeVar("Key", bound="Hashable")

_UNWATCHED = Objects()


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


def _joined(first: Interned[Key], second: Interned[Key]) -> Interned[Key]:
    """Return the values of the nodes of two sources; equal values have one position."""
    values = list(first.values)
    known = {value: code for code, value in enumerate(values)} if first.code_of is None else first.code_of
    codes: dict[Key, int] = {}
    for value in second.values:
        if value in known:
            codes[value] = known[value]
        else:
            codes[value] = len(values)
            values.append(value)
    others = np.array([codes[value] for value in second.values], dtype=np.int32)[second.codes]
    return Interned(np.concatenate([first.codes, others]), values)


T = TypeVar("T")
S = TypeVar("S", bound=np.generic)


class ResourceArrays:
    """Resource name -> int64 (n_nodes,): millicores, bytes or a count; zeros for unknown resources."""

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
            if resource in self._offered():
                # The number of other names is unlimited, and a later node may offer them.
                self._arrays[resource] = array
        return array


class Snapshot:
    """The nodes and the pods on them, as arrays of length n_nodes.

    Attributes:
        n_nodes: the number of nodes.
        allocatable: resource -> int64 (n_nodes,), the allocatable amount of each node; "pods" is a resource.
        requested: resource -> int64 (n_nodes,), the sum of the requests of each node's pods, including assumed pods.
        nonzero_requested: the same for "cpu" and "memory" only, where a container without a request counts with
            100 millicores and 200 MiB. Scores use it, so that such pods are not all placed on one node.
        changes: the log of rows whose nodes or pods change; None for a hypothetical cluster.
        node_changes: the log of rows whose node objects change; None if the rows differ from the table's.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.n_nodes = source.n_nodes
        self.changes, self.node_changes = source.changes, source.node_changes
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
        """The names of nodes by row; unlike `nodes` it does not change when nodes are added and removed."""
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
        """The number of pods on each node, (n_nodes,), including assumed pods."""
        return self._source.pod_count()

    @property
    def taken(self) -> tuple[ChangeLog, Rows] | None:
        """For a snapshot of some unchanged nodes of the cluster: the change log of the cluster, and their rows there."""
        source = self._source
        if not isinstance(source, TakenRows) or source.base.changes is None:
            return None
        return source.base.changes, source.rows

    def requested_on(self, row: int) -> Mapping[str, int]:
        """Return the requests of one node's pods: resource -> amount as in `requested`, without zeros."""
        return self._source.requested_on(row)

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        """Return the amounts of `nonzero_requested` for one node: millicores, and bytes of memory."""
        return self._source.nonzero_requested_on(row)

    @property
    def unschedulable(self) -> Bools:
        """The nodes with spec.unschedulable, (n_nodes,), as set by `kubectl cordon`."""
        return self._source.unschedulable()

    @property
    def taints(self) -> Interned[tuple[Taint, ...]]:
        """The taints of each node, in the order of the object."""
        return self._source.taints()

    @property
    def declared_features(self) -> Interned[frozenset[str]]:
        """The names of the declared features of each node."""
        return self._source.declared_features()

    @property
    def resources(self) -> AbstractSet[str]:
        """The names of all resources that nodes offer; `allocatable` of other resources is 0 on all nodes."""
        return self._source.resources()

    @property
    def overdrawn(self) -> AbstractSet[str]:
        """The resources whose sum of requests may be negative on a node, or may have overflowed int64."""
        return self._source.overdrawn()

    def has_label(self, key: str) -> bool:
        """Return whether any node may have a label with this key."""
        return self._source.has_label(key)

    def label(self, key: str) -> Interned[str | None]:
        """Return the value of a label on each node; None for nodes without the label."""
        return self._source.label(key)

    def port_conflicts(self, wanted: Collection[HostPort]) -> Bools:
        """Return bool (n_nodes,), the nodes where a wanted host port is in use; linear in the ports and in the nodes."""
        return self._source.port_conflicts(wanted)

    def used_ports_on(self, row: int) -> frozenset[HostPort]:
        """Return the host ports in use on a node, including those of assumed pods."""
        return self._source.used_ports_on(row)

    def image(self, name: str) -> ImageState:
        """Return the nodes that have a container image; `name` is the name that nodes report, including the tag."""
        state = self._source.images((name,)).get(name)
        return ImageState.on_no_node(self.n_nodes) if state is None else state

    def images(self, names: Collection[str]) -> Mapping[str, ImageState]:
        """Return name -> state of those images that any node has."""
        return self._source.images(names)

    def images_on_nodes(self, names: Collection[str]) -> ImagesOnNodes:
        """Return the nodes of many images; nothing is cached, and each call reads all nodes."""
        return self._source.images_on_nodes(names)

    def pods_matching(self, query: PodQuery) -> Int64s:
        """Return the number of matching pods on each node, (n_nodes,), including assumed pods.

        A repeated query costs nothing: its column is kept up to date.
        """
        return self._source.pods_matching(query)

    def tally(self, terms: TallyTerms) -> Tally:
        """Return the weights of pods on nodes, including assumed pods, for many terms; it is cached as a column is."""
        return self._source.tally(terms)

    def node_tally(self, terms: WeighedTerms) -> NodeTally:
        """Return the weights of many node selector terms on each node; the last few results are cached."""
        return self._source.node_tally(terms)

    def affinity_terms(self, kind: TermKind) -> TermsInUse:
        """Return the inter-pod affinity terms of pods on nodes, including assumed pods."""
        return self._source.affinity_terms(kind)

    @property
    def storage(self) -> StorageInUse:
        """The pods on nodes with storage volumes, including assumed pods."""
        return self._source.storage()

    def row_of(self, node_name: str) -> int | None:
        """Return the row of a node, or None if there is no such node."""
        return self._source.row_of(node_name)

    def name_of(self, row: int) -> str:
        """Return the name of the node in a row."""
        return self._source.nodes[row].name

    def pods_on(self, row: int) -> Collection[PodInfo]:
        """Return the pods on the node in a row, including assumed pods."""
        return self._source.pods_on(row).values()

    def pod_on(self, row: int, uid: str) -> PodInfo | None:
        """Return a pod if it is on the node in a row."""
        return self._source.pods_on(row).get(uid)

    def node_info(self, row: int) -> NodeInfo:
        """Return one node with its pods, for rules that read one node at a time."""
        return NodeInfo(self, row)

    def objects(self, kind: str) -> Objects:
        """Return all objects of another kind, `namespace/name` -> object.

        Args:
            kind: the kind, as in the plugin's `needs`, for example "v1/services".

        Raises:
            LookupError: no enabled plugin needs the kind, so it is not watched.
        """
        objects = self._source.objects(kind)
        if objects is None:
            raise LookupError(f"{kind} is not watched; a plugin that reads it must name it in its `needs`")
        return objects

    def watched_objects(self, kind: str) -> Objects:
        """Return `objects`, or none if the kind is not watched: for rules that must place pods without the kind too."""
        found = self._source.objects(kind)
        return _UNWATCHED if found is None else found

    def take(self, rows: Rows) -> Snapshot:
        """Return a snapshot of some nodes only, in any order; its row i is `rows[i]` of this snapshot."""
        return Snapshot(TakenRows(self._source, rows))

    def overlay(
        self, add: Iterable[tuple[int, PodInfo]] = (), remove: Iterable[tuple[int, PodInfo]] = ()
    ) -> Overlay:
        """Return this snapshot with pods added to and removed from nodes; the rows stay the same.

        Args:
            add: (row, pod) pairs to count.
            remove: (row, pod) pairs to stop counting; each pod is on its row. They are removed first.

        A host port of a removed pod is free in the overlay even if a second pod on the node uses it too, as in
        kube-scheduler's dry runs; a pod that is added later takes it again.
        """
        overlay = Overlay(OtherPods(self._source))
        overlay.remove(remove)
        overlay.add(add)
        return overlay

    def with_nominated(self, nominated: NominatedPods) -> Snapshot:
        """Return this snapshot with nominated pods on their nodes; the rows stay the same."""
        return Snapshot(WithNominatedPods(self._source, nominated))

    def with_nodes_of(self, added: Snapshot) -> Snapshot:
        """Return this snapshot with more nodes: their rows follow the others.

        Args:
            added: a snapshot whose nodes have other names, and no pods.
        """
        return Snapshot(MoreNodes(self._source, added._source))


class NodeInfo:
    """A node with its pods, as kube-scheduler's NodeInfo; valid as long as its snapshot.

    Attributes:
        row: its row in the snapshot's arrays.
    """

    __slots__ = ("_node", "_snapshot", "row")

    def __init__(self, snapshot: Snapshot, row: int) -> None:
        self._snapshot = snapshot
        self._node: NodeObject = snapshot.nodes[row]
        self.row = row

    @property
    def snapshot(self) -> Snapshot:
        """The cluster of the node."""
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
    def declared_features(self) -> frozenset[str]:
        """The names of the features that the node declares."""
        return self._node.declared_features

    @property
    def object(self) -> Mapping[str, Any]:
        """The complete Node as received from the API server."""
        return self._node.object

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Resource -> allocatable amount: millicores, bytes or a count."""
        return self._node.allocatable

    @property
    def requested(self) -> Mapping[str, int]:
        """Resource -> requests of its pods: millicores, bytes or a count, without zeros."""
        return self._snapshot.requested_on(self.row)

    @property
    def nonzero_requested(self) -> Sequence[int]:
        """Millicores and bytes of memory; a container without a request counts with 100 millicores and 200 MiB."""
        return self._snapshot.nonzero_requested_on(self.row)

    @property
    def pods(self) -> Collection[PodInfo]:
        """The pods on the node, including assumed pods."""
        return self._snapshot.pods_on(self.row)

    def __repr__(self) -> str:
        return f"NodeInfo({self.name})"


class Overlay(Snapshot):
    """A snapshot of a hypothetical cluster. After more pods are added or removed, arrays read before follow."""

    def __init__(self, pods: OtherPods) -> None:
        super().__init__(pods)
        self._other_pods = pods

    def add(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Count more pods, given as (row, pod)."""
        self._other_pods.add(pods)

    def remove(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Stop counting pods, given as (row, pod); each pod is on its row."""
        self._other_pods.remove(pods)


def _zeros(length: int) -> Int64s:
    zeros = np.zeros(length, dtype=np.int64)
    zeros.flags.writeable = False
    return zeros
