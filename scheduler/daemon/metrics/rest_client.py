"""Metrics of requests to the API server, with the names of client-go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scheduler.daemon.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from scheduler.daemon.metrics.families import Families

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_BYTES = (64, 256, 512, *exponential_buckets(1024, 4, 8))
_NO_ANSWER = "<error>"


class CountedRequest(Protocol):
    """A request, as far as it is counted."""

    @property
    def method(self) -> str: ...

    @property
    def body(self) -> bytes | None: ...

    @property
    def limited_seconds(self) -> float:
        """How long the client's own limits delayed the request."""
        ...


class RestClientMetrics:
    """Implements `client.connection.RequestObserver`.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-base/metrics/prometheus/restclient/metrics.go; the
        times of
        observations: staging/src/k8s.io/client-go/rest/request.go, request and Do.
    """

    def __init__(self, families: Families) -> None:
        self._requests = families.counters(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host; watches too.",
            "code host method",
        )
        self._seconds = families.histograms(
            "rest_client_request_duration_seconds",
            "Request latency in seconds, to the end of the answer. Broken down by verb, and host. Without watches.",
            "host verb",
            bounds=_SECONDS,
        )
        self._limited = families.histograms(
            "rest_client_rate_limiter_duration_seconds",
            "How long this client delayed a request, in seconds: by its limit of requests in flight, by a configured rate, "
            "or because the server asked to retry later. Broken down by verb, and host.",
            "host verb",
            bounds=_SECONDS,
        )
        self._sent = families.histograms(
            "rest_client_request_size_bytes",
            "Request size in bytes. Broken down by verb and host.",
            "host verb",
            bounds=_BYTES,
        )
        self._received = families.histograms(
            "rest_client_response_size_bytes",
            "Response size in bytes. Broken down by verb and host. Without watches.",
            "host verb",
            bounds=_BYTES,
        )

    def requested(
        self, host: str, request: CountedRequest, status: int, seconds: float, received: int | None
    ) -> None:
        """Count a request; see `RequestObserver`."""
        self.watched(host, request.method, status)
        of_kind = host, request.method
        self._seconds[of_kind].observe(seconds)
        self._limited[of_kind].observe(request.limited_seconds)
        self._sent[of_kind].observe(len(request.body or b""))
        if received is not None:
            self._received[of_kind].observe(received)

    def watched(self, host: str, method: str, status: int) -> None:
        """Count a watch request, whose duration is not observed."""
        self._requests[str(status) if status else _NO_ANSWER, host, method].add()
