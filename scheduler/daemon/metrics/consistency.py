"""Metrics of the comparisons of the cache with the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.daemon.metrics.families import Families

RESULTS = ("clean", "drift", "failed")


class ConsistencyMetrics:
    """Counts checks and their findings."""

    def __init__(self, families: Families) -> None:
        self._checks = families.counters(
            "custom_scheduler_cache_checks_total",
            "Comparisons of the cache with the API server, by result: clean, drift, failed (no answer from the server).",
            "result",
        )
        self._drift = families.counters(
            "custom_scheduler_cache_drift_total",
            "Differences between the cache and the API server or its own source data, by type.",
            "what",
        )
        self._checked_at = families.gauges(
            "custom_scheduler_cache_last_check_timestamp_seconds",
            "When the cache was last compared with the API server.",
        )
        for result in RESULTS:
            self._checks[result].add(0)

    def checked(self, result: str, found: Iterable[str], at: float) -> None:
        """Count a check.

        Args:
            result: one of RESULTS.
            found: the type of each difference.
            at: time in Unix seconds.
        """
        self._checks[result].add()
        for what in found:
            self._drift[what].add()
        if result != "failed":
            self._checked_at[()].value = at

    def may_find(self, what: Iterable[str]) -> None:
        """Show the series of all types from the beginning, so that a first finding is an increase."""
        for each in what:
            self._drift[each].add(0)
