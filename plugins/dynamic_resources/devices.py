"""State of devices: which exist, which are allocated, and which are being allocated. All profiles share it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from plugins.dynamic_resources.device_classes import DEVICE_CLASSES, DeviceClasses
from plugins.dynamic_resources.pod_claims import CLAIMS
from plugins.dynamic_resources.structured import AllocatedDevices, Inventory
from scheduler.framework import Needs
from scheduler.framework.sliced_work import run_to_end
from scheduler.objects.bounded_dict import BoundedDict
from scheduler.objects.dynamic_resources import AllocationResult, ResourceClaim

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from plugins.dynamic_resources.counted_devices import Counted
    from scheduler.framework import ClusterObjects, PodGroup
    from scheduler.objects.pod import PodInfo

RESOURCE_SLICES: Final = "resource.k8s.io/v1/resourceslices"
NEEDS: Final = Needs(kinds=frozenset({CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES}))

_CLAIMS_OF_A_STEP = 16
_COUNTED_CLASSES = 64


class InFlightAllocation(NamedTuple):
    """An allocation that the claim does not show yet.

    Attributes:
        allocation: the allocation.
        group: the group of the attempt; None for a pod without a group.
        pods: uids of the pods that use the allocation.
    """

    allocation: AllocationResult
    group: PodGroup | None
    pods: set[str]


class Devices:
    """The devices of a cluster and their claims.

    An allocation is in flight from Reserve until it is written or discarded. Meanwhile no other pod may use the claim,
    except members of a group that are placed in the same attempt: the other pod's write might come first, and fail.

    Attributes:
        claims: all ResourceClaims.
        classes: all DeviceClasses.
        slices: all ResourceSlices.
        inventory: the devices in them.
        in_flight: uid of a claim -> its allocation that is not written yet.
        given_up: (uid of a claim, uid of a pod) -> whether the pod was rejected because of it. The entry exists while the
          removal of the pod's allocation is in flight, or while the result of writing the allocation is unknown.
        counts: name of a DeviceClass -> its devices, counted for scores.
        uids: `namespace/name` of each claim -> its uid, as of the last update of the allocated devices.

    Source:
        kube-scheduler v1.36, plugins/dynamicresources/dra_manager.go.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self.claims = objects.objects(CLAIMS)
        self.classes = DeviceClasses(objects.objects(DEVICE_CLASSES))
        self.slices = objects.objects(RESOURCE_SLICES)
        self.inventory = Inventory(self.slices)
        self.in_flight: dict[str, InFlightAllocation] = {}
        self.given_up: dict[tuple[str, str], bool] = {}
        self.counts: BoundedDict[str, Counted] = BoundedDict(_COUNTED_CLASSES)
        self._allocated = AllocatedDevices()
        self._changes = 0
        self._unread: set[str] = set()  # claims that changed
        self.uids: dict[str, str] = {}  # `namespace/name` -> uid

    @classmethod
    def of(cls, objects: ClusterObjects) -> Devices:
        """Return the state that all plugins of a scheduler share."""
        return objects.objects(CLAIMS).companion(cls, lambda: cls(objects))

    @property
    def allocated(self) -> AllocatedDevices:
        """The devices that are allocated or in flight; updated on access."""
        run_to_end(self.following())
        return self._allocated

    def following(self) -> Generator[None, None, None]:
        """Update the allocated devices in slices; an interrupted update is continued."""
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
        """Record the allocation of a claim for a pod; it may be the one of another pod of the group."""
        known = self.in_flight.get(uid)
        if known is not None and known.allocation is allocation:
            known.pods.add(pod.uid)
            return
        self.in_flight[uid] = InFlightAllocation(allocation, group, {pod.uid})
        self._allocated.set(uid, allocation)

    def shared(self, uid: str, group: PodGroup | None) -> AllocationResult | None:
        """Return the allocation that a claim received in the same attempt at a group; None without one."""
        known = self.in_flight.get(uid)
        return known.allocation if known is not None and group is not None and known.group is group else None

    def end(self, claim: ResourceClaim, pod: PodInfo) -> None:
        """Remove the in-flight allocation of a claim for a pod, unless other pods of its group wait for its write.

        What the API server or one of its responses shows as allocated remains.
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
            self._follow(claim.key)  # a response may be undone before the next update

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
