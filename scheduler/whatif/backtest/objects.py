"""Other objects than pods and nodes, as recorded, but for what came of where pods were placed then.

A claim that waited for its pod's node is bound anew, where the pod is placed now; so are claims for devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.whatif.simulation.claims import CLAIMS as DEVICE_CLAIMS
from scheduler.whatif.simulation.volumes import CLAIMS, VOLUMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo

    Object = Mapping[str, Any]

_CLASSES: Final = "storage.k8s.io/v1/storageclasses"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_WAITS: Final = "WaitForFirstConsumer"


class ObjectPlace(Protocol):
    """Where objects of other kinds are put, as `MemoryCluster` is."""

    def put_object(self, kind: str, obj: Object, /) -> object: ...

    def remove_object(self, kind: str, key: str, /) -> None: ...

    def find(self, kind: str, key: str, /) -> Object | None: ...


class RecordedObjects:
    """Brings objects of other kinds into a cluster, as far as they do not follow from placements.

    Args:
        cluster: where to.
        follows: whether also those are brought that do: where placements are as recorded.
    """

    def __init__(self, cluster: ObjectPlace, *, follows: bool) -> None:
        self._cluster, self._follows = cluster, follows
        self._classes: dict[str, Object] = {}
        self._open: set[str] = (
            set()
        )  # claims for volumes, `namespace/name`, that are bound by where their pods go
        self._made: set[str] = set()  # volumes that were made for them then
        self._free: set[str] = set()  # volumes that nobody had when they were seen first
        self._unallocated: set[str] = (
            set()
        )  # claims for devices that nobody had allocated when they were seen first
        self._held: set[str] = set()  # claims for volumes that an earlier placement has bound
        self._allocated: set[str] = set()  # likewise, for devices

    def take(self, kind: str, key: str, obj: Object | None) -> None:
        """Bring an object's new version, or take the object away."""
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
        """Say whether where a pod may go follows from where it or another was placed in the recording."""
        if any(claim.key in self._held for claim in pod.claims):
            return True
        status = pod.pod.status
        named = [each.resource_claim_name for each in pod.pod.spec.resource_claims]
        named += [each.resource_claim_name for each in status.resource_claim_statuses]
        return any(f"{pod.namespace}/{name}" in self._allocated for name in named if name)

    def _take_claim(self, key: str, claim: Object) -> None:
        if key in self._open:
            return
        is_new = key not in self._held and self._cluster.find(CLAIMS, key) is None
        bound = bool(claim["spec"].get("volumeName"))
        if is_new and not bound and self._waits(claim):
            self._open.add(key)
            claim = _without_annotation(claim, _SELECTED_NODE)
        elif is_new and bound and self._waits(claim):
            self._held.add(key)
        self._cluster.put_object(CLAIMS, claim)

    def _waits(self, claim: Object) -> bool:
        known = self._classes.get(claim["spec"].get("storageClassName") or "")
        return known is not None and known.get("volumeBindingMode") == _WAITS

    def _take_volume(self, key: str, volume: Object) -> None:
        held = volume["spec"].get("claimRef")
        claim = "" if held is None else f"{held.get('namespace', '')}/{held.get('name', '')}"
        if key in self._made or (claim in self._open and key not in self._free):
            self._made.add(key)
            return
        if claim in self._open:
            return  # chosen for the claim by where its pod went
        if held is None:
            self._free.add(key)
            known = self._cluster.find(VOLUMES, key)
            if known is not None and known["spec"].get("claimRef"):
                return  # a pod of now has it
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
