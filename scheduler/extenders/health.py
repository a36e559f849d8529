"""How an extender has been doing, for people who look."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class ExtenderHealth:
    """What came of asking it, since its configuration is in force.

    Attributes:
        asked: how often.
        failed: how often that came to nothing.
        seconds: how long the last answer took.
        answered_at: when it answered last, in Unix seconds; None if it never did.
        failed_at: when it failed last, likewise.
        error: what the last failure was; "" without.
    """

    asked: int = 0
    failed: int = 0
    seconds: float = 0.0
    answered_at: float | None = None
    failed_at: float | None = None
    error: str = ""

    def answered(self, seconds: float) -> None:
        """Note an answer that made sense."""
        self.asked += 1
        self.seconds = seconds
        self.answered_at = time.time()

    def fails(self, error: str) -> None:
        """Note a failure."""
        self.asked += 1
        self.failed += 1
        self.failed_at = time.time()
        self.error = error
