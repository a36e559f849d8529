"""The injected clock: all time comes from it, so that tests take milliseconds for an hour of backoff."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Source of all time in the daemon."""

    def monotonic(self) -> float:
        """Return monotonic seconds from an arbitrary start, for durations and deadlines."""
        ...

    def utc_now(self) -> datetime:
        """Return the time of day in UTC, for output."""
        ...


_since_boot = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class SystemClock:
    """The machine's clocks; if available, the monotonic clock continues while the machine is suspended.

    Another scheduler takes over the lease while this machine is suspended: afterwards this clock must show
    it.
    """

    monotonic = staticmethod(_since_boot)

    def utc_now(self) -> datetime:
        return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """Format a time as `metav1.Time` does: UTC, whole seconds, as in `2026-11-21T01:34:13Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """Format a time as `metav1.MicroTime` does: UTC, six decimals."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
