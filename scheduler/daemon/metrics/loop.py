"""Metrics of the main loop's lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.daemon.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from scheduler.daemon.metrics.families import Families


class LoopMetrics:
    """Metrics of the loop that all decisions, watches, bindings, HTTP endpoints and the lease share."""

    def __init__(self, families: Families) -> None:
        self._lag = families.histograms(
            "custom_scheduler_loop_lag_seconds",
            "How late a task of the main loop ran, measured ten times a second, in seconds.",
            bounds=exponential_buckets(0.001, 2, 15),
        )[()]
        self._stalls = families.counters(
            "custom_scheduler_loop_stalls_total",
            "Number of times that the main loop was held for more than a second, by cause.",
            "holder",
        )
        self._longest: dict[str, float] = {}
        families.read_gauges(
            "custom_scheduler_loop_longest_stall_seconds",
            "Longest time that the main loop was held, in seconds, of those beyond a second, by cause.",
            ("holder",),
            lambda: [((holder,), seconds) for holder, seconds in self._longest.items()],
        )

    def lagged(self, seconds: float) -> None:
        """Record how late a task ran."""
        self._lag.observe(seconds)

    def stalled(self, holder: str, seconds: float) -> None:
        """Record that something of a kind held the loop."""
        self._stalls[holder].add()
        self._longest[holder] = max(seconds, self._longest.get(holder, 0.0))
