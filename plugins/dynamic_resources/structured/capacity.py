"""How much of a device's capacities a request consumes, where a device may be given to several.

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
"""A quantity as it is written."""


class Consumption(NamedTuple):
    """What a request consumes of one capacity.

    Attributes:
        amount: see `amounts`, as the next.
        available: what the device has of it.
        written: the amount, as the allocation says it.
    """

    amount: int
    available: int
    written: str


def consumption(device: Device, asked: CapacityRequirements | None) -> dict[str, Consumption] | None:
    """Return what a request would consume of each capacity of a device; None if it can never have it.

    That is if it asks for a capacity that the device does not have, for more than there is, or against a policy.

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
    """Return whether a device still has what a request would consume, after what is taken of it: capacity -> amount."""
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
