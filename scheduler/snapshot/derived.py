"""Snapshots made from snapshots: some of the rows, or the same rows with other pods."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from scheduler.snapshot.affinity_index import ChangedTerms, TakenTerms
from scheduler.snapshot.arrays import wrapped
from scheduler.snapshot.images import ImageState
from scheduler.snapshot.interning import Interned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.host_ports import HostPort
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.taints import Taint
    from scheduler.snapshot.affinity_index import TermKind, TermsInUse
    from scheduler.snapshot.arrays import Bools, Int64s, Rows
    from scheduler.snapshot.change_log import ChangeLog
    from scheduler.snapshot.object_store import Objects
    from scheduler.snapshot.pod_counts import PodQuery
    from scheduler.snapshot.source import Source


class TakenRows:
    """Some rows of a source, in a given order."""

    def __init__(self, base: Source, rows: Rows) -> None:
        self._base = base
        self._rows = rows
        self._nodes: list[NodeObject] | None = None
        self._row_of: dict[str, int] | None = None

    @property
    def n_nodes(self) -> int:
        return len(self._rows)

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

    def resources(self) -> frozenset[str]:
        return self._base.resources()

    def allocatable(self, resource: str) -> Int64s | None:
        return self._some(self._base.allocatable(resource))

    def requested(self, resource: str) -> Int64s | None:
        return self._some(self._base.requested(resource))

    def nonzero_requested(self, resource: str) -> Int64s:
        return self._base.nonzero_requested(resource)[self._rows]

    def pod_count(self) -> Int64s:
        return self._base.pod_count()[self._rows]

    @property
    def changes(self) -> None:
        """Nothing is kept of some of the rows."""

    @property
    def node_changes(self) -> None:
        """Likewise."""

    def requested_on(self, row: int) -> Mapping[str, int]:
        return self._base.requested_on(int(self._rows[row]))

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        return self._base.nonzero_requested_on(int(self._rows[row]))

    def unschedulable(self) -> Bools:
        return self._base.unschedulable()[self._rows]

    def taints(self) -> Interned[tuple[Taint, ...]]:
        taints = self._base.taints()
        return Interned(taints.codes[self._rows], taints.values)

    def declared_features(self) -> Interned[frozenset[str]]:
        features = self._base.declared_features()
        return Interned(features.codes[self._rows], features.values)

    def label(self, key: str) -> Interned[str | None]:
        label = self._base.label(key)
        return Interned(label.codes[self._rows], label.values)

    def used_ports(self) -> Interned[frozenset[HostPort]]:
        ports = self._base.used_ports()
        return Interned(ports.codes[self._rows], ports.values)

    def image(self, name: str) -> ImageState:
        image = self._base.image(name)
        present = image.present[self._rows]
        return ImageState(image.size_bytes, int(np.count_nonzero(present)), present)

    def pods_matching(self, query: PodQuery) -> Int64s:
        return self._base.pods_matching(query)[self._rows]

    def affinity_terms(self, kind: TermKind) -> TermsInUse:
        return TakenTerms(self._base.affinity_terms(kind), self._rows, self._base.n_nodes)

    def objects(self, kind: str) -> Objects | None:
        return self._base.objects(kind)

    def _some(self, array: Int64s | None) -> Int64s | None:
        return None if array is None else array[self._rows]


class OtherPods:
    """A source with pods added and removed.

    A column that the change touches is copied the first time it is read, and only its changed rows written;
    all others are the base's own.
    """

    def __init__(
        self, base: Source, add: Iterable[tuple[int, PodInfo]], remove: Iterable[tuple[int, PodInfo]]
    ) -> None:
        self._base = base
        self._pods: dict[int, dict[str, PodInfo]] = {}  # changed row -> pod uid -> pod
        self._requested: defaultdict[str, defaultdict[int, int]] = defaultdict(
            _deltas
        )  # resource -> row -> change
        self._nonzero: defaultdict[str, defaultdict[int, int]] = defaultdict(_deltas)
        self._count: defaultdict[int, int] = defaultdict(int)  # row -> change
        self._ports: dict[int, frozenset[HostPort]] = {}  # row -> what is used there after the change
        self._changes: list[tuple[int, PodInfo, int]] = []  # row, pod, 1 if it came and -1 if it went
        for row, pod in remove:
            del self._pods_of(row)[pod.uid]
            self._add(row, pod, -1)
            if pod.host_ports:
                self._ports[row] = self._ports_of(row) - frozenset(pod.host_ports)
        for row, pod in add:
            self._pods_of(row)[pod.uid] = pod
            self._add(row, pod, 1)
            if pod.host_ports:
                self._ports[row] = self._ports_of(row) | frozenset(pod.host_ports)

    @property
    def n_nodes(self) -> int:
        return self._base.n_nodes

    @property
    def nodes(self) -> Sequence[NodeObject]:
        return self._base.nodes

    def row_of(self, node_name: str) -> int | None:
        return self._base.row_of(node_name)

    def pods_on(self, row: int) -> Mapping[str, PodInfo]:
        changed = self._pods.get(row)
        return self._base.pods_on(row) if changed is None else changed

    def resources(self) -> frozenset[str]:
        return self._base.resources() | frozenset(self._requested)

    def allocatable(self, resource: str) -> Int64s | None:
        return self._base.allocatable(resource)

    def requested(self, resource: str) -> Int64s | None:
        base = self._base.requested(resource)
        changes = self._requested.get(resource)
        if changes is None:
            return base
        return _changed(np.zeros(self.n_nodes, dtype=np.int64) if base is None else base, changes)

    def nonzero_requested(self, resource: str) -> Int64s:
        base = self._base.nonzero_requested(resource)
        changes = self._nonzero.get(resource)
        return base if changes is None else _changed(base, changes)

    def pod_count(self) -> Int64s:
        return _changed(self._base.pod_count(), self._count)

    @property
    def changes(self) -> None:
        """Nothing is kept of pods that are not really there."""

    @property
    def node_changes(self) -> ChangeLog | None:
        """The nodes are the base's own."""
        return self._base.node_changes

    def requested_on(self, row: int) -> Mapping[str, int]:
        requested = dict(self._base.requested_on(row))
        for resource, changes in self._requested.items():
            requested[resource] = wrapped(requested.get(resource, 0) + changes.get(row, 0))
        return {resource: amount for resource, amount in requested.items() if amount}

    def nonzero_requested_on(self, row: int) -> Sequence[int]:
        amounts = zip(self._base.nonzero_requested_on(row), ("cpu", "memory"), strict=True)
        return [
            wrapped(amount + self._nonzero[resource][row]) if resource in self._nonzero else amount
            for amount, resource in amounts
        ]

    def unschedulable(self) -> Bools:
        return self._base.unschedulable()

    def taints(self) -> Interned[tuple[Taint, ...]]:
        return self._base.taints()

    def declared_features(self) -> Interned[frozenset[str]]:
        return self._base.declared_features()

    def label(self, key: str) -> Interned[str | None]:
        return self._base.label(key)

    def used_ports(self) -> Interned[frozenset[HostPort]]:
        base = self._base.used_ports()
        if not self._ports:
            return base
        codes, values = base.codes.copy(), list(base.values)
        for row, ports in self._ports.items():
            codes[row] = len(values)
            values.append(ports)
        codes.flags.writeable = False
        return Interned(codes, values)

    def image(self, name: str) -> ImageState:
        return self._base.image(name)

    def pods_matching(self, query: PodQuery) -> Int64s:
        counts = self._base.pods_matching(query).copy()
        for row, pods in self._pods.items():
            counts[row] = query.count(pods.values())
        counts.flags.writeable = False
        return counts

    def affinity_terms(self, kind: TermKind) -> TermsInUse:
        return ChangedTerms(self._base.affinity_terms(kind), kind, self._changes)

    def objects(self, kind: str) -> Objects | None:
        return self._base.objects(kind)

    def _pods_of(self, row: int) -> dict[str, PodInfo]:
        pods = self._pods.get(row)
        if pods is None:
            pods = self._pods[row] = dict(self._base.pods_on(row))
        return pods

    def _ports_of(self, row: int) -> frozenset[HostPort]:
        ports = self._ports.get(row)
        if ports is None:
            used = self._base.used_ports()
            ports = used.values[int(used.codes[row])]
        return ports

    def _add(self, row: int, pod: PodInfo, sign: int) -> None:
        self._changes.append((row, pod, sign))
        resources = pod.resources
        for resource, amount in resources.taken.items():
            self._requested[resource][row] += sign * amount
        self._nonzero["cpu"][row] += sign * resources.nonzero_milli_cpu
        self._nonzero["memory"][row] += sign * resources.nonzero_memory_bytes
        self._count[row] += sign


def _deltas() -> defaultdict[int, int]:
    return defaultdict(int)


def _changed(base: Int64s, changes: Mapping[int, int]) -> Int64s:
    array = base.copy()
    for row, change in changes.items():
        array[row] = wrapped(int(array[row]) + change)
    array.flags.writeable = False
    return array
