"""A clock that only a test advances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(2026, 3, 1, 8, tzinfo=UTC)


class ManualClock:
    """Implements `scheduler.clock.Clock`; the test sets or advances `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now

    def utc_now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self.now)
