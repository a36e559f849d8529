"""How late the main loop is, and what held it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from scheduler.metrics.families import Families


class LoopMetrics:
    """Metrics of the loop that all decisions, watches, bindings, pages and the lease share."""

    def __init__(self, families: Families) -> None:
        self._lag = families.histograms(
            "custom_scheduler_loop_lag_seconds",
            "How much later than it wanted a task of the main loop had its turn, asked ten times a second.",
            bounds=exponential_buckets(0.001, 2, 15),
        )[()]
        self._stalls = families.counters(
            "custom_scheduler_loop_stalls_total",
            "Times that something kept the main loop for more than a second, by what it was.",
            "holder",
        )
        self._longest: dict[str, float] = {}
        families.read_gauges(
            "custom_scheduler_loop_longest_stall_seconds",
            "The longest time that something has kept the main loop, of those beyond a second, by what it was.",
            ("holder",),
            lambda: [((holder,), seconds) for holder, seconds in self._longest.items()],
        )

    def lagged(self, seconds: float) -> None:
        """A task had its turn so late."""
        self._lag.observe(seconds)

    def stalled(self, holder: str, seconds: float) -> None:
        """Something of that kind held the loop for so long."""
        self._stalls[holder].add()
        self._longest[holder] = max(seconds, self._longest.get(holder, 0.0))
