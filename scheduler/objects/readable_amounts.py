"""Formats amounts for people: milliCPU as `1.5`, bytes as `1.5Gi`."""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal
from typing import Final

from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY

_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_HUGE_PAGES: Final = "hugepages-"


def readable_amounts(resource: str, *amounts: int) -> list[str]:
    """Format amounts of one resource; bytes with two decimals if different amounts stay different, else in full."""
    if resource == CPU:
        return [_plain(Decimal(amount) / 1000) for amount in amounts]
    if resource not in {MEMORY, EPHEMERAL_STORAGE} and not resource.startswith(_HUGE_PAGES):
        return [str(amount) for amount in amounts]
    short = [_short(amount) for amount in amounts]
    return short if len(set(short)) == len(set(amounts)) else [str(amount) for amount in amounts]


def _short(size_bytes: int) -> str:
    step = min(max(0, abs(size_bytes).bit_length() - 1) // 10, len(_UNITS) - 1)
    scaled = Decimal(size_bytes) / (1 << 10 * step)
    return _plain(scaled.quantize(Decimal("0.01"), ROUND_DOWN)) + _UNITS[step]


def _plain(number: Decimal) -> str:
    return f"{number:f}".rstrip("0").rstrip(".") if number % 1 else f"{number:.0f}"
