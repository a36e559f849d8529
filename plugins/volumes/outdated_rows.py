"""Which nodes have to be looked at again for what they have attached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from plugins.volumes.storage import CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUME_ATTACHMENTS, VOLUMES
from scheduler.objects.pod_volumes import CLAIM, EPHEMERAL_CLAIM, StorageUse
from scheduler.objects.storage import PersistentVolumeClaim, VolumeAttachment
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.snapshot import Objects, Snapshot, StorageIndex

ATTACHMENTS_OF_NODE: Final = Index(VolumeAttachment, lambda attachment: (attachment.spec.node_name,))
"""Node name -> the VolumeAttachments there."""

_ATTACHMENTS_OF_VOLUME = Index(
    VolumeAttachment, lambda attachment: (attachment.spec.source.persistent_volume_name,)
)
_CLAIMS_OF_VOLUME = Index(PersistentVolumeClaim, lambda claim: (claim.spec.volume_name,))
_CLAIMS_OF_CLASS = Index(PersistentVolumeClaim, lambda claim: (claim.class_name,))
_KINDS = (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, VOLUME_ATTACHMENTS)


class OutdatedRows:
    """Follows nodes, pods that attach storage, and the objects that say what they attach."""

    def __init__(self) -> None:
        self._pods: StorageIndex | None = None  # of the cluster that is followed
        self._seen: dict[str, int] = {}  # what is followed -> how many changes were taken in
        self._node_of: dict[
            str, str
        ] = {}  # VolumeAttachment -> its node, while nobody tells of those that go

    def since_last(self, snapshot: Snapshot, pods: StorageIndex) -> set[int] | None:
        """Return the rows that something happened to since the last time; None if that cannot be told."""
        stores = {kind: snapshot.objects(kind) for kind in _KINDS}
        nodes = snapshot.node_changes
        assert nodes is not None, "rows are those of the cluster itself"
        seen = self._seen if pods is self._pods else {}
        self._pods = pods
        self._seen = {kind: store.changes for kind, store in stores.items()}
        self._seen |= {"nodes": nodes.end, "pods": pods.changes.end}
        if seen:
            changed = {kind: store.changed_since(seen[kind]) for kind, store in stores.items()}
            moved, came = nodes.since(seen["nodes"]), pods.changes.since(seen["pods"])
            if moved is not None and came is not None and None not in changed.values():
                return {*moved, *came, *self._rows_of(changed, stores, snapshot, pods)}
        self._node_of = {key: _node_of(stores[VOLUME_ATTACHMENTS], key) for key in stores[VOLUME_ATTACHMENTS]}
        return None

    def _rows_of(
        self,
        changed: Mapping[str, Any],
        stores: Mapping[str, Objects],
        snapshot: Snapshot,
        pods: StorageIndex,
    ) -> Iterable[int]:
        """Return the rows of what changed, kind -> keys."""
        claims, attachments = stores[CLAIMS], stores[VOLUME_ATTACHMENTS]
        names, keys = set(changed[CSI_NODES]), set(changed[CLAIMS])
        for key in changed[VOLUME_ATTACHMENTS]:
            names.add(self._node_of.pop(key, ""))
            if key in attachments:
                self._node_of[key] = _node_of(attachments, key)
                names.add(self._node_of[key])
        for volume in changed[VOLUMES]:
            keys.update(claims.indexed(_CLAIMS_OF_VOLUME, volume))
            names.update(
                each.spec.node_name for each in attachments.indexed(_ATTACHMENTS_OF_VOLUME, volume).values()
            )
        for storage_class in changed[STORAGE_CLASSES]:
            keys.update(claims.indexed(_CLAIMS_OF_CLASS, storage_class))
        rows = {row for row in map(snapshot.row_of, names) if row is not None}
        for key in keys:
            rows.update(pods.holders(StorageUse(CLAIM, key)))
            rows.update(pods.holders(StorageUse(EPHEMERAL_CLAIM, key)))
        return rows


def _node_of(attachments: Objects, key: str) -> str:
    found = attachments.typed(VolumeAttachment, key)
    return "" if found is None else found.spec.node_name
