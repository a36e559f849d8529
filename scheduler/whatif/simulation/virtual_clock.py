"""A clock that stands still while decisions are made, and then jumps to what happens next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Implements `scheduler.clock.Clock`.

    Attributes:
        now: seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def utc_now(self) -> datetime:
        return _START + timedelta(seconds=self.now)
