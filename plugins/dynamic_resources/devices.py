"""What is known of devices: which there are, who has them, and who is about to. All profiles see the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plugins.dynamic_resources.device_classes import DEVICE_CLASSES, DeviceClasses
from plugins.dynamic_resources.pod_claims import CLAIMS
from plugins.dynamic_resources.structured import AllocatedDevices, Inventory
from scheduler.framework import Needs
from scheduler.objects.dynamic_resources import AllocationResult, ResourceClaim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.framework import ClusterObjects

RESOURCE_SLICES: Final = "resource.k8s.io/v1/resourceslices"
NEEDS: Final = Needs(kinds=frozenset({CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES}))


class Devices:
    """The devices of a cluster and their claims.

    An allocation is in flight from Reserve until it is written, or given up. No other pod may use the claim
    meanwhile: its own write might come first, and fail.

    Attributes:
        claims: all ResourceClaims.
        classes: all DeviceClasses.
        slices: all ResourceSlices.
        inventory: the devices in them.
        in_flight: uid of a claim -> what it was given.
        given_up: (uid of a claim, uid of a pod) -> whether the pod was refused because of that, while a write that takes
            the one from the other is under way, or it is not known yet what became of one that gave it.
        uids: `namespace/name` of each claim -> its uid, as of the last look at what is allocated.

    Source:
        kube-scheduler v1.36, plugins/dynamicresources/dra_manager.go.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self.claims = objects.objects(CLAIMS)
        self.classes = DeviceClasses(objects.objects(DEVICE_CLASSES))
        self.slices = objects.objects(RESOURCE_SLICES)
        self.inventory = Inventory(self.slices)
        self.in_flight: dict[str, AllocationResult] = {}
        self.given_up: dict[tuple[str, str], bool] = {}
        self._allocated = AllocatedDevices()
        self._changes = 0
        self.uids: dict[str, str] = {}  # `namespace/name` -> uid

    @classmethod
    def of(cls, objects: ClusterObjects) -> Devices:
        """Return what all plugins of a scheduler know."""
        return objects.objects(CLAIMS).companion(cls, lambda: cls(objects))

    @property
    def allocated(self) -> AllocatedDevices:
        """The devices that are taken, or are about to be; brought up to date when it is asked for."""
        changed: Iterable[str] | None = self.claims.changed_since(self._changes)
        if changed is None:
            changed = {*self.uids, *self.claims}
        for key in changed:
            self._follow(key)
        self._changes = self.claims.changes
        return self._allocated

    def begin(self, uid: str, allocation: AllocationResult) -> None:
        """Take what a claim was given."""
        self.in_flight[uid] = allocation
        self._allocated.set(uid, allocation)

    def end(self, claim: ResourceClaim) -> None:
        """Forget what a claim was given; what it has according to the API server, or an answer of its, remains."""
        if self.in_flight.pop(claim.metadata.uid, None) is not None:
            known = self.claims.typed(ResourceClaim, claim.key)
            is_same = known is not None and known.metadata.uid == claim.metadata.uid
            self._allocated.set(claim.metadata.uid, known.status.allocation if known and is_same else None)

    def _follow(self, key: str) -> None:
        claim = self.claims.typed(ResourceClaim, key)
        known = self.uids.pop(key, None)
        if known is not None and (claim is None or claim.metadata.uid != known):
            self._allocated.set(known, self.in_flight.get(known))
        if claim is not None:
            uid = self.uids[key] = claim.metadata.uid
            self._allocated.set(uid, claim.status.allocation or self.in_flight.get(uid))
