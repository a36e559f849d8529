"""How many volumes each node has attached, and how many it can attach; only changes are recounted."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from plugins.volumes.attachable import (
    UncountableError,
    Volumes,
    attachable,
    attachable_volumes,
    claims_by_volume,
    unique_name,
)
from plugins.volumes.storage import (
    CLAIMS,
    CSI_NODES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUMES,
    StorageObjects,
)
from scheduler.objects.storage import (
    CLAIM,
    EPHEMERAL_CLAIM,
    PersistentVolumeClaim,
    StorageUse,
    VolumeAttachment,
)
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from scheduler.framework import Outcome
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.storage import PodClaim
    from scheduler.objects.v1 import Volume
    from scheduler.snapshot import Bools, Int64s, Objects, Rows, Snapshot, StorageIndex, StorageInUse

ATTACHMENTS_OF_NODE: Final = Index(VolumeAttachment, lambda attachment: (attachment.spec.node_name,))
"""Node name -> the VolumeAttachments there."""

_ATTACHMENTS_OF_VOLUME = Index(
    VolumeAttachment, lambda attachment: (attachment.spec.source.persistent_volume_name,)
)
_CLAIMS_OF_VOLUME = Index(PersistentVolumeClaim, lambda claim: (claim.spec.volume_name,))
_CLAIMS_OF_CLASS = Index(PersistentVolumeClaim, lambda claim: (claim.class_name,))
_INDEXES: Final[tuple[tuple[str, Index[Any]], ...]] = (
    (VOLUME_ATTACHMENTS, ATTACHMENTS_OF_NODE),
    (VOLUME_ATTACHMENTS, _ATTACHMENTS_OF_VOLUME),
    (CLAIMS, _CLAIMS_OF_VOLUME),
    (CLAIMS, _CLAIMS_OF_CLASS),
)
_KINDS = (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, VOLUME_ATTACHMENTS)


@dataclass(slots=True)
class Outdated:
    """What changed on one row.

    Attributes:
        node: whether everything changed.
        pods: whether pods were added or removed.
        claims: the keys of claims of its pods.
        attachments: the keys of VolumeAttachments.
    """

    node: bool = False
    pods: bool = False
    claims: set[str] = field(default_factory=set)
    attachments: set[str] = field(default_factory=set)


class OutdatedRows:
    """Tracks changes of nodes, of pods with storage, and of the objects that determine attached volumes."""

    def __init__(self) -> None:
        self._pods: StorageIndex | None = None  # of the live cluster
        self._seen: dict[str, int] = {}  # log -> how many changes were processed
        # VolumeAttachment -> its node, because deletions do not report it.
        self._node_of: dict[str, str] = {}

    @staticmethod
    def read(snapshot: Snapshot) -> Generator[None, None, None]:
        """Read, in steps, the objects that `note` needs."""
        for kind, index in _INDEXES:
            yield from snapshot.objects(kind).read(index)

    def note(self, snapshot: Snapshot, pods: StorageIndex, outdated: dict[int, Outdated]) -> bool:
        """Add what changed since the last call, by row; return False if the logs do not reach back that far."""
        stores = {kind: snapshot.objects(kind) for kind in _KINDS}
        nodes = snapshot.node_changes
        assert nodes is not None, "the rows are those of the live cluster"
        seen = self._seen if pods is self._pods else {}
        self._pods = pods
        self._seen = {kind: store.changes for kind, store in stores.items()}
        self._seen |= {"nodes": nodes.end, "pods": pods.changes.end}
        if seen == self._seen:
            return True
        if seen:
            changed = {kind: store.changed_since(seen[kind]) for kind, store in stores.items()}
            moved, came = nodes.since(seen["nodes"]), pods.changes.since(seen["pods"])
            if moved is not None and came is not None and None not in changed.values():
                for row in moved:
                    _of(outdated, row).node = True
                for row in came:
                    _of(outdated, row).pods = True
                self._note_objects(changed, stores, snapshot, pods, outdated)
                return True
        self._node_of = {key: _node_of(stores[VOLUME_ATTACHMENTS], key) for key in stores[VOLUME_ATTACHMENTS]}
        return False

    def _note_objects(
        self,
        changed: Mapping[str, Any],
        stores: Mapping[str, Objects],
        snapshot: Snapshot,
        pods: StorageIndex,
        outdated: dict[int, Outdated],
    ) -> None:
        """Add the rows of changed objects, kind -> keys."""
        for name in changed[CSI_NODES]:
            if (row := snapshot.row_of(name)) is not None:
                _of(outdated, row).node = True
        for name, key in self._changed_attachments(changed, stores[VOLUME_ATTACHMENTS]):
            if (row := snapshot.row_of(name)) is not None:
                _of(outdated, row).attachments.add(key)
        for key in _changed_claims(changed, stores[CLAIMS]):
            for kind in (CLAIM, EPHEMERAL_CLAIM):
                for row in pods.holders(StorageUse(kind, key)):
                    _of(outdated, row).claims.add(key)

    def _changed_attachments(
        self, changed: Mapping[str, Any], attachments: Objects
    ) -> Iterator[tuple[str, str]]:
        """Yield nodes, and keys of VolumeAttachments that were added, deleted, or refer to another volume now."""
        for key in changed[VOLUME_ATTACHMENTS]:
            yield self._node_of.pop(key, ""), key
            if key in attachments:
                self._node_of[key] = _node_of(attachments, key)
                yield self._node_of[key], key
        for volume in changed[VOLUMES]:
            for key, each in attachments.indexed(_ATTACHMENTS_OF_VOLUME, volume).items():
                yield each.spec.node_name, key


def _changed_claims(changed: Mapping[str, Any], claims: Objects) -> set[str]:
    """Return the keys of claims that changed, or have another volume or class now."""
    keys = set(changed[CLAIMS])
    for volume in changed[VOLUMES]:
        keys.update(claims.indexed(_CLAIMS_OF_VOLUME, volume))
    for storage_class in changed[STORAGE_CLASSES]:
        keys.update(claims.indexed(_CLAIMS_OF_CLASS, storage_class))
    return keys


def _of(outdated: dict[int, Outdated], row: int) -> Outdated:
    found = outdated.get(row)
    if found is None:
        found = outdated[row] = Outdated()
    return found


def _node_of(attachments: Objects, key: str) -> str:
    found = attachments.typed(VolumeAttachment, key)
    return "" if found is None else found.spec.node_name


S = TypeVar("S", bound=np.generic)

_NO_LIMIT = np.int64(2**62)

_Named = tuple[str, str]
"""The unique name of a volume, and its driver."""


class OnNode(NamedTuple):
    """The attached volumes of one node.

    Attributes:
        volumes: the unique names of the volumes of its pods.
        counts: driver -> how many volumes, including those attached without a pod.
        failure: why the volumes of the pods cannot be counted; None if they can.
    """

    volumes: Collection[str]
    counts: Mapping[str, int]
    failure: Outcome | None


class _PodVolumes:
    """The volumes of a pod on a node, each with its result.

    Attributes:
        pod: the pod.
        volumes: its volumes and their claims.
        unread: the indexes of volumes that have to be read.
        found: by index, the attached volume.
        faults: by index, why the volume cannot be counted.
        places: claim -> the indexes of volumes that name it.
    """

    __slots__ = ("faults", "found", "places", "pod", "unread", "volumes")

    def __init__(self, pod: PodInfo) -> None:
        self.pod = pod
        self.volumes: list[tuple[Volume, PodClaim | None]] = list(claims_by_volume(pod))
        self.unread = list(range(len(self.volumes)))
        self.found: list[_Named | None] = [None] * len(self.volumes)
        self.faults: dict[int, Outcome] = {}
        self.places: dict[str, list[int]] = {}
        for place, (_, claim) in enumerate(self.volumes):
            if claim is not None:
                self.places.setdefault(claim.key, []).append(place)

    @property
    def fault(self) -> Outcome | None:
        """The first fault."""
        return self.faults[min(self.faults)] if self.faults else None

    def look_at(self, place: int, storage: StorageObjects, *, has_csi_node: bool) -> _Named | None:
        """Read a volume; return the attached volume."""
        self.faults.pop(place, None)
        volume, claim = self.volumes[place]
        try:
            return attachable(self.pod, volume, claim, storage, has_csi_node=has_csi_node, is_new=False)
        except UncountableError as error:
            self.faults[place] = error.outcome
            return None


class _Row:
    """The attached volumes of one node, by their users.

    Attributes:
        pods: uid -> the volumes of a pod.
        incomplete: the uids of pods with volumes that have to be read.
        faulty: the uids of pods with faults.
        attachments: VolumeAttachment -> the volume that it attaches.
        users: unique name -> how many volumes of the node's pods refer to it.
        holders: unique name -> how many VolumeAttachments refer to it.
        counts: driver -> how many volumes.
    """

    __slots__ = ("attachments", "counts", "faulty", "holders", "incomplete", "pods", "users")

    def __init__(self) -> None:
        self.pods: dict[str, _PodVolumes] = {}
        self.incomplete: dict[str, None] = {}
        self.faulty: set[str] = set()
        self.attachments: dict[str, _Named] = {}
        self.users: dict[str, int] = {}
        self.holders: dict[str, int] = {}
        self.counts: dict[str, int] = {}

    def use(self, named: _Named, sign: int) -> None:
        """Count a volume of a pod, or with a sign of -1 stop counting it."""
        self._count(self.users, self.holders, named, sign)

    def hold(self, named: _Named, sign: int) -> None:
        """Count a VolumeAttachment, or with a sign of -1 stop counting it."""
        self._count(self.holders, self.users, named, sign)

    def _count(self, mine: dict[str, int], others: Mapping[str, int], named: _Named, sign: int) -> None:
        name, driver = named
        before = mine.get(name, 0)
        if before + sign:
            mine[name] = before + sign
        else:
            del mine[name]
        if (not before or not before + sign) and name not in others:
            self.counts[driver] = self.counts.get(driver, 0) + sign

    def mark(self, claims: AbstractSet[str]) -> None:
        """Mark the volumes of some claims as unread."""
        for uid, pod in self.pods.items():
            for key in pod.places.keys() & claims:
                pod.unread += pod.places[key]
                self.incomplete[uid] = None

    def failure(self, pods: Iterable[PodInfo]) -> Outcome | None:
        """Return why the volumes of pods cannot be counted: the fault of the first of these pods."""
        if not self.faulty:
            return None
        return next((self.pods[pod.uid].fault for pod in pods if pod.uid in self.faulty), None)

    def with_changes(self, changes: Mapping[_Named, int], failure: Outcome | None) -> OnNode:
        """Return the attached volumes after changes of the number of references to names."""
        counts, volumes = dict(self.counts), set(self.users)
        for (name, driver), change in changes.items():
            before = self.users.get(name, 0)
            is_used = before + change > 0
            if is_used == bool(before):
                continue
            (volumes.add if is_used else volumes.discard)(name)
            if name not in self.holders:
                counts[driver] = counts.get(driver, 0) + (1 if is_used else -1)
        return OnNode(volumes, counts, failure)


class AttachedVolumes:
    """The volumes attached to each node of a snapshot.

    Attributes:
        has_csi_node: bool (n_nodes,), where a CSINode lists the drivers.
        has_limits: bool (n_nodes,), where it limits any of them.
        failures: row -> why the volumes there cannot be counted.
    """

    def __init__(self) -> None:
        self.has_csi_node: Bools = np.zeros(0, dtype=np.bool_)
        self.has_limits: Bools = np.zeros(0, dtype=np.bool_)
        self.failures: dict[int, Outcome] = {}
        self._installed: dict[str, Bools] = {}  # driver -> (n_nodes,)
        self._counts: dict[str, Int64s] = {}  # driver -> (n_nodes,)
        self._limits: dict[str, Int64s] = {}  # driver -> (n_nodes,)
        self._holders: defaultdict[str, set[int]] = defaultdict(set)  # unique name -> rows where pods have it
        self._rows: dict[int, _Row] = {}
        self._outdated = OutdatedRows()
        self._left: dict[int, Outdated] = {}

    def follow(self, snapshot: Snapshot, pods: StorageInUse) -> Generator[None, None, None]:
        """Recount, in steps, what changed since the last call; the cluster may change between two steps.

        Args:
            snapshot: the cluster, whose pods may differ.
            pods: the pods that count: those of the live cluster, or, on the first call, any.
        """
        yield from self._outdated.read(snapshot)
        is_told = False
        while True:
            n_nodes = len(snapshot.nodes)  # the current number, unlike `n_nodes` of a snapshot
            self._resize(n_nodes)
            if pods.index is not None:
                is_told = self._outdated.note(snapshot, pods.index, self._left)
            if not is_told:
                # This loops over all nodes at first, and after more changes than the log holds.
                self._left = {row: Outdated(node=True) for row in range(n_nodes)}
                is_told = True
            if not self._left:
                return
            self._look_again(snapshot, pods)
            if not self._left:
                return  # nothing can have changed since
            yield
            while self._left:
                self._look_again(snapshot, pods)
                yield

    def _look_again(self, snapshot: Snapshot, pods: StorageInUse) -> None:
        """Process one part of the outstanding changes."""
        row, outdated = next(iter(self._left.items()))
        if row >= min(len(snapshot.nodes), len(self.has_csi_node)):  # it was removed meanwhile
            del self._left[row]
            return
        storage = StorageObjects(snapshot)
        if outdated.node:
            self._begin_row(row, outdated, snapshot, storage)
        there = self._rows[row]
        if outdated.pods:
            self._take_pods(row, there, pods.pods_on(row))
            outdated.pods = False
        if outdated.claims:
            there.mark(outdated.claims)
            outdated.claims = set()
        if there.incomplete:
            self._look_at_pod(row, there, storage)
        elif outdated.attachments:
            for _ in range(min(_AT_ONCE, len(outdated.attachments))):
                self._attach(row, there, outdated.attachments.pop(), snapshot, storage)
        if there.incomplete or outdated.attachments:
            return
        failure = there.failure(pods.pods_on(row))
        if failure is None:
            self.failures.pop(row, None)
        else:
            self.failures[row] = failure
        del self._left[row]

    def _begin_row(self, row: int, outdated: Outdated, snapshot: Snapshot, storage: StorageObjects) -> None:
        """Start a row from the beginning."""
        self._clear(row)
        self._rows[row] = _Row()
        name = snapshot.name_of(row)
        csi_node = storage.csi_node(name)
        limits = {} if csi_node is None else csi_node.limits
        drivers = frozenset() if csi_node is None else {each.name for each in csi_node.spec.drivers}
        self.has_csi_node[row] = csi_node is not None
        self.has_limits[row] = bool(limits)
        for driver in drivers - self._installed.keys():
            self._installed[driver] = np.zeros(len(self.has_limits), dtype=np.bool_)
        for driver, installed in self._installed.items():
            installed[row] = driver in drivers
        for driver in limits.keys() - self._limits.keys():
            self._limits[driver] = np.full(len(self.has_limits), _NO_LIMIT, dtype=np.int64)
        for driver, column in self._limits.items():
            column[row] = limits.get(driver, _NO_LIMIT)
        outdated.node, outdated.pods = False, True
        outdated.attachments.update(snapshot.objects(VOLUME_ATTACHMENTS).indexed(ATTACHMENTS_OF_NODE, name))

    def _take_pods(self, row: int, there: _Row, pods: Collection[PodInfo]) -> None:
        """Add pods that came to a row, and remove those that left."""
        now = {pod.uid: pod for pod in pods}
        for uid in there.pods.keys() - now.keys():
            for named in there.pods.pop(uid).found:
                if named is not None:
                    self._use(row, there, named, -1)
            there.incomplete.pop(uid, None)
            there.faulty.discard(uid)
        for uid, pod in now.items():
            if uid not in there.pods:
                there.pods[uid] = _PodVolumes(pod)
                there.incomplete[uid] = None

    def _look_at_pod(self, row: int, there: _Row, storage: StorageObjects) -> None:
        """Read some volumes of a pod."""
        uid = next(iter(there.incomplete))
        pod, has_csi_node = there.pods[uid], bool(self.has_csi_node[row])
        for _ in range(min(_AT_ONCE, len(pod.unread))):
            place = pod.unread.pop()
            before, now = pod.found[place], pod.look_at(place, storage, has_csi_node=has_csi_node)
            pod.found[place] = now
            if before != now:
                for named, sign in ((before, -1), (now, 1)):
                    if named is not None:
                        self._use(row, there, named, sign)
        (there.faulty.add if pod.faults else there.faulty.discard)(uid)
        if not pod.unread:
            del there.incomplete[uid]

    def _use(self, row: int, there: _Row, named: _Named, sign: int) -> None:
        name, driver = named
        there.use(named, sign)
        if name in there.users:
            self._holders[name].add(row)
        else:
            self._holders[name].discard(row)
            if not self._holders[name]:
                del self._holders[name]
        self._write(row, there, driver)

    def _attach(self, row: int, there: _Row, key: str, snapshot: Snapshot, storage: StorageObjects) -> None:
        """Read a VolumeAttachment."""
        attachment = snapshot.objects(VOLUME_ATTACHMENTS).typed(VolumeAttachment, key)
        is_here = attachment is not None and attachment.spec.node_name == snapshot.name_of(row)
        before, now = there.attachments.pop(key, None), _attached(attachment, storage) if is_here else None
        if now is not None:
            there.attachments[key] = now
        for named, sign in ((before, -1), (now, 1)):
            if named is not None:
                there.hold(named, sign)
                self._write(row, there, named[1])

    def _write(self, row: int, there: _Row, driver: str) -> None:
        column = self._counts.get(driver)
        if column is None:
            column = self._counts[driver] = np.zeros(len(self.has_csi_node), dtype=np.int64)
        column[row] = there.counts.get(driver, 0)

    def changed(self, row: int, snapshot: Snapshot, pods: Collection[PodInfo]) -> OnNode:
        """Return the attached volumes of a node with these pods instead of the counted ones."""
        there, storage = self._rows[row], StorageObjects(snapshot)
        has_csi_node, now = bool(self.has_csi_node[row]), {pod.uid for pod in pods}
        leaving = (there.pods[uid].found for uid in there.pods.keys() - now)
        changes = Counter(named for found in leaving for named in found if named is not None)
        changes = Counter({named: -count for named, count in changes.items()})
        failure: Outcome | None = None
        for pod in pods:
            known = there.pods.get(pod.uid)
            try:
                if known is None:
                    new = attachable_volumes(pod, storage, has_csi_node=has_csi_node, is_new=False)
                    changes.update(new.items())
                else:
                    failure = failure or known.fault
            except UncountableError as error:
                failure = failure or error.outcome
        return there.with_changes(changes, failure)

    @staticmethod
    def on_node(row: int, snapshot: Snapshot, pods: Iterable[PodInfo]) -> OnNode:
        """Return the attached volumes of a node with these pods."""
        name, storage = snapshot.name_of(row), StorageObjects(snapshot)
        has_csi_node = storage.csi_node(name) is not None
        volumes: Volumes = {}
        failure = None
        try:
            for pod in pods:
                volumes |= attachable_volumes(pod, storage, has_csi_node=has_csi_node, is_new=False)
        except UncountableError as error:
            volumes, failure = {}, error.outcome
        attachments = snapshot.objects(VOLUME_ATTACHMENTS).indexed(ATTACHMENTS_OF_NODE, name).values()
        attached = dict(found for each in attachments if (found := _attached(each, storage)) is not None)
        counts: dict[str, int] = {}
        for driver in {**attached, **volumes}.values():
            counts[driver] = counts.get(driver, 0) + 1
        return OnNode(volumes, counts, failure)

    def full(self, wanted: Volumes, changed: Mapping[int, OnNode]) -> Rows:
        """Return the rows where attaching these volumes would exceed a limit.

        Args:
            wanted: the volumes of a pod.
            changed: row -> the attached volumes there, if they differ from the counted ones.
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

    def installed(self, driver: str) -> Bools:
        """Return bool (n_nodes,), where a CSINode lists a driver."""
        installed = self._installed.get(driver)
        return np.zeros(len(self.has_csi_node), dtype=np.bool_) if installed is None else installed

    def _resize(self, n_nodes: int) -> None:
        """Resize to the number of rows; removed rows hold nothing."""
        if n_nodes == len(self.has_csi_node):
            return
        for row in [row for row in self._rows if row >= n_nodes]:
            self._clear(row)
        self.has_csi_node = _resized(self.has_csi_node, n_nodes, fill=False)
        self.has_limits = _resized(self.has_limits, n_nodes, fill=False)
        self._installed = {
            driver: _resized(each, n_nodes, fill=False) for driver, each in self._installed.items()
        }
        self._counts = {driver: _resized(each, n_nodes, fill=0) for driver, each in self._counts.items()}
        self._limits = {
            driver: _resized(each, n_nodes, fill=_NO_LIMIT) for driver, each in self._limits.items()
        }

    def _clear(self, row: int) -> None:
        self.failures.pop(row, None)
        before = self._rows.pop(row, None)
        if before is None:
            return
        for driver in before.counts:
            self._counts[driver][row] = 0
        for name in before.users:
            self._holders[name].remove(row)
            if not self._holders[name]:
                del self._holders[name]


_AT_ONCE = 16
"""The maximum number of a pod's volumes that are read in one step."""


def _attached(attachment: VolumeAttachment | None, storage: StorageObjects) -> _Named | None:
    """Return the volume that a VolumeAttachment attaches, whatever its creator.

    Source:
        kube-scheduler v1.36, plugins/nodevolumelimits/csi.go, getNodeVolumeAttachmentInfo.
    """
    if attachment is None:
        return None
    driver, volume_name = attachment.spec.attacher, attachment.spec.source.persistent_volume_name
    volume = storage.volume(volume_name) if driver and volume_name is not None else None
    if volume is None or volume.spec.csi is None:
        return None
    return unique_name(driver, volume.spec.csi.volume_handle), driver


def _resized(array: NDArray[S], length: int, *, fill: Any) -> NDArray[S]:
    changed = np.full(length, fill, dtype=array.dtype)
    shared = min(len(array), length)
    changed[:shared] = array[:shared]
    return changed
