"""Pools of devices as a node sees them, and the allocated devices.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    pools_incubating.go.
"""

from __future__ import annotations

from collections import ChainMap, deque
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from plugins.dynamic_resources.cel import is_clear
from plugins.dynamic_resources.structured.node_use import kind_of_node_use
from scheduler.objects.dynamic_resources import DeviceAttribute
from scheduler.objects.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from plugins.dynamic_resources.cel import CelExpression
    from plugins.dynamic_resources.structured.device_features import DeviceFeatures
    from scheduler.objects.dynamic_resources import (
        AllocationResult,
        Device,
        DeviceRequestAllocationResult,
        ResourceSliceSpec,
    )
    from scheduler.snapshot import Snapshot
    from scheduler.snapshot.arrays import ChangeLog


@lru_cache(maxsize=4096)
def amount_of(quantity: str | float) -> int:
    """Convert a written quantity to a number of billionths; see `Quantity.nanos`."""
    return parse_quantity(quantity).nanos


_REMEMBERED_CHANGES = 4096


class PoolID(NamedTuple):
    """The name of a pool in the cluster; pools are ordered by it."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    """The name of a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class AllocatedDevices:
    """The devices and counters that claims hold, including allocations in flight. The plugin keeps one instance and passes each claim to it.

    Attributes:
        whole: device -> how many claims hold all of it.
        shares: device -> how many shares of it are held.
        consumed: device -> capacity -> the amount that shares consume, see `amounts`; admin access does not count.
        groups: pool -> device -> the compatibility groups with which each claim got it, by counter set.
        changes: how many devices were allocated or released so far.

    Source:
        kube-scheduler v1.36, plugins/dynamicresources/allocateddevices.go and dra_manager.go, GatherAllocatedState.
    """

    def __init__(self) -> None:
        self.whole: dict[DeviceID, int] = {}
        self.shares: dict[DeviceID, int] = {}
        self.consumed: dict[DeviceID, dict[str, int]] = {}
        self.groups: dict[PoolID, dict[DeviceID, list[dict[str, tuple[str, ...]]]]] = {}
        self.changes = 0
        self._by_claim: dict[str, AllocationResult] = {}
        self._log: deque[PoolID] = deque(maxlen=_REMEMBERED_CHANGES)  # the pools of the last changes

    def set(self, claim: str, allocation: AllocationResult | None) -> None:
        """Set what a claim holds, None for nothing; `claim` is a stable name of the claim."""
        before = self._by_claim.get(claim)
        if before == allocation:
            return
        if before is not None:
            del self._by_claim[claim]
            for result in _held(before):
                self._remove(result)
        if allocation is not None:
            self._by_claim[claim] = allocation
            for result in _held(allocation):
                self._add(result)

    def is_allocated(self, device: DeviceID) -> bool:
        """Return whether a device, or a share of it, is held."""
        return device in self.whole or device in self.shares

    def exclusive(self, features: DeviceFeatures) -> Mapping[DeviceID, int]:
        """Return the devices of which no other claim may get anything.

        Source:
            kube-scheduler v1.36, plugins/dynamicresources/allocateddevices.go, foreachAllocatedDevice: without
            DRAConsumableCapacity a share counts as the whole device.
        """
        return self.whole if features.consumable_capacity else ChainMap(self.whole, self.shares)

    def is_changed_since(self, changes: int) -> bool:
        """Return whether anything was allocated or released since the count of changes was `changes`."""
        return self.changes != changes

    def changed_since(self, changes: int) -> frozenset[PoolID] | None:
        """Return the pools with changes since that count; None if the log does not reach back that far."""
        missed = self.changes - changes
        if missed > len(self._log):
            return None
        return frozenset(self._log[-place] for place in range(1, missed + 1))

    def _add(self, result: DeviceRequestAllocationResult) -> None:
        device = self._changed(result)
        if result.compatibility_groups:
            of_pool = self.groups.setdefault(PoolID(result.driver, result.pool), {})
            of_pool.setdefault(device, []).append(result.compatibility_groups)
        if result.share_id is None:
            self.whole[device] = self.whole.get(device, 0) + 1
            return
        self.shares[device] = self.shares.get(device, 0) + 1
        if result.consumed_capacity:
            consumed = self.consumed.setdefault(device, {})
            for name, quantity in result.consumed_capacity.items():
                consumed[name] = consumed.get(name, 0) + amount_of(quantity)

    def _remove(self, result: DeviceRequestAllocationResult) -> None:
        device = self._changed(result)
        if result.compatibility_groups:
            pool = PoolID(result.driver, result.pool)
            of_pool = self.groups[pool]
            of_pool[device].remove(result.compatibility_groups)
            if not of_pool[device]:
                del of_pool[device]
            if not of_pool:
                del self.groups[pool]
        held = self.whole if result.share_id is None else self.shares
        held[device] -= 1
        if not held[device]:
            del held[device]
        if result.share_id is not None and result.consumed_capacity:
            consumed = self.consumed.get(device, {})
            for name, quantity in result.consumed_capacity.items():
                consumed[name] = consumed.get(name, 0) - amount_of(quantity)
            if not any(consumed.values()):
                self.consumed.pop(device, None)

    def _changed(self, result: DeviceRequestAllocationResult) -> DeviceID:
        self.changes += 1
        self._log.append(PoolID(result.driver, result.pool))
        return DeviceID(result.driver, result.pool, result.device)


def _held(allocation: AllocationResult) -> list[DeviceRequestAllocationResult]:
    return [result for result in allocation.devices.results if not result.admin_access]


Counters = dict[tuple[str, str], int]
"""Counter set and counter -> an amount."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolDevice:
    """A device with its slice.

    Attributes:
        id: its name.
        device: the driver's description of the device.
        spec: the spec of its slice.
        takes: what it consumes of its pool's counters.
        is_clear: whether expressions can read all of its attributes.
        kind: all other fields that requests and searches read.
        node_use: the fields from which follows what it takes of its node; empty if it takes nothing.
        verdicts: results of expressions that no other device can share, or their errors; kept here, so that they are
            deleted with the slice.
    """

    id: DeviceID
    device: Device
    spec: ResourceSliceSpec
    takes: Counters
    is_clear: bool
    kind: Hashable
    node_use: Hashable = ()
    verdicts: dict[CelExpression[Any], Any] = field(default_factory=dict)


class PublishedSlice:
    """A ResourceSlice with its devices.

    Args:
        name: the slice's name.
        spec: its spec, with the taints of rules.
        features: what is on.

    Attributes:
        name: the slice's name.
        pool: the pool's name.
        spec: the slice's spec.
        devices: the devices in the slice.
        has_binding_conditions: whether a device has binding conditions.
        takes_counters: whether a device consumes counters.
        has_doubles: whether two devices have the same name.
        has_groups: whether a device has compatibility groups.
        is_everywhere: whether all nodes see the slice.
        is_local: whether only one node sees the slice.
        is_ignored: whether no node sees the slice, since it needs a feature that is off.
        is_optional: whether only nodes that declare DRAOptionalNodeOperations see the slice.

    Source:
        KEP-5945, Allocator Changes.
    """

    __slots__ = (
        "devices",
        "has_binding_conditions",
        "has_doubles",
        "has_groups",
        "is_everywhere",
        "is_ignored",
        "is_local",
        "is_optional",
        "name",
        "pool",
        "spec",
        "takes_counters",
    )

    def __init__(self, name: str, spec: ResourceSliceSpec, features: DeviceFeatures) -> None:
        self.spec = spec
        self.name = name
        self.pool = PoolID(spec.driver, spec.pool.name)
        devices = []
        for each in _in_effect(spec.devices, features):
            clear = is_clear(each)
            device = each if clear or features.reads_lists else _without_lists(each)
            taken = _taken(device) if features.partitionable_devices else {}
            device_id = DeviceID(spec.driver, spec.pool.name, device.name)
            node_use = kind_of_node_use(device, features) if features.node_allocatable else ()
            kind = (_kind(device), node_use) if node_use else _kind(device)
            devices.append(PoolDevice(device_id, device, spec, taken, clear, kind, node_use))
        self.devices = tuple(devices)
        self.has_binding_conditions = any(device.binding_conditions for device in spec.devices)
        self.takes_counters = features.partitionable_devices and any(
            device.consumes_counters for device in spec.devices
        )
        self.has_groups = self.takes_counters and bool(
            [1 for device in spec.devices for each in device.consumes_counters if each.compatibility_groups]
        )
        self.has_doubles = len({device.name for device in spec.devices}) < len(spec.devices)
        self.is_ignored = not features.partitionable_devices and bool(
            spec.per_device_node_selection or spec.shared_counters
        )
        skips = bool(spec.skip_node_operations)
        self.is_optional = skips and features.optional_node_operations
        if skips and features.knows_optional_node_operations and not self.is_optional:
            self.is_ignored = True
        # Before `counters_by_node` all nodes see counters, whatever the slice specifies.
        has_counters = bool(spec.shared_counters) and not features.counters_by_node
        self.is_local = bool(spec.node_name) and not has_counters
        self.is_everywhere = has_counters or (spec.all_nodes and not self.is_local)


Seen = tuple[PublishedSlice, frozenset[PoolDevice] | None]
"""A slice that a node sees, and the devices that the node can use; None means all devices."""


class Pool:
    """A pool as some nodes see it.

    Attributes:
        id: its name.
        is_incomplete: whether slices are missing; until they arrive, no device of the pool is allocated.
        is_invalid: whether its slices contradict each other; no device of it is allocated either.
        devices: the devices in the slices for these nodes, in the order of allocation.
        usable: those that these nodes can use; None for all.
        others: devices of slices for other nodes, which may consume the same counters.
        counters: the amount of each counter.
        has_groups: whether a device has compatibility groups.
        is_gone: whether the pool was replaced or removed.
        shapes: what questions found for these devices; see `likeness`.
    """

    __slots__ = (
        "counters",
        "devices",
        "has_binding_conditions",
        "has_groups",
        "id",
        "is_gone",
        "is_incomplete",
        "is_invalid",
        "others",
        "shapes",
        "usable",
    )

    def __init__(
        self,
        pool: PoolID,
        seen: Sequence[Seen] = (),
        others: Sequence[PublishedSlice] = (),
        *,
        is_incomplete: bool = False,
    ) -> None:
        ordered = sorted(seen, key=lambda each: each[0].name) if len(seen) > 1 else seen
        with_devices = [each for each, _ in ordered if not each.spec.shared_counters]
        self.id = pool
        self.shapes: dict[int, int | None] = {}
        self.is_gone = False
        self.is_incomplete = is_incomplete
        self.devices = _devices_of(with_devices)
        self.usable = _usable(ordered)
        self.others = _devices_of(others)
        slices = [*(each for each, _ in ordered), *others]
        sets = [counters for each in slices for counters in each.spec.shared_counters]
        self.counters: Counters = {
            (each.name, name): amount_of(counter.value)
            for each in sets
            for name, counter in each.counters.items()
        }
        self.has_groups = bool([1 for each in slices if each.has_groups])
        names = {each.name for each in sets}
        self.is_invalid = (
            len(names) < len(sets)
            or _have_doubles(with_devices)
            or not self._has_counters(with_devices, others, names)
        )
        # Upstream stops at an invalid pool.
        self.has_binding_conditions = not self.is_invalid and any(
            each.has_binding_conditions for each in with_devices
        )

    @property
    def gives(self) -> bool:
        """Whether its devices may be allocated."""
        return not (self.is_incomplete or self.is_invalid)

    @property
    def order(self) -> tuple[bool, PoolID]:
        """The sort key of pools: devices with binding conditions are allocated last."""
        return self.has_binding_conditions, self.id

    def _has_counters(
        self, seen: Sequence[PublishedSlice], others: Sequence[PublishedSlice], sets: set[str]
    ) -> bool:
        if not any(each.takes_counters for each in (*seen, *others)):
            return True
        return all(self._has_counters_of(device, sets) for device in (*self.devices, *self.others))

    def _has_counters_of(self, device: PoolDevice, sets: set[str]) -> bool:
        """Return whether the counters exist that a device consumes."""
        named = {consumption.counter_set for consumption in device.device.consumes_counters}
        return named <= sets and device.takes.keys() <= self.counters.keys()


Pools = tuple[Pool, ...]
"""Pools that a node sees, in the order of allocation; nodes with equal pools are equivalent."""


def gather_pool(
    pool: PoolID, relevant: Sequence[Seen], published: Mapping[str, PublishedSlice]
) -> Pool | None:
    """Return a pool as nodes see it; None if newer slices for other nodes have replaced what they see.

    Args:
        pool: the pool's name.
        relevant: the slices with devices for such nodes; at least one.
        published: all slices of the pool.

    Source:
        as of this module, GatherPools.
    """
    if len(relevant) == 1 == relevant[0][0].spec.pool.resource_slice_count:
        return Pool(pool, relevant)
    generation = max(each.spec.pool.generation for each, _ in relevant)
    seen = [each for each in relevant if each[0].spec.pool.generation == generation]
    count = seen[0][0].spec.pool.resource_slice_count
    if len(seen) == count:
        return Pool(pool, seen)
    if any(each.spec.pool.generation > generation for each in published.values()):
        return None
    current = [each for each in published.values() if each.spec.pool.generation == generation]
    if len(current) != count:
        return Pool(pool, is_incomplete=True)
    mine = {each for each, _ in seen}
    return Pool(pool, seen, [each for each in current if each not in mine])


def _devices_of(slices: Sequence[PublishedSlice]) -> tuple[PoolDevice, ...]:
    """Return the devices of slices in order; for one slice it is the same object, since thousands of pools have one slice."""
    return (
        slices[0].devices
        if len(slices) == 1
        else tuple([device for each in slices for device in each.devices])
    )


def _have_doubles(slices: Sequence[PublishedSlice]) -> bool:
    """Return whether two devices of one pool have the same name."""
    if len(slices) == 1:
        return slices[0].has_doubles
    names = [device.id.device for each in slices for device in each.devices]
    return len(set(names)) < len(names)


def _in_effect(devices: tuple[Device, ...], features: DeviceFeatures) -> tuple[Device, ...]:
    """Return devices without the fields of features that are off."""
    without: dict[str, Any] = {}
    if not features.taints:
        without["taints"] = ()
    if not features.consumable_capacity:
        without["allow_multiple_allocations"] = False
    return tuple(msgspec.structs.replace(each, **without) for each in devices) if without else devices


def _without_lists(device: Device) -> Device:
    """Return a device whose attributes with several values have no known type."""
    attributes = {
        name: DeviceAttribute() if each.has_several else each for name, each in device.attributes.items()
    }
    return msgspec.structs.replace(device, attributes=attributes)


def _taken(device: Device) -> Counters:
    taken: Counters = {}
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            place = (consumption.counter_set, name)
            taken[place] = taken.get(place, 0) + amount_of(counter.value)
    return taken


def _kind(device: Device) -> Hashable:
    is_simple = not (device.consumes_counters or device.allow_multiple_allocations)
    return is_simple, device.taints, tuple(device.capacity.items()), bool(device.binding_conditions)


def _usable(seen: Iterable[Seen]) -> frozenset[PoolDevice] | None:
    if all(usable is None for _, usable in seen):
        return None
    return frozenset(
        device for each, usable in seen for device in (each.devices if usable is None else usable)
    )


class InventoryNode(Protocol):
    """The fields of a node that are read; NodeObject and NodeInfo have them."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def declared_features(self) -> frozenset[str]: ...


class AllViews:
    """The pools that all nodes see, at a position in the log of node changes.

    Attributes:
        by_row: what each node sees.
        changes: how often the view of a node changed.

    Args:
        by_row: what each node sees.
        log: the log of node changes.
    """

    def __init__(self, by_row: list[Pools], log: ChangeLog) -> None:
        self.by_row = by_row
        self.changes = 0
        self._log = log
        self._seen = log.end
        self._changed: deque[int] = deque(maxlen=_REMEMBERED_CHANGES)  # the rows of the last changes

    def follow(
        self, snapshot: Snapshot, names: Iterable[str], view_of: Callable[[InventoryNode], Pools]
    ) -> bool:
        """Update the views of nodes that changed and of the named nodes; return False if all nodes have to be read."""
        if not self.has_rows_of(snapshot):
            return False
        log, nodes, n_nodes = self._log, snapshot.nodes, len(self.by_row)
        changed = log.since(self._seen)
        self._seen = log.end
        if changed is None:
            return False
        # Rows beyond the last belong to nodes that were added and deleted since.
        rows = {row for row in (*changed, *map(snapshot.row_of, names)) if row is not None and row < n_nodes}
        for row in rows:
            self.put(row, view_of(nodes[row]))
        return True

    def has_rows_of(self, snapshot: Snapshot) -> bool:
        """Return whether the rows of a snapshot are those of the views."""
        return snapshot.node_changes is self._log and snapshot.n_nodes == len(self.by_row)

    def put(self, row: int, view: Pools) -> None:
        """Update the view of one node."""
        if view != self.by_row[row]:
            self.by_row[row] = view
            self.changes += 1
            self._changed.append(row)

    def changed_since(self, changes: int) -> set[int] | None:
        """Return the rows of nodes whose view changed since that count; None if the log does not reach back that far."""
        missed = self.changes - changes
        if missed > len(self._changed):
            return None
        return set(islice(reversed(self._changed), missed))
