"""Arithmetic for scores: int64 as in Go, on all nodes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.interface import MAX_NODE_SCORE
from scheduler.snapshot import wrapped

if TYPE_CHECKING:
    from scheduler.snapshot import Int64s, Rows


_EXACT_IN_FLOAT = 1 << 53


def divide(dividend: Int64s, divisor: Int64s | int) -> Int64s:
    """Divide toward zero, as Go does; NumPy rounds down.

    Args:
        dividend: (n_nodes,).
        divisor: (n_nodes,) or one number for all; never 0.
    """
    if dividend.min(initial=0) >= 0:
        if isinstance(divisor, int):
            if divisor > 0 and divisor & (divisor - 1) == 0:  # a power of two, usually 1 or 2
                return dividend >> (divisor.bit_length() - 1)
        elif divisor.min(initial=1) > 0 and dividend.max(initial=0) < _EXACT_IN_FLOAT:
            return divide_small(dividend, divisor)
    # The lowest int64 divided by -1 wraps around, in Go without an error.
    with np.errstate(over="ignore"):
        quotient: Int64s = dividend // divisor
    inexact = quotient * divisor != dividend
    quotient += inexact & ((dividend < 0) != (np.asarray(divisor) < 0))
    return quotient


def divide_one(dividend: int, divisor: int) -> int:
    """Divide two numbers as `divide` does with arrays."""
    quotient = abs(dividend) // abs(divisor)
    return wrapped(quotient if (dividend < 0) == (divisor < 0) else -quotient)


def divide_small(dividend: Int64s, divisor: Int64s) -> Int64s:
    """Divide as `divide`, unchecked: nothing may be negative, and the dividend must be below 2**53.

    Processors divide floats many times faster than integers. If the quotient of two such numbers is just
    below an integer, the distance is larger than the rounding error, so it is never rounded to that integer.
    """
    return (dividend / divisor).astype(np.int64)


def default_normalize_score(scores: Int64s, feasible: Rows, *, reverse: bool = False) -> Int64s:
    """Scale scores so that the best feasible node has MAX_NODE_SCORE, or 0 if all have 0.

    Args:
        scores: int64 (n_nodes,), not negative.
        feasible: the feasible rows.
        reverse: whether a low score is better.

    Returns:
        int64 (n_nodes,), in [0, 100] at feasible rows.
    Source:
        kube-scheduler v1.36, plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """
    counted = scores if len(feasible) == len(scores) else scores[feasible]
    most = int(counted.max(initial=0))
    if most == 0:
        return np.full(len(scores), MAX_NODE_SCORE, dtype=np.int64) if reverse else scores
    stretched = divide(scores * MAX_NODE_SCORE, most)
    return MAX_NODE_SCORE - stretched if reverse else stretched
