"""Simulates the controllers that protect claims, volumes and VolumeAttributesClasses while they are used.

Source:
    kube-controller-manager v1.36, pkg/controller/volume/{pvcprotection,pvprotection,vacprotection}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, key_of
from scheduler.simulator.controllers.attachments import claims_of
from scheduler.simulator.controllers.controller import QueueController
from scheduler.simulator.kinds.persistent_volume_claims import PROTECTION as CLAIM_PROTECTION
from scheduler.simulator.kinds.persistent_volumes import PROTECTION as VOLUME_PROTECTION
from scheduler.simulator.kinds.pods import has_ended
from scheduler.simulator.kinds.storage import ATTRIBUTES_CLASS_PROTECTION

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_CLASSES: Final = "volumeattributesclasses.storage.k8s.io"
_FINALIZERS: Final = {
    "persistentvolumeclaims": CLAIM_PROTECTION,
    "persistentvolumes": VOLUME_PROTECTION,
    _CLASSES: ATTRIBUTES_CLASS_PROTECTION,
}


class StorageProtection(QueueController):
    """Removes the finalizer of terminating objects that are no longer used."""

    resources = ("pods", *_FINALIZERS)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._users: dict[str, set[str]] = {}  # key of a claim -> uids of pods
        self._used: dict[str, set[str]] = {}  # uid of a pod -> keys of claims

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource == "pods":
            self._observe_pod(obj, is_there=type_ != "DELETED")
        elif type_ != "DELETED" and is_terminating(obj):
            self.enqueue(f"{resource}:{'/'.join(key_of(obj))}")
        name = obj.get("spec", {}).get("volumeAttributesClassName")
        if name:
            self.enqueue(f"{_CLASSES}:/{name}")

    def reconcile(self, key: str) -> None:
        resource, _, place = key.partition(":")
        namespace, _, name = place.partition("/")
        obj = self.store.find(resource, name, namespace)
        if obj is None or not is_terminating(obj) or self._is_used(resource, place, obj):
            return
        finalizers = obj["metadata"].get("finalizers", ())
        kept = [one for one in finalizers if one != _FINALIZERS[resource]]
        if len(kept) < len(finalizers):
            self.store.change(obj, {"metadata": {"finalizers": kept or None}})

    def _observe_pod(self, pod: Object, *, is_there: bool) -> None:
        uid = pod["metadata"]["uid"]
        used = (
            set(claims_of(pod, but_ephemeral=has_ended(pod)))
            if is_there and pod["spec"].get("nodeName")
            else set()
        )
        for key in self._used.pop(uid, set()) - used:
            self._users[key].discard(uid)
            self.enqueue(f"persistentvolumeclaims:{key}")
        for key in used:
            self._users.setdefault(key, set()).add(uid)
        if used:
            self._used[uid] = used

    def _is_used(self, resource: str, place: str, obj: Object) -> bool:
        if resource == "persistentvolumeclaims":
            return bool(self._users.get(place))
        if resource == "persistentvolumes":
            return bool(obj["status"].get("phase") == "Bound")
        name = key_of(obj)[1]
        return any(
            one["spec"].get("volumeAttributesClassName") == name
            for kind in ("persistentvolumeclaims", "persistentvolumes")
            for one in self.store.list(kind)
        )
