"""Objects other than pods and nodes, as recorded, without the effects of the recorded placements.

A claim that waited for its pod's node is bound again, to where the pod is placed now; so are ResourceClaims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.tools.simulator.controllers.volumes import SELECTED_NODE
from scheduler.tools.simulator.kinds.storage import WAIT_FOR_FIRST_CONSUMER
from scheduler.tools.whatif.simulation.cluster import CLAIMS, DEVICE_CLAIMS, VOLUMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo

    Object = Mapping[str, Any]

_CLASSES: Final = "storage.k8s.io/v1/storageclasses"


class ObjectPlace(Protocol):
    """A store for objects of other kinds, for example a `MemoryCluster`."""

    def put_object(self, kind: str, obj: Object, /) -> object: ...

    def remove_object(self, kind: str, key: str, /) -> None: ...

    def find(self, kind: str, key: str, /) -> Object | None: ...


class RecordedObjects:
    """Adds recorded objects of other kinds to a cluster, without those that follow from placements.

    Args:
        cluster: the cluster.
        follows: whether to add those too, because placements are as recorded.
    """

    def __init__(self, cluster: ObjectPlace, *, follows: bool) -> None:
        self._cluster, self._follows = cluster, follows
        self._classes: dict[str, Object] = {}
        self._open: set[str] = set()  # PersistentVolumeClaims, `namespace/name`, that placements bind
        self._made: set[str] = set()  # volumes that were provisioned for them in the recording
        self._free: set[str] = set()  # volumes that were unbound when first seen
        self._unallocated: set[str] = set()  # ResourceClaims that were not allocated when first seen
        self._held: set[str] = set()  # PersistentVolumeClaims that an earlier placement bound
        self._allocated: set[str] = set()  # ResourceClaims that an earlier placement allocated

    def take(self, kind: str, key: str, obj: Object | None) -> None:
        """Add a new version of an object, or remove the object."""
        if obj is None:
            if key not in self._made or kind != VOLUMES:
                self._cluster.remove_object(kind, key)
            for known in (self._open, self._held) if kind == CLAIMS else (self._unallocated, self._allocated):
                if kind in {CLAIMS, DEVICE_CLAIMS}:
                    known.discard(key)
            return
        if kind == _CLASSES:
            self._classes[key] = obj
        if self._follows:
            self._cluster.put_object(kind, obj)
        elif kind == CLAIMS:
            self._take_claim(key, obj)
        elif kind == VOLUMES:
            self._take_volume(key, obj)
        elif kind == DEVICE_CLAIMS:
            self._take_device_claim(key, obj)
        else:
            self._cluster.put_object(kind, obj)

    def hold(self, pod: PodInfo) -> bool:
        """Return whether a recorded placement limits the nodes of a pod."""
        if any(claim.key in self._held for claim in pod.claims):
            return True
        return not self._allocated.isdisjoint(pod.resource_claim_keys)

    def _take_claim(self, key: str, claim: Object) -> None:
        if key in self._open:
            return
        is_new = key not in self._held and self._cluster.find(CLAIMS, key) is None
        bound = bool(claim["spec"].get("volumeName"))
        if is_new and not bound and self._waits(claim):
            self._open.add(key)
            claim = _without_annotation(claim, SELECTED_NODE)
        elif is_new and bound and self._waits(claim):
            self._held.add(key)
        self._cluster.put_object(CLAIMS, claim)

    def _waits(self, claim: Object) -> bool:
        known = self._classes.get(claim["spec"].get("storageClassName") or "")
        return known is not None and known.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER

    def _take_volume(self, key: str, volume: Object) -> None:
        held = volume["spec"].get("claimRef")
        claim = "" if held is None else f"{held.get('namespace', '')}/{held.get('name', '')}"
        if key in self._made or (claim in self._open and key not in self._free):
            self._made.add(key)
            return
        if claim in self._open:
            return  # the recorded placement chose it for the claim
        if held is None:
            self._free.add(key)
            known = self._cluster.find(VOLUMES, key)
            if known is not None and known["spec"].get("claimRef"):
                return  # a pod of the backtest uses it
        self._cluster.put_object(VOLUMES, volume)

    def _take_device_claim(self, key: str, claim: Object) -> None:
        if key in self._unallocated:
            return
        is_allocated = bool((claim.get("status") or {}).get("allocation"))
        if key not in self._allocated:
            (self._allocated if is_allocated else self._unallocated).add(key)
        self._cluster.put_object(DEVICE_CLAIMS, claim)


def _annotations(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def _without_annotation(obj: Object, name: str) -> Object:
    left = {key: value for key, value in _annotations(obj).items() if key != name}
    return {**obj, "metadata": {**obj["metadata"], "annotations": left}}
