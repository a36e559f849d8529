"""How many volumes each node has attached, and how many it can: counted again only where something changed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from plugins.volumes.attachable import UncountableError, Volumes, attachable_volumes, unique_name
from plugins.volumes.outdated_rows import ATTACHMENTS_OF_NODE, OutdatedRows
from plugins.volumes.storage import VOLUME_ATTACHMENTS, Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from scheduler.framework import Outcome
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.storage import CSINode
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot, StorageInUse

S = TypeVar("S", bound=np.generic)

_NO_LIMIT = np.int64(2**62)


class OnNode(NamedTuple):
    """What one node has attached.

    Attributes:
        volumes: of the pods there.
        counts: driver -> how many volumes, those that are attached without a pod included.
        failure: why the volumes of the pods cannot be counted, if they cannot.
    """

    volumes: Mapping[str, str]
    counts: Mapping[str, int]
    failure: Outcome | None


class AttachedVolumes:
    """The volumes attached to each node of a snapshot.

    Attributes:
        has_csi_node: bool (n_nodes,), where a CSINode says which drivers there are.
        has_limits: bool (n_nodes,), where it limits any of them.
        failures: row -> why the volumes there cannot be counted.
    """

    def __init__(self) -> None:
        self.has_csi_node: Bools = np.zeros(0, dtype=np.bool_)
        self.has_limits: Bools = np.zeros(0, dtype=np.bool_)
        self.failures: dict[int, Outcome] = {}
        self._counts: dict[str, Int64s] = {}  # driver -> (n_nodes,)
        self._limits: dict[str, Int64s] = {}  # driver -> (n_nodes,)
        self._holders: defaultdict[str, set[int]] = defaultdict(set)  # unique name -> rows
        self._on_row: dict[int, OnNode] = {}  # rows that have any
        self._outdated = OutdatedRows()

    def follow(self, snapshot: Snapshot, pods: StorageInUse) -> None:
        """Count again what changed since the last time.

        Args:
            snapshot: the cluster, whose pods may be others.
            pods: those that count: of the cluster as it is, or, where nothing was followed before, any.
        """
        n_nodes = snapshot.n_nodes
        rows = None if pods.index is None else self._outdated.since_last(snapshot, pods.index)
        self._resize(n_nodes)
        # A loop over all nodes at first, and where more happened than is remembered.
        for row in range(n_nodes) if rows is None else rows:
            if row < n_nodes:
                found = self.on_node(row, snapshot, pods.pods_on(row))
                self._write(row, found, Storage(snapshot).csi_node(snapshot.name_of(row)))

    @staticmethod
    def on_node(row: int, snapshot: Snapshot, pods: Iterable[PodInfo]) -> OnNode:
        """Return what a node has attached if these are the pods there."""
        name, storage = snapshot.name_of(row), Storage(snapshot)
        has_csi_node = storage.csi_node(name) is not None
        volumes: Volumes = {}
        failure = None
        try:
            for pod in pods:
                volumes |= attachable_volumes(pod, storage, has_csi_node=has_csi_node, is_new=False)
        except UncountableError as error:
            volumes, failure = {}, error.outcome
        counts: dict[str, int] = {}
        for driver in {**_attached_to(name, snapshot, storage), **volumes}.values():
            counts[driver] = counts.get(driver, 0) + 1
        return OnNode(volumes, counts, failure)

    def full(self, wanted: Volumes, changed: Mapping[int, OnNode]) -> Rows:
        """Return the rows where more of these volumes would have to be attached than can be.

        Args:
            wanted: the volumes of a pod.
            changed: row -> what is attached there, other than what was followed.
        """
        n_nodes = len(self.has_csi_node)
        full = np.zeros(0, dtype=np.intp)
        for driver in set(wanted.values()) & self._limits.keys():
            names = [name for name, its_driver in wanted.items() if its_driver == driver]
            more = np.full(n_nodes, len(names), dtype=np.int64)
            for name in names:
                more[list(self._holders.get(name, ()))] -= 1
            count = self._counts.get(driver)
            count = np.zeros(n_nodes, dtype=np.int64) if count is None else count.copy()
            for row, on_node in changed.items():
                more[row] = sum(name not in on_node.volumes for name in names)
                count[row] = on_node.counts.get(driver, 0)
            full = np.union1d(full, np.flatnonzero((more > 0) & (count + more > self._limits[driver])))
        return full

    def _resize(self, n_nodes: int) -> None:
        """Have a place for each row; rows that are no more hold nothing."""
        if n_nodes == len(self.has_csi_node):
            return
        for row in [row for row in self._on_row if row >= n_nodes]:
            self._clear(row)
        self.has_csi_node = _resized(self.has_csi_node, n_nodes, fill=False)
        self.has_limits = _resized(self.has_limits, n_nodes, fill=False)
        self._counts = {driver: _resized(each, n_nodes, fill=0) for driver, each in self._counts.items()}
        self._limits = {
            driver: _resized(each, n_nodes, fill=_NO_LIMIT) for driver, each in self._limits.items()
        }

    def _clear(self, row: int) -> None:
        self.failures.pop(row, None)
        before = self._on_row.pop(row, None)
        if before is None:
            return
        for driver in before.counts:
            self._counts[driver][row] = 0
        for name in before.volumes:
            self._holders[name].remove(row)
            if not self._holders[name]:
                del self._holders[name]

    def _write(self, row: int, found: OnNode, csi_node: CSINode | None) -> None:
        self._clear(row)
        self._on_row[row] = found
        if found.failure is not None:
            self.failures[row] = found.failure
        for name in found.volumes:
            self._holders[name].add(row)
        n_nodes = len(self.has_csi_node)
        for driver, count in found.counts.items():
            self._counts.setdefault(driver, np.zeros(n_nodes, dtype=np.int64))[row] = count
        limits = {} if csi_node is None else csi_node.limits
        self.has_csi_node[row] = csi_node is not None
        self.has_limits[row] = bool(limits)
        for driver in limits.keys() - self._limits.keys():
            self._limits[driver] = np.full(n_nodes, _NO_LIMIT, dtype=np.int64)
        for driver, column in self._limits.items():
            column[row] = limits.get(driver, _NO_LIMIT)


def _attached_to(name: str, snapshot: Snapshot, storage: Storage) -> Volumes:
    """Return the volumes that a node has attached, whoever asked for them.

    Source:
        kube-scheduler v1.36, plugins/nodevolumelimits/csi.go, getNodeVolumeAttachmentInfo.
    """
    found: Volumes = {}
    for attachment in snapshot.objects(VOLUME_ATTACHMENTS).indexed(ATTACHMENTS_OF_NODE, name).values():
        driver, volume_name = attachment.spec.attacher, attachment.spec.source.persistent_volume_name
        volume = storage.volume(volume_name) if driver and volume_name is not None else None
        if volume is not None and volume.spec.csi is not None:
            found[unique_name(driver, volume.spec.csi.volume_handle)] = driver
    return found


def _resized(array: NDArray[S], length: int, *, fill: Any) -> NDArray[S]:
    changed = np.full(length, fill, dtype=array.dtype)
    shared = min(len(array), length)
    changed[:shared] = array[:shared]
    return changed
