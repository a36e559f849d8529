"""Exponential backoff with jitter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Backoff:
    """Exponential waits with jitter.

    The n-th wait since the last `reset` lies between half of and all of `initial * 2**n`, capped, so that
    clients that lost the same server do not all reconnect at once.
    """

    def __init__(self, random: Random, *, initial_seconds: float, maximum_seconds: float) -> None:
        self._random = random
        self._initial = initial_seconds
        self.maximum_seconds = maximum_seconds
        self._ceiling = initial_seconds

    def next_seconds(self) -> float:
        """Return how long to wait this time; the next wait is longer."""
        ceiling = self._ceiling
        self._ceiling = min(ceiling * 2, self.maximum_seconds)
        return ceiling * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again from the shortest wait, after a success."""
        self._ceiling = self._initial
