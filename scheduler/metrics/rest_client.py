"""Requests to the API server, counted under the names of Kubernetes' own client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.metrics.families import Families

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_NO_ANSWER = "<error>"


class RestClientMetrics:
    """Fulfils `client.connection.RequestObserver`.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-base/metrics/prometheus/restclient/metrics.go.
    """

    def __init__(self, families: Families) -> None:
        self._requests = families.counters(
            "rest_client_requests_total",
            "Requests to the API server, by status code, method and host; watches too.",
            "code host method",
        )
        self._seconds = families.histograms(
            "rest_client_request_duration_seconds",
            "From sending a request to the end of its answer, in seconds; without watches.",
            "host verb",
            bounds=_SECONDS,
        )

    def requested(self, host: str, method: str, status: int, seconds: float | None) -> None:
        """Count a request.

        Args:
            host: name and port.
            method: of HTTP.
            status: of the answer; 0 when there was none.
            seconds: how long it took; None for a watch, which lasts as long as it is wanted.
        """
        self._requests[str(status) if status else _NO_ANSWER, host, method].add()
        if seconds is not None:
            self._seconds[host, method].observe(seconds)
