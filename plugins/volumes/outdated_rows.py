"""Which parts of the nodes' attached volumes have to be read again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from plugins.volumes.storage import CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUME_ATTACHMENTS, VOLUMES
from scheduler.objects.pod_volumes import CLAIM, EPHEMERAL_CLAIM, StorageUse
from scheduler.objects.storage import PersistentVolumeClaim, VolumeAttachment
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from scheduler.snapshot import Objects, Snapshot, StorageIndex

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
