"""Separates pods that cannot share a volume: an inline disk, or a claim for one pod only.

Source:
    kube-scheduler v1.36, plugins/volumerestrictions/volume_restrictions.go.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from plugins.volumes.remedies import MOST_COMPARED, remedy_of_claims
from plugins.volumes.storage import (
    CLAIM_NOT_FOUND,
    CLAIMS,
    StorageObjects,
    claim_not_found,
    claims_waited_for,
    event_key,
    is_named_by,
    named_claims,
    uses_read,
)
from plugins.work_in_steps import PluginWork
from scheduler.framework import (
    PASS,
    SKIP,
    ActionType,
    Change,
    ClusterEvent,
    Code,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    NodesExplanation,
    Outcome,
    Outcomes,
    PreFilterPlugin,
    QueueingHint,
    Reason,
    Remedy,
    Status,
    TimeSlice,
)
from scheduler.objects.caches import BoundedDict
from scheduler.objects.label_index import some_of
from scheduler.objects.storage import (
    CEPH_IMAGE,
    CLAIM,
    EPHEMERAL_CLAIM,
    READ_WRITE_ONCE_POD,
    PersistentVolumeClaim,
    StorageUse,
    disk_uses,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence

    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Volume
    from scheduler.snapshot import NodeInfo, Rows, Snapshot, StorageInUse

REASON_DISK = Reason("node(s) had no available disk", "DiskInUse")
REASON_ONE_POD = Reason(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
    "ReadWriteOncePodInUse",
)

_TABLE = (
    PASS,
    Outcome(Code.UNSCHEDULABLE, (REASON_DISK,)),
    Outcome(Code.UNSCHEDULABLE, (REASON_ONE_POD,)),
)
_PRE_FILTER = "PreFilterVolumeRestrictions"


class _Disks:
    """The inline disks of a pod.

    Attributes:
        pod: the pod.
        conflicts: the uses of other pods that conflict with its own: disks are shared if no pod writes.
    """

    def __init__(self, pod: PodInfo) -> None:
        self.pod = pod
        self.conflicts: set[StorageUse] = set()
        # Its own use of a Ceph image -> the monitors that its volumes name.
        self._monitors: dict[StorageUse, set[str]] = {}
        for volume in pod.storage_volumes:
            for use in disk_uses(volume):
                self.conflicts.add(use._replace(read_only=False))
                if not use.read_only:
                    self.conflicts.add(use._replace(read_only=True))
                if volume.rbd is not None:
                    self._monitors.setdefault(use, set()).update(volume.rbd.monitors)

    def shared_with(self, other: PodInfo) -> Iterator[StorageUse]:
        """Yield the uses of another pod that conflict; a use may repeat."""
        for use in self.conflicts & other.storage_uses:
            if use.kind != CEPH_IMAGE:
                yield use
        for volume in other.storage_volumes if self._monitors else ():
            if volume.rbd is None:
                continue
            (use,) = disk_uses(volume)
            for read_only in (False,) if use.read_only else (False, True):
                own = self._monitors.get(use._replace(read_only=read_only))
                if own is not None and not own.isdisjoint(volume.rbd.monitors):
                    yield use


class _Wanted:
    """The pod's ReadWriteOncePod claims, how many uses of them there are, and its disks.

    Attributes:
        names: the names of the claims, without their namespace.
        uses: claims that are in use anywhere.
        disks: the inline disks.
        changes: row -> uses of claims that were added there, or removed.
    """

    def __init__(
        self, names: frozenset[str], uses: int, disks: _Disks, changes: Mapping[int, int] | None = None
    ) -> None:
        self.names, self.uses, self.disks = names, uses, disks
        self.changes = Counter(changes)

    def clone(self) -> _Wanted:
        return _Wanted(self.names, self.uses, self.disks, self.changes)

    def count(self, pods: Iterable[tuple[int, PodInfo]], sign: int) -> None:
        """Count volumes by the name of their claim in any namespace, as upstream does."""
        for row, pod in pods:
            self.changes[row] += sign * sum(name in self.names for name in named_claims(pod))


class VolumeRestrictions(PreFilterPlugin, FilterPlugin):
    """Searches the existing pods for the same disks and claims."""

    name = "VolumeRestrictions"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            REASON_DISK.code: "a pod on the node uses the same disk",
            REASON_ONE_POD.code: "another pod uses a claim of the pod with the access mode ReadWriteOncePod",
            CLAIM_NOT_FOUND: "a PersistentVolumeClaim of the pod does not exist",
        }
    )
    needs = Needs(kinds=frozenset({CLAIMS}))
    keeps_rows_apart = True

    def __init__(self, *, time_slice: TimeSlice) -> None:
        self._work = PluginWork(time_slice)
        # The uids of two pods with many monitors -> whether they have an image in common; the volumes of a pod never change.
        self._compared: BoundedDict[tuple[str, str], bool] = BoundedDict(_MOST_COMPARISONS)

    def signature(self, pod: PodInfo) -> Hashable | None:
        return None if pod.storage_volumes else ()  # the use of a claim concerns all nodes

    def events(self) -> Sequence[EventWithHint]:
        return (
            EventWithHint(
                ClusterEvent(EventResource.POD, ActionType.DELETE),
                self._after_pod_deleted,
                uses_read,
                event_keys=lambda old, _: old.storage_uses,
                waits_for_keys=_unwanted,
            ),
            EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD)),
            EventWithHint(
                ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD),
                self._after_claim_added,
                uses_read,
                event_key,
                claims_waited_for,
            ),
        )

    def _after_pod_deleted(self, pod: PodInfo, old: PodInfo, new: None) -> QueueingHint:
        few, many = sorted((pod.storage_uses, old.storage_uses), key=len)
        shares = pod.namespace == old.namespace and any(_conflicts_with_any(use, many) for use in few)
        return QueueingHint.QUEUE if shares else QueueingHint.SKIP

    def _after_claim_added(self, pod: PodInfo, old: None, new: Mapping[str, Any]) -> QueueingHint:
        return QueueingHint.QUEUE if is_named_by(pod, new) else QueueingHint.SKIP

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        if node is None:
            return list(_why_no_claim(pod, snapshot)) or None
        return [*_why_one_pod(pod, snapshot), *_why_disks(pod, node)]

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        storage = StorageObjects(snapshot)
        missing = [name for name in named_claims(pod) if storage.claim(f"{pod.namespace}/{name}") is None]
        if missing:
            clauses = {
                f"{pod.namespace}/{name}": f"a PersistentVolumeClaim {name} existed in namespace {pod.namespace}"
                for name in missing
            }
            return remedy_of_claims(pod, rows, lambda _: clauses)
        users = list(_users_of_one_pod_claims(pod, snapshot))
        if users:
            return _remedy_after(pod, users, "so that its ReadWriteOncePod claim is free")
        shared = min(
            (_users_of_disks(pod, snapshot, row) for row in rows[:MOST_COMPARED].tolist()),
            key=len,
            default=[],
        )
        return _remedy_after(pod, shared, "so that its disk is free")

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        storage = StorageObjects(snapshot)
        if pod.claims:
            self._work.begin()
            self._work.done(snapshot.objects(CLAIMS).convert(PersistentVolumeClaim, pod.claim_keys))
        for name in named_claims(pod):
            if storage.claim(f"{pod.namespace}/{name}") is None:
                return Status.unschedulable(claim_not_found(name), resolvable=False)
        names = _names_for_one_pod(pod, storage)
        uses = sum(
            bool(snapshot.storage.holders(StorageUse(CLAIM, f"{pod.namespace}/{name}"))) for name in names
        )
        if not uses and not any(map(_is_disk, pod.storage_volumes)):
            return SKIP
        disks = _Disks(pod)
        self._work.begin()
        self._work.done(self._compare(disks, snapshot.storage))
        state.write(_PRE_FILTER, _Wanted(frozenset(names), uses, disks))
        return None

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_PRE_FILTER, _Wanted).count(added, 1)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_PRE_FILTER, _Wanted).count(removed, -1)

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        claims = state.read(_PRE_FILTER, _Wanted)
        index = np.full(snapshot.n_nodes, 2 if claims.uses > 0 else 0, dtype=np.uint16)
        for row, change in claims.changes.items():
            index[row] = 2 if claims.uses + change > 0 else 0
        index[list(self._rows_with(claims.disks, snapshot.storage))] = 1
        return Outcomes(index, _TABLE)

    def _rows_with(self, disks: _Disks, storage: StorageInUse) -> set[int]:
        """Return the rows with a pod that uses a disk."""
        rows: set[int] = set()
        for use in disks.conflicts:
            if use.kind == CEPH_IMAGE:
                on = (row for row in storage.holders(use) if row not in rows)
                rows.update(
                    row for row in on if any(self._shares(disks, each) for each in storage.pods_on(row))
                )
            else:
                rows.update(storage.holders(use))
        return rows

    def _compare(self, disks: _Disks, storage: StorageInUse) -> Generator[None, None, None]:
        """Compare the pod with others that use its Ceph images, in steps; results for many monitors are kept."""
        images = [use for use in disks.conflicts if use.kind == CEPH_IMAGE]
        for row in sorted({row for use in images for row in storage.holders(use)}):
            for other in storage.pods_on(row):
                if (disks.pod.uid, other.uid) not in self._compared and _monitors(other) > _FEW_MONITORS:
                    self._shares(disks, other)
                    yield

    def _shares(self, disks: _Disks, other: PodInfo) -> bool:
        """Return whether another pod uses a disk of the pod."""
        key = disks.pod.uid, other.uid
        known = self._compared.get(key)
        if known is None:
            known = any(True for _ in disks.shared_with(other))
            if _monitors(other) > _FEW_MONITORS:
                self._compared[key] = known
        return known


_FEW_MONITORS = 256
"""The comparison with a pod that has more monitors is kept."""
_MOST_COMPARISONS = 65_536


def _monitors(pod: PodInfo) -> int:
    return sum([len(volume.rbd.monitors) for volume in pod.storage_volumes if volume.rbd is not None])


def _names_for_one_pod(pod: PodInfo, storage: StorageObjects) -> frozenset[str]:
    """Return the names of a pod's ReadWriteOncePod claims."""
    claims = {name: storage.claim(f"{pod.namespace}/{name}") for name in named_claims(pod)}
    return frozenset(
        name
        for name, claim in claims.items()
        if claim is not None and READ_WRITE_ONCE_POD in claim.spec.access_modes
    )


def _why_no_claim(pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Yield which claims of a pod do not exist."""
    storage = StorageObjects(snapshot)
    for name in named_claims(pod):
        if storage.claim(f"{pod.namespace}/{name}") is None:
            yield f"the PersistentVolumeClaim {name} does not exist in namespace {pod.namespace}"
            yield f"what would help: a PersistentVolumeClaim {name} in namespace {pod.namespace}"


def _why_one_pod(pod: PodInfo, snapshot: Snapshot) -> Iterator[str]:
    """Yield which pods use the ReadWriteOncePod claims."""
    for name in sorted(_names_for_one_pod(pod, StorageObjects(snapshot))):
        use = StorageUse(CLAIM, f"{pod.namespace}/{name}")
        for row in sorted(snapshot.storage.holders(use)):
            users = [each.key for each in snapshot.pods_on(row) if use in each.storage_uses]
            yield (
                f"claim {name} is for one pod only ({READ_WRITE_ONCE_POD}), and in use by {', '.join(users)} "
                f"on node {snapshot.name_of(row)}"
            )
            yield f"what would help: {', '.join(users)} being deleted, or the access mode ReadWriteOnce"


def _users_of_one_pod_claims(pod: PodInfo, snapshot: Snapshot) -> Iterator[tuple[int, PodInfo]]:
    """Yield the rows and pods that use a ReadWriteOncePod claim of a pod."""
    names = _names_for_one_pod(pod, StorageObjects(snapshot))
    wanted = frozenset(StorageUse(CLAIM, f"{pod.namespace}/{name}") for name in names)
    for row in sorted({row for use in wanted for row in snapshot.storage.holders(use)}):
        yield from ((row, each) for each in snapshot.pods_on(row) if wanted & each.storage_uses)


def _users_of_disks(pod: PodInfo, snapshot: Snapshot, row: int) -> list[tuple[int, PodInfo]]:
    """Return the row, and the pods there that use a disk of a pod."""
    disks = _Disks(pod)
    return [(row, each) for each in snapshot.pods_on(row) if any(True for _ in disks.shared_with(each))]


def _remedy_after(pod: PodInfo, users: Sequence[tuple[int, PodInfo]], purpose: str) -> NodesExplanation:
    """Return the remedy that some pods on nodes end."""
    if not users:
        return NodesExplanation()
    names = some_of([each.key for _, each in users])
    text = f"pod{'' if len(users) == 1 else 's'} {names} ended, {purpose}"

    def change(fitting: Rows) -> Change:
        return Change(int(fitting[0]), text, pod)

    return NodesExplanation("", [Remedy(pod, change, ended=users)])


def _why_disks(pod: PodInfo, node: NodeInfo) -> Iterator[str]:
    """Yield which disks of a pod are in use on a node."""
    disks = _Disks(pod)
    for each in node.pods:
        for use in sorted({(use.kind, str(use.key)) for use in disks.shared_with(each)}):
            yield f"disk {' '.join(use)} is in use on this node by {each.key}, and cannot be shared with it"


def _is_disk(volume: Volume) -> bool:
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
    )


def _unwanted(pod: PodInfo) -> frozenset[StorageUse]:
    """Return the uses of another pod that may have excluded this pod: claims that it names, and disks."""
    return frozenset((*(use for use in pod.storage_uses if use.kind == CLAIM), *_Disks(pod).conflicts))


def _conflicts_with_any(use: StorageUse, others: frozenset[StorageUse]) -> bool:
    """Return whether a claim or disk of one pod conflicts with those of another, whatever the monitors of a Ceph image."""
    if use.kind in {CLAIM, EPHEMERAL_CLAIM}:
        return use.kind == CLAIM and use in others
    return use._replace(read_only=False) in others or (
        not use.read_only and use._replace(read_only=True) in others
    )
