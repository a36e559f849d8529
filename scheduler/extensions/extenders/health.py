"""Statistics of an extender, for people."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class ExtenderHealth:
    """Statistics since the extender's configuration became active.

    Attributes:
        asked: number of calls.
        failed: number of failed calls.
        seconds: duration of the last successful call.
        answered_at: time of the last successful call, in Unix seconds; None before the first.
        failed_at: time of the last failed call, in Unix seconds; None before the first.
        error: the last failure; "" if there is none.
    """

    asked: int = 0
    failed: int = 0
    seconds: float = 0.0
    answered_at: float | None = None
    failed_at: float | None = None
    error: str = ""

    def answered(self, seconds: float) -> None:
        """Record a successful call."""
        self.asked += 1
        self.seconds = seconds
        self.answered_at = time.time()

    def fails(self, error: str) -> None:
        """Record a failed call."""
        self.asked += 1
        self.failed += 1
        self.failed_at = time.time()
        self.error = error
