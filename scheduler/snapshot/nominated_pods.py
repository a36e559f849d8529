"""Pods that are nominated to nodes, as columns, and the cluster with these pods on their nodes.

The columns contain the nominated pods only. So a change on the nodes does not change them, and a nomination changes one
row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.snapshot.affinity_index import ChangedTerms
from scheduler.snapshot.arrays import ChangeLog, wrapped
from scheduler.snapshot.pod_tally import ChangedTally
from scheduler.snapshot.port_index import PortIndex
from scheduler.snapshot.storage_index import ChangedStorage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import HostPort
    from scheduler.snapshot.affinity_index import TermKind, TermsInUse
    from scheduler.snapshot.arrays import Bools, Int64s, Rows
    from scheduler.snapshot.derived import Source
    from scheduler.snapshot.pod_counts import PodQuery
    from scheduler.snapshot.pod_tally import Tally, TallyTerms
    from scheduler.snapshot.storage_index import StorageInUse

_MOST_COLUMNS = 64
"""Maximum number of stored columns; pods may request any number of resources."""

_POD_COUNT: Final = "pod count"
_NONZERO: Final = "nonzero"
_REQUESTED: Final = "requested"
_NONZERO_RESOURCES: Final = ("cpu", "memory")
_NOTHING: Final[Mapping[str, int]] = {}

_Key = tuple[str, str]
"""The kind of a column, and the resource."""


class NominatedPods:
    """Nominated pods by row, and the sums of their requests.

    Attributes:
        n_nodes: the number of rows.
        by_row: row -> pod uid -> pod, in order of nomination; only rows with nominated pods.
        has_pods: bool (n_nodes,), the rows with nominated pods.
        changes: the log of the rows whose node, pods or nominated pods changed; see `note`.
        requested_on: row -> resource -> amount, as `Snapshot.requested`.
        nonzero_on: row -> millicores, and bytes of memory, as `Snapshot.nonzero_requested`.
        ports: the host ports of the pods.
        with_storage: row -> the pods that attach storage; only rows with such pods.
        resources: resource -> number of rows whose nominated pods request it.
    """

    def __init__(self, n_nodes: int) -> None:
        self.n_nodes = n_nodes
        self.by_row: dict[int, dict[str, PodInfo]] = {}
        self.has_pods: Bools = np.zeros(n_nodes, dtype=np.bool_)
        self.changes = ChangeLog()
        self.requested_on: dict[int, dict[str, int]] = {}
        self.nonzero_on: dict[int, tuple[int, int]] = {}
        self.ports = PortIndex()
        self.with_storage: dict[int, list[PodInfo]] = {}
        self.resources: Counter[str] = Counter()
        self._columns: dict[_Key, Int64s] = {}
        self._added: list[tuple[int, PodInfo, int]] | None = None

    @classmethod
    def of(cls, nominated: Mapping[int, Sequence[PodInfo]], n_nodes: int) -> NominatedPods:
        """Return the columns of some pods, given as row -> pods."""
        made = cls(n_nodes)
        for row, pods in nominated.items():
            made.set(row, {pod.uid: pod for pod in pods})
        return made

    @property
    def added(self) -> Sequence[tuple[int, PodInfo, int]]:
        """Each pod as (row, pod, 1): a change of the cluster."""
        if self._added is None:
            self._added = [(row, pod, 1) for row, pods in self.by_row.items() for pod in pods.values()]
        return self._added

    def resize(self, n_nodes: int) -> None:
        """Change the number of rows; new rows have no nominated pods."""
        for row in range(n_nodes, self.n_nodes):
            self.set(row, {})
        self.n_nodes = n_nodes
        self.has_pods = np.zeros(n_nodes, dtype=np.bool_)
        self.has_pods[list(self.by_row)] = True
        self._columns.clear()

    def note(self, row: int) -> None:
        """Log that the node, the pods or the nominated pods of a row changed."""
        self.changes.note(row, self.n_nodes)

    def set(self, row: int, pods: dict[str, PodInfo]) -> None:
        """Replace the nominated pods of a row; `pods` is pod uid -> pod."""
        if row in self.by_row:
            self._clear(row)
        elif not pods:
            return
        self._added = None
        if pods:
            self._fill(row, pods)
        for (kind, resource), column in self._columns.items():
            column[row] = self._value(kind, resource, row)

    def _clear(self, row: int) -> None:
        for pod in self.by_row.pop(row).values():
            if pod.host_ports:
                self.ports.remove(row, pod.host_ports)
        del self.nonzero_on[row]
        for resource in self.requested_on.pop(row):
            self.resources[resource] -= 1
            if not self.resources[resource]:
                del self.resources[resource]
        self.with_storage.pop(row, None)
        self.has_pods[row] = False

    def _fill(self, row: int, pods: dict[str, PodInfo]) -> None:
        requested: dict[str, int] = {}
        cpu = memory = 0
        for pod in pods.values():
            resources = pod.resources
            for resource, amount in resources.taken.items():
                requested[resource] = wrapped(requested.get(resource, 0) + amount)
            cpu += resources.nonzero_milli_cpu
            memory += resources.nonzero_memory_bytes
            if pod.host_ports:
                self.ports.add(row, pod.host_ports)
            if pod.storage_volumes:
                self.with_storage.setdefault(row, []).append(pod)
        for resource in requested:
            self.resources[resource] += 1
        self.by_row[row], self.requested_on[row] = pods, requested
        self.nonzero_on[row] = wrapped(cpu), wrapped(memory)
        self.has_pods[row] = True

    def requested(self, resource: str) -> Int64s | None:
        """Return the requests of each row's nominated pods, (n_nodes,); None if no pod requests the resource."""
        return self._column(_REQUESTED, resource) if resource in self.resources else None

    def nonzero_requested(self, resource: str) -> Int64s:
        """Return the requests as `Snapshot.nonzero_requested`, (n_nodes,)."""
        return self._column(_NONZERO, resource)

    def pod_count(self) -> Int64s:
        """Return the number of nominated pods, (n_nodes,)."""
        return self._column(_POD_COUNT, "")

    def _column(self, kind: str, resource: str) -> Int64s:
        column = self._columns.get((kind, resource))
        if column is None:
            column = np.zeros(self.n_nodes, dtype=np.int64)
            for row in self.by_row:
                column[row] = self._value(kind, resource, row)
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            self._columns[kind, resource] = column
        return column

    def _value(self, kind: str, resource: str, row: int) -> int:
        if row not in self.by_row:
            return 0
        if kind is _POD_COUNT:
            return len(self.by_row[row])
        if kind is _NONZERO:
            return self.nonzero_on[row][_NONZERO_RESOURCES.index(resource)]
        return self.requested_on[row].get(resource, 0)


class NominatedOthers(Mapping[int, "Sequence[PodInfo]"]):
    """Row -> the pods nominated to that node, except one pod; valid until the nominations change.

    Attributes:
        pods: the nominated pods, which many decisions share.
        own_row: the row that the excluded pod is nominated to; None if no pod is excluded.
    """

    def __init__(self, pods: NominatedPods, own_row: int | None = None, uid: str = "") -> None:
        self.pods, self.own_row, self._uid = pods, own_row, uid

    @property
    def is_alone(self) -> bool:
        """Whether the excluded pod is the only one that is nominated to its node."""
        return self.own_row is not None and len(self.pods.by_row[self.own_row]) == 1

    def shared(self, rows: Rows) -> Rows:
        """Return those of the rows whose nominated pods are not changed by the exclusion."""
        found: Rows = rows[self.pods.has_pods[rows]]
        return found if self.own_row is None else found[found != self.own_row]

    def __getitem__(self, row: int) -> Sequence[PodInfo]:
        pods = self.pods.by_row[row]
        if row != self.own_row:
            return tuple(pods.values())
        if self.is_alone:
            raise KeyError(row)
        return tuple(pod for uid, pod in pods.items() if uid != self._uid)

    def __iter__(self) -> Iterator[int]:
        alone = self.own_row if self.is_alone else None
        return (row for row in self.pods.by_row if row != alone)

    def __len__(self) -> int:
        return len(self.pods.by_row) - self.is_alone


class WithNominatedPods:
    """A source with nominated pods on their nodes."""

    changes = None  # results are cached by the log of the nominated pods

    def __init__(self, base: Source, nominated: NominatedPods) -> None:
        self._base, self._nominated = base, nominated
        self.n_nodes, self.node_changes, self.row_of = base.n_nodes, base.node_changes, base.row_of
        self.allocatable, self.unschedulable, self.taints = base.allocatable, base.unschedulable, base.taints
        self.declared_features, self.label = base.declared_features, base.label
        self.node_tally = base.node_tally
        self.images, self.images_on_nodes = base.images, base.images_on_nodes
        self.resources, self.has_label, self.objects = base.resources, base.has_label, base.objects
        self._storage: ChangedStorage | None = None

    @property
    def nodes(self) -> Sequence[NodeObject]:
        return self._base.nodes

    def pods_on(self, row: int) -> Mapping[str, PodInfo]:
        there, added = self._base.pods_on(row), self._nominated.by_row.get(row)
        return {**there, **added} if added else there

    def requested_on(self, row: int) -> Mapping[str, int]:
        there, added = self._base.requested_on(row), self._nominated.requested_on.get(row, _NOTHING)
        if not added:
            return there
        total = dict(there)
        for resource, amount in added.items():
            total[resource] = wrapped(total.get(resource, 0) + amount)
            if not total[resource]:
                del total[resource]
        return total

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        there, added = self._base.nonzero_requested_on(row), self._nominated.nonzero_on.get(row)
        if added is None:
            return there
        return [wrapped(one + other) for one, other in zip(there, added, strict=True)]

    def overdrawn(self) -> AbstractSet[str]:
        return self._base.overdrawn() | self._nominated.resources.keys()  # any sum may overflow

    def requested(self, resource: str) -> Int64s:
        added = self._nominated.requested(resource)
        return self._base.requested(resource) if added is None else self._base.requested(resource) + added

    def nonzero_requested(self, resource: str) -> Int64s:
        return self._base.nonzero_requested(resource) + self._nominated.nonzero_requested(resource)

    def pod_count(self) -> Int64s:
        return self._base.pod_count() + self._nominated.pod_count()

    def port_conflicts(self, wanted: Collection[HostPort]) -> Bools:
        found, nominated = self._base.port_conflicts(wanted), self._nominated.ports
        return found | nominated.conflicts(wanted, self.n_nodes) if nominated else found

    def used_ports_on(self, row: int) -> frozenset[HostPort]:
        nominated = self._nominated.by_row.get(row, {}).values()
        return self._base.used_ports_on(row).union(*[pod.host_ports for pod in nominated])

    def pods_matching(self, query: PodQuery) -> Int64s:
        counts = self._base.pods_matching(query).copy()
        for row, pods in self._nominated.by_row.items():
            counts[row] += query.count(pods.values())
        counts.flags.writeable = False
        return counts

    def tally(self, terms: TallyTerms) -> Tally:
        return ChangedTally(self._base.tally(terms), self._nominated.added)

    def affinity_terms(self, kind: TermKind) -> TermsInUse:
        return ChangedTerms(self._base.affinity_terms(kind), kind, self._nominated.added)

    def storage(self) -> StorageInUse:
        if self._storage is None:
            self._storage = ChangedStorage(self._base.storage())
            for row, pods in self._nominated.with_storage.items():
                for pod in pods:
                    self._storage.count(row, pod, 1)
        return self._storage
