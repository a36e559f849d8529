"""What is asked of us as another scheduler's extender."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from scheduler.metrics.families import Families


class ExtenderRequestMetrics:
    """Metrics of the requests of other schedulers."""

    def __init__(self, families: Families) -> None:
        self._requests = families.counters(
            "custom_scheduler_extender_requests_total",
            "Requests of schedulers whose extender this is, by verb and result: success, error (it could not be "
            "answered), invalid (it was not understood, or asks for what is not served).",
            "verb result",
        )
        self._seconds = families.histograms(
            "custom_scheduler_extender_request_duration_seconds",
            "How long it took to answer a request of a scheduler whose extender this is.",
            "verb",
            bounds=exponential_buckets(0.0005, 2, 15),
        )
        self._nodes = families.counters(
            "custom_scheduler_extender_unknown_nodes_total",
            "Nodes that a scheduler asked about and that were not known here.",
        )

    def extender_asked(self, verb: str, result: str, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[verb, result].add()
        self._seconds[verb].observe(seconds)

    def unknown_nodes(self, number: int) -> None:
        """Count nodes that were asked about and are not known."""
        self._nodes[()].add(number)
