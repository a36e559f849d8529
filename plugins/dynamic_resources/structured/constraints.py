"""What the devices of a claim must have in common, or must not.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    allocator_incubating.go and constraint.go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugins.dynamic_resources.structured.pools import PoolDevice
    from plugins.dynamic_resources.structured.requests import Wanted
    from scheduler.objects.dynamic_resources import DeviceAttribute, DeviceConstraint

Value = tuple[str, str | int | bool] | None
"""An attribute's type and value; None of an attribute that has none which is known."""


class Constraint(ABC):
    """Counts the devices that are given to a claim, and refuses those that do not go with them."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        self._requests = frozenset(requests)
        self._attribute = attribute

    def add(self, wanted: Wanted, device: PoolDevice) -> bool:
        """Count a device that is to be given for a request; say False, and count nothing, if it does not go."""
        if not self._concerns(wanted):
            return True
        attribute = attribute_of(device, self._attribute)
        return attribute is not None and self._add(wanted.base_name, value_of(attribute))

    def remove(self, wanted: Wanted) -> None:
        """Take back what was counted last for a request."""
        if self._concerns(wanted):
            self._remove(wanted.base_name)

    def _concerns(self, wanted: Wanted) -> bool:
        return not self._requests or not self._requests.isdisjoint(wanted.names)

    @abstractmethod
    def _add(self, request: str, value: Value) -> bool: ...

    @abstractmethod
    def _remove(self, request: str) -> None: ...


class MatchAttribute(Constraint):
    """All devices have one value."""

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
    """No two devices have one value. As upstream, of each request only the last device is remembered."""

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
    """Return a constraint that has counted nothing; None of a kind that is not known."""
    if written.match_attribute is not None:
        return MatchAttribute(written.requests, written.match_attribute)
    if written.distinct_attribute is not None:
        return DistinctAttribute(written.requests, written.distinct_attribute)
    return None


def concerns(written: DeviceConstraint, wanted: Wanted) -> bool:
    """Return whether a constraint is about the devices for a request."""
    return not written.requests or not wanted.names.isdisjoint(written.requests)


def attribute_of(device: PoolDevice, name: str) -> DeviceAttribute | None:
    """Find an attribute by its full name; those of the driver's own domain may be written without it."""
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
