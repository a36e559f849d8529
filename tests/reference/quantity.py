"""Quantities as their documentation defines them, in exact fractions: slow, obvious, and blind to overflow."""

from __future__ import annotations

import math
import re
from fractions import Fraction

NANO = Fraction(1, 10**9)
MILLI = Fraction(1, 1000)
ONE = Fraction(1)

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
_LARGEST_BINARY = Fraction(2**63 - 1)


def exact(text: str) -> Fraction:
    """Return the number a well-formed quantity stands for: at least in nanos, binary ones capped."""
    match = re.fullmatch(r"([+-]?[0-9.]+)(.*)", text)
    assert match is not None
    number, suffix = Fraction(match[1].replace(".", ".0") if match[1].endswith(".") else match[1]), match[2]
    if suffix not in _SUFFIXES:
        return away_from_zero(number * Fraction(10) ** int(suffix[1:]), NANO)
    found = away_from_zero(number * _SUFFIXES[suffix], NANO)
    if suffix.endswith("i"):
        found = max(-_LARGEST_BINARY, min(found, _LARGEST_BINARY))
    return found


def away_from_zero(number: Fraction, unit: Fraction) -> Fraction:
    """Round to whole units."""
    size = math.ceil(abs(number) / unit) * unit
    return size if number >= 0 else -size


def integer(number: Fraction, unit: Fraction = ONE) -> int:
    """Return how many units a number is, rounded away from zero."""
    return int(away_from_zero(number, unit) / unit)
