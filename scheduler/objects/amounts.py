"""Converts quantities of resources to the integers that scheduling computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.canonical_quantity import canonical_quantity
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping

Amounts = dict[str, str | int | float]
"""Resource -> quantity, as written in an object."""

_MAX_INT64: Final = 2**63 - 1
_MOST, _MOST_MILLI = _MAX_INT64 * 10**9, _MAX_INT64 * 10**6  # in billionths


def amounts_of(given: Amounts) -> dict[str, int]:
    """Return resource -> milliCPU, bytes or a count.

    Raises:
        ValueError: an amount is not a quantity.
    """
    quantities = {name: parse_quantity(str(amount)) for name, amount in given.items()}
    return {
        name: quantity.milli_value() if name == CPU else quantity.value()
        for name, quantity in quantities.items()
    }


def bounded_amount(resource: str, given: str | float) -> int:
    """Return milliCPU, bytes or a count; negative amounts, and those that overflow upstream's int64, are errors.

    Raises:
        ValueError: it is not a quantity, or such an amount.
    """
    quantity = parse_quantity(str(given))
    if quantity.unscaled < 0:
        raise ValueError(f"at least 0 is expected, was {given}")
    if quantity.nanos > (_MOST_MILLI if resource == CPU else _MOST):
        raise ValueError(f"at most {amount_text(resource, _MAX_INT64)} is expected, was {given}")
    return quantity.milli_value() if resource == CPU else quantity.value()


def amount_text(resource: str, amount: int) -> str:
    """Format milliCPU, bytes or a count as a quantity."""
    if resource == CPU:
        return canonical_quantity(f"{amount}m")
    if resource in {MEMORY, EPHEMERAL_STORAGE} and amount and amount % 1024 == 0:
        return canonical_quantity(f"{amount // 1024}Ki")
    return str(amount)


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Format amounts for people, as in `cpu: 2, memory: 4Gi`."""
    return ", ".join(f"{name}: {amount_text(name, amount)}" for name, amount in sorted(amounts.items()))
