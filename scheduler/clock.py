"""Time comes from one injected clock, so that an hour of backoff is a millisecond of test."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Where everything in the daemon reads the time."""

    def monotonic(self) -> float:
        """Seconds that only ever grow, from an arbitrary start: for durations and deadlines."""
        ...

    def utc_now(self) -> datetime:
        """The time of day in UTC: for what others read."""
        ...


_since_boot = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class SystemClock:
    """The machine's own clocks; where the system has one, a monotonic clock that runs on while the machine is suspended.

    Others take a lease over by their clocks while this machine sleeps: when it wakes, its own clock must show that.
    """

    def monotonic(self) -> float:
        return _since_boot()

    def utc_now(self) -> datetime:
        return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """Write a moment as `metav1.Time` does: UTC, whole seconds, as in `2026-11-21T01:34:13Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """Write a moment as `metav1.MicroTime` does: UTC, six decimals."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
