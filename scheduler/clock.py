"""Time comes from one injected clock, so that an hour of backoff is a millisecond of test."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where everything in the daemon reads the time."""

    def monotonic(self) -> float:
        """Seconds that only ever grow, from an arbitrary start: for durations and deadlines."""
        ...

    def utc_now(self) -> datetime:
        """The time of day in UTC: for what others read."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def utc_now(self) -> datetime:
        return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """Write a moment as `metav1.Time` does: UTC, whole seconds, as in `2026-11-21T01:34:13Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """Write a moment as `metav1.MicroTime` does: UTC, six decimals."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
