"""Metrics of requests to this scheduler as an extender."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.daemon.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from scheduler.daemon.metrics.families import Families


class ExtenderRequestMetrics:
    """Metrics of the requests of other schedulers."""

    def __init__(self, families: Families) -> None:
        self._requests = families.counters(
            "custom_scheduler_extender_requests_total",
            "Requests of schedulers that use this extender, by verb and result: success, error (no answer was "
            "possible), invalid (the request was malformed, or its verb is not served).",
            "verb result",
        )
        self._seconds = families.histograms(
            "custom_scheduler_extender_request_duration_seconds",
            "Latency of answers to schedulers that use this extender, in seconds.",
            "verb",
            bounds=exponential_buckets(0.0005, 2, 15),
        )
        self._nodes = families.counters(
            "custom_scheduler_extender_unknown_nodes_total",
            "Nodes in requests that this extender does not know.",
        )

    def extender_asked(self, verb: str, result: str, seconds: float) -> None:
        """Count an answered request."""
        self._requests[verb, result].add()
        self._seconds[verb].observe(seconds)

    def unknown_nodes(self, number: int) -> None:
        """Count unknown nodes in requests."""
        self._nodes[()].add(number)
