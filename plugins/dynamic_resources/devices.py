"""DeviceClasses and devices: which exist, are allocated or are being allocated, and their numbers for scores.

Source:
    kube-scheduler v1.36, plugins/noderesources/resource_allocation.go, calculateDRAResourceTotals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from plugins.dynamic_resources.cel import CELError, is_clear, selector
from plugins.dynamic_resources.pod_claims import CLAIMS
from plugins.dynamic_resources.structured import AllocatedDevices, DeviceFeatures, Inventory
from plugins.dynamic_resources.structured.pools import DeviceID, PoolDevice, PoolID
from plugins.dynamic_resources.structured.requests import EVALUATIONS_OF_A_STEP, evaluations
from plugins.work_in_steps import UNLIMITED, PluginWork
from scheduler.errors import ObjectError
from scheduler.framework import Needs
from scheduler.loop_work import run_to_end
from scheduler.objects.caches import BoundedDict
from scheduler.objects.dynamic_resources import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from scheduler.objects.selectors import SelectorError, parse_node_term
from scheduler.snapshot import nodes_of_any

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from scheduler.framework import ClusterObjects, PodGroup, TimeSlice
    from scheduler.objects.dynamic_resources import Device, ResourceSliceSpec
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import NodeSelector
    from scheduler.snapshot import Bools, Int64s, Objects, Rows, Snapshot

DEVICE_CLASSES: Final = "resource.k8s.io/v1/deviceclasses"

_IMPLICIT = "deviceclass.resource.kubernetes.io/"


class DeviceClasses:
    """The device classes of a cluster in their current state.

    If several classes have the same `extendedResourceName`, the newest one counts, and of those created at the same
    time the first by name. Every class also provides a resource named after it.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache, which
        processes events: there a class that arrives too late to count has no implicit name either, and an update keeps
        the old entries of a class.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._behind: dict[str, DeviceClass] = {}  # extended resource -> class
        self._changes = 0

    def get(self, name: str) -> DeviceClass | None:
        """Return a class by its name."""
        return self._objects.typed(DeviceClass, name)

    @property
    def behind(self) -> Mapping[str, DeviceClass]:
        """The classes by the extended resources that they provide."""
        if self._changes != self._objects.changes:
            self._changes = self._objects.changes
            self._behind = self._read()
        return self._behind

    def _read(self) -> dict[str, DeviceClass]:
        classes = [self._objects.typed(DeviceClass, name) for name in sorted(self._objects, reverse=True)]
        known = [each for each in classes if each is not None]
        known.sort(key=lambda each: each.metadata.creation_timestamp)  # stable: later ones count
        explicit = {
            each.spec.extended_resource_name: each for each in known if each.spec.extended_resource_name
        }
        return {**explicit, **{_IMPLICIT + each.metadata.name: each for each in known}}


_NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.intp)


class Totals(NamedTuple):
    """The devices behind one extended resource.

    Attributes:
        capacity: int64 (n_nodes,), how many devices a node can use.
        taken: int64 (n_nodes,), how many of them are allocated to claims.
    """

    capacity: Int64s
    taken: Int64s


@dataclass(slots=True, eq=False)
class _Place:
    """Devices of a slice that are available on the same nodes.

    Attributes:
        where: the rule for these nodes.
        is_everywhere: whether all nodes can use the devices.
        devices: the devices that belong to the class.
        has_failed: whether a device of the slice could not be evaluated.
        rows: the rows of these nodes.
        taken: how many of the devices are allocated to claims.
    """

    where: ResourceSliceSpec | Device
    is_everywhere: bool
    devices: list[DeviceID]
    has_failed: bool
    rows: Rows
    taken: int = 0


class Counted:
    """The devices of one class, counted by node; only what has changed is counted again.

    Args:
        device_class: the class.
        slices: all ResourceSlices.

    Attributes:
        device_class: the class.
    """

    def __init__(self, device_class: DeviceClass, slices: Objects) -> None:
        self.device_class = device_class
        self._slices = slices
        self._compiled = [
            selector(each.cel.expression) for each in device_class.spec.selectors if each.cel is not None
        ]
        self._seen = -1
        self._unread: dict[str, None] = {}
        self._places: dict[str, list[_Place]] = {}  # name of a slice -> the places of its devices
        # The generations of nodes and claims that were counted last:
        self._layout: tuple[object, int] | None = None
        self._changes = 0
        self._by_pool: dict[PoolID, list[_Place]] = {}
        self._capacity: Int64s = np.zeros(0, dtype=np.int64)
        self._taken: Int64s = self._capacity
        self._failed: Bools = np.zeros(0, dtype=np.bool_)

    def reading(self) -> Generator[None, None, None]:
        """Evaluate the devices of slices that have changed, one slice after another."""
        slices = self._slices
        while self._unread or self._seen != slices.changes:
            if self._seen != slices.changes:
                changed = None if self._seen < 0 else slices.changed_since(self._seen)
                self._seen = slices.changes
                self._unread |= dict.fromkeys((*self._places, *slices) if changed is None else changed)
                self._layout = None
            key, _ = self._unread.popitem()
            self._places.pop(key, None)
            try:
                published = slices.typed(ResourceSlice, key)
            except ObjectError:
                continue  # an invalid slice counts as absent
            if published is not None:
                self._places[key] = yield from self._read(published)
            yield

    def _read(self, published: ResourceSlice) -> Generator[None, None, list[_Place]]:
        spec = published.spec
        places: list[_Place] = []
        if not spec.per_device_node_selection:
            is_anywhere = not (spec.node_name or spec.node_selector)
            places.append(_Place(spec, spec.all_nodes or is_anywhere, [], False, _NO_ROWS))
        most = evaluations.count + EVALUATIONS_OF_A_STEP
        for device in spec.devices:
            verdict = self._verdict(published, device)
            if spec.per_device_node_selection:
                places.append(_Place(device, device.all_nodes, [], False, _NO_ROWS))
            if isinstance(verdict, CELError):
                places[-1].has_failed = True
            elif verdict:
                places[-1].devices.append(DeviceID(spec.driver, spec.pool.name, device.name))
            if evaluations.count >= most:
                yield
                most = evaluations.count + EVALUATIONS_OF_A_STEP
        return [place for place in places if place.devices or place.has_failed or place.where.node_selector]

    def _verdict(self, published: ResourceSlice, device: Device) -> bool | CELError:
        """Return whether a device belongs to the class, or the error if that cannot be evaluated."""
        spec = published.spec
        # Scores do not consider that several claims may share a device.
        unshared = msgspec.structs.replace(device, allow_multiple_allocations=False)
        name = DeviceID(spec.driver, spec.pool.name, device.name)
        subject = PoolDevice(name, unshared, spec, {}, is_clear(device), None)
        for compiled in self._compiled:
            verdict = evaluations.verdict(subject, compiled)
            if verdict is not True:
                return verdict
        return True

    def totals(self, snapshot: Snapshot, allocated: AllocatedDevices) -> Totals:
        """Return how many devices each node has, and how many of them are allocated."""
        log = snapshot.node_changes
        layout = log, -1 if log is None else log.end
        changed = allocated.changed_since(self._changes)
        if log is None or layout != self._layout or changed is None:
            self._lay_out(snapshot, allocated)
            self._layout = layout
        else:
            for pool in changed:
                for place in self._by_pool.get(pool, ()):
                    before, place.taken = place.taken, _taken(place, allocated)
                    self._taken[place.rows] += place.taken - before
        self._changes = allocated.changes
        capacity, taken = self._capacity.copy(), self._taken.copy()
        capacity[self._failed] = taken[self._failed] = 0
        return Totals(capacity, taken)

    def _lay_out(self, snapshot: Snapshot, allocated: AllocatedDevices) -> None:
        """Find out which nodes can use the devices."""
        self._capacity, self._taken = (np.zeros(snapshot.n_nodes, dtype=np.int64) for _ in range(2))
        self._failed = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        self._by_pool = {}
        selected: dict[NodeSelector, Rows] = {}
        for places in self._places.values():
            for place in places:
                try:
                    place.rows = _rows(snapshot, place, selected)
                except SelectorError:
                    self._failed[:] = True
                    continue
                place.taken = _taken(place, allocated)
                self._capacity[place.rows] += len(place.devices)
                self._taken[place.rows] += place.taken
                if place.has_failed:
                    self._failed[place.rows] = True
                if place.devices:
                    first = place.devices[0]
                    self._by_pool.setdefault(PoolID(first.driver, first.pool), []).append(place)


def _taken(place: _Place, allocated: AllocatedDevices) -> int:
    return sum(map(allocated.is_allocated, place.devices))


def _rows(snapshot: Snapshot, place: _Place, selected: dict[NodeSelector, Rows]) -> Rows:
    """Return the rows of the nodes that can use some devices; `selected` caches the rows of each selector.

    Raises:
        SelectorError: the node selector is invalid.
    """
    where = place.where
    if place.is_everywhere:
        return snapshot.all_rows
    if where.node_name:
        row = snapshot.row_of(where.node_name)
        return _NO_ROWS if row is None else np.array([row], dtype=np.intp)
    if where.node_selector is None:
        return _NO_ROWS
    found = selected.get(where.node_selector)
    if found is None:
        terms = where.node_selector.node_selector_terms
        rules = [parse_node_term(term) for term in terms if not term.is_empty]
        found = selected[where.node_selector] = np.flatnonzero(nodes_of_any(snapshot, rules))
    return found


RESOURCE_SLICES: Final = "resource.k8s.io/v1/resourceslices"
DEVICE_TAINT_RULES: Final = "resource.k8s.io/v1/devicetaintrules"
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
        self._rules = objects.objects(DEVICE_TAINT_RULES)
        self._inventories: WeakValueDictionary[DeviceFeatures, Inventory] = WeakValueDictionary()
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

    def inventory(self, features: DeviceFeatures) -> Inventory:
        """Return the devices in all slices, as they are with some features; kept as long as a plugin uses them."""
        found = self._inventories.get(features)
        if found is None:
            found = self._inventories[features] = Inventory(self.slices, self._rules, features)
        return found

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


_NONE: frozenset[str] = frozenset()


class ClassTotals:
    """Counts devices for NodeResourcesFit and NodeResourcesBalancedAllocation.

    Args:
        devices: the devices of the cluster.
        time_slice: the time slice of one call.
        is_on: whether device classes provide extended resources.
    """

    def __init__(self, devices: Devices, time_slice: TimeSlice = UNLIMITED, *, is_on: bool = True) -> None:
        self._devices = devices
        self._is_on = is_on
        self._work = PluginWork(time_slice)

    @property
    def behind(self) -> Mapping[str, DeviceClass]:
        """The device classes, by the extended resources that they provide."""
        return self._devices.classes.behind if self._is_on else {}

    def wanted_by(self, pod: PodInfo) -> frozenset[str]:
        """Return the resources that a pod requests and that device classes provide."""
        behind = self.behind
        if not behind:
            return _NONE
        return frozenset(name for name, amount in pod.resources.requests.items() if amount and name in behind)

    def of(self, snapshot: Snapshot, resource: str) -> Totals | None:
        """Count the devices of a resource; None if no class provides it.

        A node counts no devices if a device of it cannot be evaluated.

        Raises:
            NeedsTime: devices have to be evaluated, and that takes longer than one time slice.
        """
        device_class = self.behind.get(resource)
        if device_class is None:
            return None
        counts = self._devices.counts
        counted = counts.get(device_class.metadata.name)
        if counted is None or counted.device_class is not device_class:
            counted = counts[device_class.metadata.name] = Counted(device_class, self._devices.slices)
        self._work.begin()
        self._work.done(self._devices.following())
        self._work.done(counted.reading())
        return counted.totals(snapshot, self._devices.allocated)
