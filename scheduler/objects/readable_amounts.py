"""Formats amounts for people: milliCPU as `1.5`, bytes as `1.5Gi`."""

from __future__ import annotations

from typing import Final

from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY

_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_HUGE_PAGES: Final = "hugepages-"


def readable_amounts(resource: str, *amounts: int) -> list[str]:
    """Format amounts of one resource; bytes with two decimals if different amounts stay different, else in full."""
    if resource == CPU:
        return [_plain(amount, 3) for amount in amounts]
    if resource not in {MEMORY, EPHEMERAL_STORAGE} and not resource.startswith(_HUGE_PAGES):
        return [str(amount) for amount in amounts]
    short = [_short(amount) for amount in amounts]
    return short if len(set(short)) == len(set(amounts)) else [str(amount) for amount in amounts]


def _short(size_bytes: int) -> str:
    step = min(max(0, abs(size_bytes).bit_length() - 1) // 10, len(_UNITS) - 1)
    hundredths = abs(size_bytes) * 100 >> 10 * step
    return _plain(hundredths if size_bytes >= 0 else -hundredths, 2) + _UNITS[step]


def _plain(number: int, digits: int) -> str:
    """Format a number whose last digits are decimals, without trailing zeros."""
    whole, rest = divmod(abs(number), 10**digits)
    sign = "-" if number < 0 else ""
    return f"{sign}{whole}.{rest:0{digits}}".rstrip("0") if rest else f"{sign}{whole}"
