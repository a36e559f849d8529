"""Constraints between the devices of a claim.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    allocator_incubating.go and constraint.go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugins.dynamic_resources.structured.pools import PoolDevice
    from plugins.dynamic_resources.structured.requests import WantedDevices
    from scheduler.objects.dynamic_resources import DeviceAttribute, DeviceConstraint

Value = tuple[str, str | int | bool] | None
"""An attribute's type and value; None for an attribute without a known type."""


class Constraint(ABC):
    """Counts the devices that a claim gets, and rejects devices that violate the constraint."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        self._requests = frozenset(requests)
        self._attribute = attribute

    def add(self, wanted: WantedDevices, device: PoolDevice) -> bool:
        """Count a device that is allocated for a request; return False, and count nothing, if it violates the constraint."""
        if not self._concerns(wanted):
            return True
        attribute = attribute_of(device, self._attribute)
        return attribute is not None and self._add(wanted.base_name, value_of(attribute))

    def remove(self, wanted: WantedDevices) -> None:
        """Remove the last device that was counted for a request."""
        if self._concerns(wanted):
            self._remove(wanted.base_name)

    def _concerns(self, wanted: WantedDevices) -> bool:
        return not self._requests or not self._requests.isdisjoint(wanted.names)

    @abstractmethod
    def _add(self, request: str, value: Value) -> bool: ...

    @abstractmethod
    def _remove(self, request: str) -> None: ...


class MatchAttribute(Constraint):
    """All devices have the same value."""

    _value: Value = None
    _count = 0

    def _add(self, request: str, value: Value) -> bool:
        if not self._count:
            self._value = value
        elif value is None or value != self._value:
            return False
        self._count += 1
        return True

    def _remove(self, request: str) -> None:
        self._count -= 1


class DistinctAttribute(Constraint):
    """All devices have different values. As upstream, only the last device of each request is remembered."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, Value] = {}  # name of a request -> value
        self._count = 0

    def _add(self, request: str, value: Value) -> bool:
        if self._count and self._values and (value is None or value in self._values.values()):
            return False
        self._values[request] = value
        self._count += 1
        return True

    def _remove(self, request: str) -> None:
        self._values.pop(request, None)
        self._count -= 1


def constraint_of(written: DeviceConstraint) -> Constraint | None:
    """Return an empty constraint; None for an unknown kind."""
    if written.match_attribute is not None:
        return MatchAttribute(written.requests, written.match_attribute)
    if written.distinct_attribute is not None:
        return DistinctAttribute(written.requests, written.distinct_attribute)
    return None


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
