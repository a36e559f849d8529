"""How much of a device's capacities a request consumes, if several claims may share the device.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    consumable_capacity.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from plugins.dynamic_resources.structured.amounts import amount_of
from scheduler.objects.canonical_quantity import canonical_quantity
from scheduler.objects.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.dynamic_resources import (
        CapacityRequestPolicy,
        CapacityRequestPolicyRange,
        CapacityRequirements,
        Device,
        DeviceCapacity,
    )

Written = str | int | float
"""A quantity as the object contains it."""


class Consumption(NamedTuple):
    """What a request consumes of one capacity.

    Attributes:
        amount: the amount, see `amounts`.
        available: what the device has of the capacity, in the same unit.
        written: the amount, in the form of the allocation.
    """

    amount: int
    available: int
    written: str


def consumption(device: Device, asked: CapacityRequirements | None) -> dict[str, Consumption] | None:
    """Return what a request would consume of each capacity of a device; None if the device cannot satisfy it.

    A device cannot satisfy a request for a capacity that it lacks, for more than it has, or against its policy.

    Source:
        as of this module, CmpRequestOverCapacity and GetConsumedCapacityFromRequest.
    """
    requests = asked.requests if asked is not None else {}
    if not requests.keys() <= device.capacity.keys():
        return None
    consumed: dict[str, Consumption] = {}
    for name, capacity in device.capacity.items():
        quantity = _consumed(requests.get(name), capacity)
        if _violates(quantity, capacity.request_policy):
            return None
        amount, available = amount_of(quantity), amount_of(capacity.value)
        if amount > available:
            return None
        consumed[name] = Consumption(amount, available, canonical_quantity(quantity))
    return consumed


def fits(consumed: Mapping[str, Consumption], *taken: Mapping[str, int]) -> bool:
    """Return whether a device has what a request would consume, in addition to `taken`: capacity -> amount."""
    return all(
        each.amount + sum(amounts.get(name, 0) for amounts in taken) <= each.available
        for name, each in consumed.items()
    )


def _consumed(asked: Written | None, capacity: DeviceCapacity) -> Written:
    policy = capacity.request_policy
    if asked is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_up(asked, policy.valid_range)
    return next((valid for valid in policy.valid_values if amount_of(asked) <= amount_of(valid)), asked)


def _rounded_up(asked: Written, valid: CapacityRequestPolicyRange) -> Written:
    assert valid.min is not None
    if amount_of(asked) < amount_of(valid.min):
        return valid.min
    step = _step(valid)
    if not step:
        return asked
    least = parse_quantity(valid.min).value()
    rounded = least - (least - parse_quantity(asked).value()) // step * step
    return rounded if rounded % 1024 else f"{rounded // 1024}Ki"


def _violates(quantity: Written, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount_of(policy.default) == amount_of(quantity)):
        return False
    valid = policy.valid_range
    if valid is None:
        values = policy.valid_values
        return bool(values) and all(amount_of(value) != amount_of(quantity) for value in values)
    if valid.max is not None and amount_of(quantity) > amount_of(valid.max):
        return True
    step = _step(valid)
    least = 0 if valid.min is None else parse_quantity(valid.min).value()
    return bool(step) and (parse_quantity(quantity).value() - least) % step != 0


def _step(valid: CapacityRequestPolicyRange) -> int:
    return 0 if valid.step is None else parse_quantity(valid.step).value()
