"""Quantities as whole numbers of billionths: exact, since none is finer, and fast to add and compare."""

from __future__ import annotations

from functools import lru_cache

from scheduler.objects.quantity import parse_quantity

_BILLIONTHS = 9


@lru_cache(maxsize=4096)
def amount_of(quantity: str | float) -> int:
    """Return a quantity as it is written as a number of billionths."""
    read = parse_quantity(quantity)
    # What is 0 may have been written with any exponent.
    return int(read.unscaled * 10 ** (read.exponent + _BILLIONTHS)) if read.unscaled else 0
