"""Metrics with the names of client-go: requests to the API server, and the queues of writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scheduler.daemon.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from collections.abc import Hashable, Sized

    from scheduler.clock import Clock
    from scheduler.daemon.metrics.families import Distribution, Families, Number

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


_BOUNDS = exponential_buckets(10e-9, 10, 10)


class WorkQueueMetrics:
    """Metrics of queues by name.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-base/metrics/prometheus/workqueue/metrics.go.
    """

    def __init__(self, families: Families) -> None:
        self._queues: dict[str, tuple[Sized, QueueTimes]] = {}
        self._adds = families.counters(
            "workqueue_adds_total", "Total number of adds handled by workqueue", "name"
        )
        self._retries = families.counters(
            "workqueue_retries_total", "Total number of retries handled by workqueue", "name"
        )
        self._waited = families.histograms(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            "name",
            bounds=_BOUNDS,
        )
        self._worked = families.histograms(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            "name",
            bounds=_BOUNDS,
        )
        families.read_gauges(
            "workqueue_depth",
            "Current depth of workqueue",
            ("name",),
            lambda: [((name,), float(len(queue))) for name, (queue, _) in self._queues.items()],
        )
        families.read_gauges(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work is in progress and hasn't been observed by work_duration. Large values indicate "
            "stuck writes.",
            ("name",),
            lambda: [((name,), sum(times.under_way())) for name, (_, times) in self._queues.items()],
        )
        families.read_gauges(
            "workqueue_longest_running_processor_seconds",
            "How many seconds the longest of the items that are being processed has taken so far.",
            ("name",),
            lambda: [
                ((name,), max(times.under_way(), default=0.0)) for name, (_, times) in self._queues.items()
            ],
        )

    def of(self, name: str, queue: Sized, clock: Clock) -> QueueTimes:
        """Add a queue, whose length is the number of waiting items, and return the observer of its items."""
        times = QueueTimes(
            clock, self._adds[name], self._retries[name], self._waited[name], self._worked[name]
        )
        self._queues[name] = queue, times
        return times


class QueueTimes:
    """Observes the items of one queue, by any keys; implements `client.background.WorkObserver`."""

    def __init__(
        self, clock: Clock, adds: Number, retries: Number, waited: Distribution, worked: Distribution
    ) -> None:
        self._clock = clock
        self._adds, self._retries = adds, retries
        self._waited, self._worked = waited, worked
        self._added_at: dict[Hashable, float] = {}
        self._taken_at: dict[Hashable, float] = {}

    def under_way(self) -> list[float]:
        """Return for how many seconds each item has been processed."""
        now = self._clock.monotonic()
        return [now - taken for taken in self._taken_at.values()]

    def added(self, key: Hashable) -> None:
        if key not in self._added_at:
            self._adds.add()
            self._added_at[key] = self._clock.monotonic()

    def withdrawn(self, key: Hashable) -> None:
        del self._added_at[key]

    def taken(self, key: Hashable) -> None:
        now = self._taken_at[key] = self._clock.monotonic()
        self._waited.observe(now - self._added_at.pop(key))

    def done(self, key: Hashable) -> None:
        self._worked.observe(self._clock.monotonic() - self._taken_at.pop(key))

    def retried(self, key: Hashable) -> None:
        self._retries.add()
        self.done(key)
