"""Constraints between the devices of a claim, counters that devices share, and taints of devices.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    allocator_incubating.go and constraint.go.
    allocator_incubating.go, checkAvailableCounters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from plugins.dynamic_resources import reason_codes
from scheduler.errors import SchedulerError
from scheduler.framework import Reason

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from plugins.dynamic_resources.structured.device_features import DeviceFeatures
    from plugins.dynamic_resources.structured.node_use import NodeUse
    from plugins.dynamic_resources.structured.pools import (
        AllocatedDevices,
        Counters,
        Pool,
        PoolDevice,
        PoolID,
    )
    from plugins.dynamic_resources.structured.requests import WantedDevices
    from scheduler.objects.dynamic_resources import (
        Device,
        DeviceAttribute,
        DeviceConstraint,
        DeviceTaint,
        DeviceToleration,
    )


class AllocationError(SchedulerError):
    """A claim, a class or a slice is invalid: the whole attempt fails, with the error's message."""


class InvalidPoolsError(SchedulerError):
    """Nothing fits this node, and a pool there is invalid: only the node is rejected, with the error's message."""


class OutOfTimeError(SchedulerError):
    """The search took too long."""


class DeviceRefusal(NamedTuple):
    """Why devices cannot be allocated to claims on a node.

    Attributes:
        words: upstream's message; for a claim only what follows its name, so that pods with equal claims share it.
        is_error: whether the attempt fails, or only this node is rejected.
        claim: the index of the claim to name before the message; None without one.
    """

    words: str
    is_error: bool = False
    claim: int | None = None

    def named(self, names: Sequence[str]) -> DeviceRefusal:
        """Return the refusal with the name of the claim in its message; `names` are those of all claims."""
        if self.claim is None:
            return self
        return DeviceRefusal(f"claim {names[self.claim]}{self.words}", self.is_error)


class Alternatives(NamedTuple):
    """Devices can be allocated to claims on a node, with the chosen alternatives of their requests.

    Attributes:
        chosen: the indexes of the alternatives, in the order of claims and requests.
        node_uses: what the devices of each claim take of the node; empty if none takes anything.
    """

    chosen: tuple[int, ...]
    node_uses: tuple[NodeUse | None, ...] = ()


Verdict = DeviceRefusal | Alternatives | None
"""The result of a node: None means yes, without a choice between alternatives or use of the node's own resources."""

NOT_ALL: Final = DeviceRefusal(Reason("cannot allocate all claims", reason_codes.DEVICES_UNAVAILABLE))
INVALID_POOLS: Final = DeviceRefusal(
    Reason("invalid resource pools were encountered", reason_codes.INVALID_POOLS)
)


Value = tuple[str, str | int | bool] | None
"""An attribute's type and value; None for an attribute without a known type."""
Values = frozenset[tuple[str, str | int | bool]]
"""The values of an attribute that has one or several; empty for one without a known type."""


class Constraint(ABC):
    """Counts the devices that a claim gets, and rejects devices that violate the constraint."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        self._requests = frozenset(requests)
        self._attribute = attribute

    def add(self, wanted: WantedDevices, device: PoolDevice) -> bool:
        """Count a device that is allocated for a request; return False, and count nothing, if it violates the constraint.

        Raises:
            DerivedAttributeError: the attribute is derived, and cannot be computed.
        """
        if not self._concerns(wanted):
            return True
        name = self._attribute
        if name in wanted.derived:
            attribute: DeviceAttribute | None = wanted.derived_attribute(name, device)
        else:
            attribute = attribute_of(device, name)
        return attribute is not None and self._add(wanted.base_name, attribute)

    def remove(self, wanted: WantedDevices) -> None:
        """Remove the last device that was counted for a request."""
        if self._concerns(wanted):
            self._remove(wanted.base_name)

    def _concerns(self, wanted: WantedDevices) -> bool:
        return not self._requests or not self._requests.isdisjoint(wanted.names)

    @abstractmethod
    def _add(self, request: str, attribute: DeviceAttribute) -> bool: ...

    @abstractmethod
    def _remove(self, request: str) -> None: ...


class MatchAttribute(Constraint):
    """All devices have the same value."""

    _value: Value = None
    _count = 0

    def _add(self, request: str, attribute: DeviceAttribute) -> bool:
        value = value_of(attribute)
        if not self._count:
            self._value = value
        elif value is None or value != self._value:
            return False
        self._count += 1
        return True

    def _remove(self, request: str) -> None:
        self._count -= 1


class CommonValue(Constraint):
    """All devices have a value in common, of attributes with one or several values."""

    def __init__(self, requests: tuple[str, ...], attribute: str, *, restores: bool) -> None:
        super().__init__(requests, attribute)
        self._restores = restores
        self._common: list[Values] = []  # what the first devices have in common: of one, of two, ...
        self._count = 0

    def _add(self, request: str, attribute: DeviceAttribute) -> bool:
        values = values_of_all(attribute)
        if self._count:
            values &= self._common[-1]
        else:
            self._common.clear()
        if not values:
            return False
        self._common.append(values)
        self._count += 1
        return True

    def _remove(self, request: str) -> None:
        self._count -= 1
        if self._restores:
            self._common.pop()


class DistinctAttribute(Constraint):
    """All devices have different values.

    Args:
        of_each_device: whether all devices are remembered, or only the last one of each request.
        has_lists: whether attributes may have several values: then no two devices have a value in common.

    Source:
        https://github.com/kubernetes/kubernetes/pull/140600
    """

    def __init__(
        self, requests: tuple[str, ...], attribute: str, *, of_each_device: bool, has_lists: bool
    ) -> None:
        super().__init__(requests, attribute)
        self._of_each_device = of_each_device
        self._has_lists = has_lists
        self._values: dict[Hashable, Values] = {}  # number of a device, or name of a request -> values
        self._count = 0

    def _add(self, request: str, attribute: DeviceAttribute) -> bool:
        if self._has_lists:
            values = values_of_all(attribute)
        else:
            value = value_of(attribute)
            values = frozenset() if value is None else frozenset({value})
        known = self._values.values()
        if known and not (values and all(map(values.isdisjoint, known))):
            return False
        self._values[self._count if self._of_each_device else request] = values
        self._count += 1
        return True

    def _remove(self, request: str) -> None:
        self._count -= 1
        self._values.pop(self._count if self._of_each_device else request, None)


def constraint_of(written: DeviceConstraint, features: DeviceFeatures) -> Constraint | None:
    """Return an empty constraint; None for an unknown kind."""
    has_lists = features.list_attributes
    match, distinct = written.match_attribute, written.distinct_attribute
    if match is not None:
        if has_lists:
            return CommonValue(written.requests, match, restores=features.distinct_devices)
        return MatchAttribute(written.requests, match)
    if distinct is None:
        return None
    return DistinctAttribute(
        written.requests, distinct, of_each_device=features.distinct_devices, has_lists=has_lists
    )


def concerns(written: DeviceConstraint, wanted: WantedDevices) -> bool:
    """Return whether a constraint applies to the devices for a request."""
    return not written.requests or not wanted.names.isdisjoint(written.requests)


def attribute_of(device: PoolDevice, name: str) -> DeviceAttribute | None:
    """Find an attribute by its full name; attributes of the driver's own domain may be written without the domain."""
    attributes = device.device.attributes
    found = attributes.get(name)
    if found is None:
        domain, slash, short = name.partition("/")
        if slash and domain == device.id.driver:
            found = attributes.get(short)
    return found


def value_of(attribute: DeviceAttribute) -> Value:
    """Return the value of an attribute, with its type."""
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    return None if attribute.version_value is None else ("version", attribute.version_value)


def values_of_all(attribute: DeviceAttribute) -> Values:
    """Return the values of an attribute, with their type.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/experimental,
        allocator_experimental.go, attributeAsSet.
    """
    for kind, several in (
        ("int", attribute.int_values),
        ("bool", attribute.bool_values),
        ("string", attribute.string_values),
        ("version", attribute.version_values),
    ):
        if several:
            return frozenset((kind, value) for value in several)
    value = value_of(attribute)
    return frozenset() if value is None else frozenset({value})


class AvailableCounters:
    """The amounts of each pool's counters that allocated devices leave, computed on the first request for a pool.

    Before `counters_by_driver` pools are identified by their names without their drivers: of two pools with one name, the
    counters of the first that is requested count for both.
    """

    def __init__(self, allocated: AllocatedDevices, features: DeviceFeatures) -> None:
        self._allocated = allocated
        self._seen = allocated.changes
        self._by_driver = features.counters_by_driver
        self._features = features
        self._known: dict[Hashable, Counters] = {}  # see `key` -> what is left
        self._groups: dict[Hashable, Groups] = {}  # the same keys -> the groups of allocated devices

    def key(self, pool: PoolID) -> Hashable:
        """Return what identifies the counters of a pool."""
        return pool if self._by_driver else pool.pool

    def of(self, pool: Pool) -> Counters:
        """Return what is left; it may be negative."""
        if self._allocated.changes != self._seen:
            self._forget()
        key = self.key(pool.id)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._computed(pool)
        return known

    def concerns_groups(self, pool: Pool) -> bool:
        """Return whether devices of a pool have compatibility groups, or are held with some."""
        return self._features.knows_compatibility_groups and (
            pool.has_groups or pool.id in self._allocated.groups
        )

    def groups_of(self, pool: Pool) -> Groups:
        """Return the compatibility groups of the allocated devices that consume counters."""
        if self._allocated.changes != self._seen:
            self._forget()
        key = self.key(pool.id)
        known = self._groups.get(key)
        if known is None:
            known = self._groups[key] = self._computed_groups(pool)
        return known

    def admits_groups(self, device: PoolDevice) -> bool:
        """Return whether a device may be allocated with its compatibility groups."""
        features = self._features
        return features.compatibility_groups or not any(
            each.compatibility_groups for each in device.device.consumes_counters
        )

    def _forget(self) -> None:
        """Forget the pools with devices that were allocated or released."""
        changed = self._allocated.changed_since(self._seen)
        self._seen = self._allocated.changes
        if changed is None:
            self._known.clear()
            self._groups.clear()
        else:
            for pool in changed:
                self._known.pop(self.key(pool), None)
                self._groups.pop(self.key(pool), None)

    def _computed(self, pool: Pool) -> Counters:
        left = dict(pool.counters)
        for device in (*pool.devices, *pool.others):
            if device.takes and self._allocated.is_allocated(device.id):
                for place, amount in device.takes.items():
                    left[place] -= amount
        return left

    def _computed_groups(self, pool: Pool) -> Groups:
        """Return the groups that claims name; a device that a claim names without groups has none."""
        found: Groups = {}
        by_device = self._allocated.groups.get(pool.id, {})
        for named in by_device.values():
            for each in named:
                for counter_set, groups in each.items():
                    found.setdefault(counter_set, []).append(frozenset(groups))
        for device in (*pool.devices, *pool.others):
            if device.takes and self._allocated.is_allocated(device.id):
                named = by_device.get(device.id, [])
                for consumption in device.device.consumes_counters:
                    if not any(consumption.counter_set in each for each in named):
                        found.setdefault(consumption.counter_set, []).append(frozenset())
        return found


Groups = dict[str, list[frozenset[str]]]
"""Counter set -> the compatibility groups of each device that consumes it; empty for a device without groups."""


def are_compatible(groups: frozenset[str], others: Sequence[frozenset[str]]) -> bool:
    """Return whether a device with some groups may be allocated besides others: all without groups, or all with a common one.

    Source:
        KEP-5963, Scheduler Changes.
    """
    if not groups:
        return not any(others)
    return bool(groups.intersection(*others))


class TakenCounters:
    """The amounts that the devices of a search consume so far, in addition."""

    def __init__(self, available: AvailableCounters) -> None:
        self._available = available
        self._taken: dict[Hashable, Counters] = {}  # pool -> amounts
        self._groups: dict[Hashable, Groups | None] = {}  # pool -> groups; None if they do not matter there

    def take(self, pool: Pool, device: PoolDevice) -> bool:
        """Count what a device consumes; return False, and count nothing, if that is more than is left.

        The same if the device is not compatible with others that consume the same counters.
        """
        key = self._available.key(pool.id)
        if key not in self._groups:
            self._groups[key] = {} if self._available.concerns_groups(pool) else None
        groups = self._groups[key]
        if groups is not None and not self._is_compatible(pool, device, groups):
            return False
        available = self._available.of(pool)
        taken = self._taken.setdefault(key, {})
        for place, amount in device.takes.items():
            taken[place] = taken.get(place, 0) + amount
        if groups is not None:
            for each in device.device.consumes_counters:
                groups.setdefault(each.counter_set, []).append(frozenset(each.compatibility_groups))
        if all(taken.get(place, 0) <= amount for place, amount in available.items()):
            return True
        self.give_back(pool, device)
        return False

    def give_back(self, pool: Pool, device: PoolDevice) -> None:
        """Stop counting a device."""
        key = self._available.key(pool.id)
        taken, groups = self._taken[key], self._groups[key]
        for place, amount in device.takes.items():
            taken[place] -= amount
        if groups is not None:
            for each in device.device.consumes_counters:
                groups[each.counter_set].remove(frozenset(each.compatibility_groups))

    def _is_compatible(self, pool: Pool, device: PoolDevice, taken: Groups) -> bool:
        if not self._available.admits_groups(device):
            return False
        allocated = self._available.groups_of(pool)
        return all(
            are_compatible(
                frozenset(each.compatibility_groups),
                [*allocated.get(each.counter_set, ()), *taken.get(each.counter_set, ())],
            )
            for each in device.device.consumes_counters
        )


_REFUSING: Final = frozenset({"NoSchedule", "NoExecute"})


def is_tainted(device: Device, tolerations: Sequence[DeviceToleration]) -> bool:
    """Return whether a taint excludes a device for a request with these tolerations."""
    return refusing_taint(device, tolerations) is not None


def refusing_taint(device: Device, tolerations: Sequence[DeviceToleration]) -> DeviceTaint | None:
    """Return the first taint that excludes a device.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
        allocator_incubating.go, taintPreventsAllocation.
    """
    for taint in device.taints:
        if taint.effect in _REFUSING and not any(each.tolerates(taint) for each in tolerations):
            return taint
    return None
