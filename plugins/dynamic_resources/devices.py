"""What is known of devices: which there are, who has them, and who is about to. All profiles see the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from plugins.dynamic_resources.device_classes import DEVICE_CLASSES, DeviceClasses
from plugins.dynamic_resources.pod_claims import CLAIMS
from plugins.dynamic_resources.structured import AllocatedDevices, Inventory
from scheduler.framework import Needs
from scheduler.framework.long_work import at_once
from scheduler.objects.dynamic_resources import AllocationResult, ResourceClaim

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from plugins.dynamic_resources.class_totals import Counted
    from scheduler.framework import ClusterObjects, PodGroup
    from scheduler.objects.pod import PodInfo

RESOURCE_SLICES: Final = "resource.k8s.io/v1/resourceslices"
NEEDS: Final = Needs(kinds=frozenset({CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES}))

_CLAIMS_OF_A_STEP = 16


class InFlight(NamedTuple):
    """What a claim was given and does not say yet.

    Attributes:
        allocation: what.
        group: for whose attempt; None for that of a pod by itself.
        pods: uids of those that were given it.
    """

    allocation: AllocationResult
    group: PodGroup | None
    pods: set[str]


class Devices:
    """The devices of a cluster and their claims.

    An allocation is in flight from Reserve until it is written, or given up. No other pod may use the claim
    meanwhile, but members of a group that are placed in the same attempt: its own write might come first, and fail.

    Attributes:
        claims: all ResourceClaims.
        classes: all DeviceClasses.
        slices: all ResourceSlices.
        inventory: the devices in them.
        in_flight: uid of a claim -> what it was given.
        given_up: (uid of a claim, uid of a pod) -> whether the pod was refused because of that, while a write that takes
            the one from the other is under way, or it is not known yet what became of one that gave it.
        counts: name of a DeviceClass -> its devices, counted for scores.
        uids: `namespace/name` of each claim -> its uid, as of the last look at what is allocated.

    Source:
        kube-scheduler v1.36, plugins/dynamicresources/dra_manager.go.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self.claims = objects.objects(CLAIMS)
        self.classes = DeviceClasses(objects.objects(DEVICE_CLASSES))
        self.slices = objects.objects(RESOURCE_SLICES)
        self.inventory = Inventory(self.slices)
        self.in_flight: dict[str, InFlight] = {}
        self.given_up: dict[tuple[str, str], bool] = {}
        self.counts: dict[str, Counted] = {}
        self._allocated = AllocatedDevices()
        self._changes = 0
        self._unread: set[str] = set()  # claims that changed
        self.uids: dict[str, str] = {}  # `namespace/name` -> uid

    @classmethod
    def of(cls, objects: ClusterObjects) -> Devices:
        """Return what all plugins of a scheduler know."""
        return objects.objects(CLAIMS).companion(cls, lambda: cls(objects))

    @property
    def allocated(self) -> AllocatedDevices:
        """The devices that are taken, or are about to be; brought up to date when it is asked for."""
        at_once(self.following())
        return self._allocated

    def following(self) -> Generator[None, None, None]:
        """Bring what is allocated up to date, some claims after others; what was left undone is gone on with."""
        while self._unread or self._changes != self.claims.changes:
            if self._changes != self.claims.changes:
                changed: Iterable[str] | None = self.claims.changed_since(self._changes)
                self._unread.update((*self.uids, *self.claims) if changed is None else changed)
                self._changes = self.claims.changes
            for _ in range(min(_CLAIMS_OF_A_STEP, len(self._unread))):
                self._follow(self._unread.pop())
            if self._unread:
                yield

    def begin(
        self, uid: str, allocation: AllocationResult, pod: PodInfo, group: PodGroup | None = None
    ) -> None:
        """Take what a claim was given for a pod, which may be what another one of its group was given."""
        known = self.in_flight.get(uid)
        if known is not None and known.allocation is allocation:
            known.pods.add(pod.uid)
            return
        self.in_flight[uid] = InFlight(allocation, group, {pod.uid})
        self._allocated.set(uid, allocation)

    def shared(self, uid: str, group: PodGroup | None) -> AllocationResult | None:
        """Return what a claim was given in the same attempt at a group; None if it was not."""
        known = self.in_flight.get(uid)
        return known.allocation if known is not None and group is not None and known.group is group else None

    def end(self, claim: ResourceClaim, pod: PodInfo) -> None:
        """Forget what a claim was given for a pod, unless others of its group wait for that to be written.

        What it has according to the API server, or an answer of its, remains.
        """
        uid = claim.metadata.uid
        given = self.in_flight.get(uid)
        if given is None or pod.uid not in given.pods:
            return
        known = self.claims.typed(ResourceClaim, claim.key)
        is_same = known is not None and known.metadata.uid == uid
        allocation = known.status.allocation if known and is_same else None
        given.pods.discard(pod.uid)
        if allocation is not None or not given.pods:
            del self.in_flight[uid]
            self._allocated.set(uid, allocation)

    def _follow(self, key: str) -> None:
        claim = self.claims.typed(ResourceClaim, key)
        known = self.uids.pop(key, None)
        if known is not None and (claim is None or claim.metadata.uid != known):
            self._allocated.set(known, self._given(known))
        if claim is not None:
            uid = self.uids[key] = claim.metadata.uid
            self._allocated.set(uid, claim.status.allocation or self._given(uid))

    def _given(self, uid: str) -> AllocationResult | None:
        known = self.in_flight.get(uid)
        return None if known is None else known.allocation
