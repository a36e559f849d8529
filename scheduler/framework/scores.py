"""Arithmetic that scores are made of: int64 as in Go, all nodes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.interface import MAX_NODE_SCORE
from scheduler.snapshot import wrapped

if TYPE_CHECKING:
    from scheduler.snapshot import Int64s, Rows


_EXACT_IN_FLOAT = 1 << 53


def divide(dividend: Int64s, divisor: Int64s | int) -> Int64s:
    """Divide toward zero, as Go does, where NumPy rounds down.

    Args:
        dividend: (n_nodes,).
        divisor: (n_nodes,) or one for all; never 0.
    """
    if dividend.min(initial=0) >= 0:
        if isinstance(divisor, int):
            if divisor > 0 and divisor & (divisor - 1) == 0:  # a power of two, which mostly is 1 or 2
                return dividend >> (divisor.bit_length() - 1)
        elif divisor.min(initial=1) > 0 and dividend.max(initial=0) < _EXACT_IN_FLOAT:
            return divide_small(dividend, divisor)
    # The lowest int64 divided by -1 wraps around, in Go without a word.
    with np.errstate(over="ignore"):
        quotient: Int64s = dividend // divisor
    inexact = quotient * divisor != dividend
    quotient += inexact & ((dividend < 0) != (np.asarray(divisor) < 0))
    return quotient


def divide_one(dividend: int, divisor: int) -> int:
    """Divide two numbers as `divide` does arrays of them."""
    quotient = abs(dividend) // abs(divisor)
    return wrapped(quotient if (dividend < 0) == (divisor < 0) else -quotient)


def divide_small(dividend: Int64s, divisor: Int64s) -> Int64s:
    """Divide as `divide` what is neither negative nor, the dividend, 2**53 or more, without looking.

    Processors divide floats many times faster than integers. The quotient of two such numbers, when it is just
    below an integer, is further below than rounding reaches, so it is never taken for that integer.
    """
    return (dividend / divisor).astype(np.int64)


def default_normalize_score(scores: Int64s, feasible: Rows, *, reverse: bool = False) -> Int64s:
    """Stretch scores so that the best feasible node has MAX_NODE_SCORE, or none if all have 0.

    Args:
        scores: int64 (n_nodes,), not negative.
        feasible: the rows that count.
        reverse: a low score is the better one.

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
