"""Go's arithmetic on one number at a time."""

from __future__ import annotations

import math


def wrap(number: int) -> int:
    """Keep the low 64 bits, as int64 does."""
    return (number + 2**63) % 2**64 - 2**63


def divide(dividend: int, divisor: int) -> int:
    """Divide toward zero."""
    size = abs(dividend) // abs(divisor)
    return wrap(size if (dividend < 0) == (divisor < 0) else -size)


def to_int64(number: float) -> int:
    """Convert as int64() does on amd64: toward zero, and the lowest int64 for what does not fit."""
    if math.isnan(number) or math.isinf(number):
        return -(2**63)
    whole = math.trunc(number)
    return whole if -(2**63) <= whole < 2**63 else -(2**63)


def default_normalize_score(scores: list[int], *, reverse: bool) -> list[int]:
    """helper.DefaultNormalizeScore, of the feasible nodes' scores."""
    most = max([0, *scores])
    if most == 0:
        return [100] * len(scores) if reverse else scores
    stretched = [divide(wrap(100 * score), most) for score in scores]
    return [100 - score for score in stretched] if reverse else stretched
