"""Quantities as whole numbers of billionths: exact, since no quantity is finer, and fast to add and compare."""

from __future__ import annotations

from functools import lru_cache

from scheduler.objects.quantity import parse_quantity


@lru_cache(maxsize=4096)
def amount_of(quantity: str | float) -> int:
    """Convert a written quantity to a number of billionths; see `Quantity.nanos`."""
    return parse_quantity(quantity).nanos
