"""Metrics beside kube-scheduler's own: those of client-go, and those that only this scheduler has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from scheduler.daemon.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized

    from scheduler.clock import Clock
    from scheduler.daemon.metrics.families import Distribution, Families, Number

    Numbers = Iterable[tuple[tuple[str, ...], float]]

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


RELOADED, REJECTED = "reloaded", "rejected"


class ConfigurationMetrics:
    """Metrics of hot reload; all but the counter have no series if no configuration is watched.

    Attributes:
        restart_needed: paths of fields whose new value needs a restart.
        watch_up: source, `file` or `configmap` -> whether its changes are currently seen.
    """

    def __init__(self, families: Families) -> None:
        self.restart_needed: Sequence[str] = ()
        self.watch_up: dict[str, bool] = {}
        self._reloads = families.counters(
            "custom_scheduler_config_reloads_total",
            "Configurations offered to the running scheduler, by result.",
            "result",
        )
        self._successful = families.gauges(
            "custom_scheduler_config_last_reload_successful",
            "Whether the last offered configuration is active.",
        )
        self._succeeded_at = families.gauges(
            "custom_scheduler_config_last_reload_success_timestamp_seconds",
            "When the active configuration was loaded.",
        )
        self._hash = families.gauges(
            "custom_scheduler_config_hash",
            "A hash of the active configuration and its plugin files, as a number: equal for equal ones.",
        )
        families.read_gauges(
            "custom_scheduler_config_restart_needed",
            "Fields of the configuration whose new value needs a restart.",
            ("field",),
            lambda: [((path,), 1.0) for path in self.restart_needed],
        )
        families.read_gauges(
            "custom_scheduler_config_watch_up",
            "Whether changes of the configuration are seen.",
            ("source",),
            lambda: [((source,), float(up)) for source, up in self.watch_up.items()],
        )
        for result in (RELOADED, REJECTED):
            self._reloads[result].add(0)

    def activated(self, digest: bytes, at: float) -> None:
        """Record the active configuration, by its digest, and its activation time in Unix seconds."""
        self._successful[()].value = 1.0
        self._succeeded_at[()].value = at
        self._hash[()].value = float(int.from_bytes(digest[:6]))  # 48 bits: a float holds them exactly

    def reloaded(self) -> None:
        """Count a configuration that was loaded."""
        self._reloads[RELOADED].add()

    def rejected(self) -> None:
        """Count a configuration that was rejected."""
        self._successful[()].value = 0.0
        self._reloads[REJECTED].add()


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


_LAG_BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""In seconds. 0.1 is the documented maximum for objects of tenants."""


class LoopMetrics:
    """Metrics of the loop that all decisions, watches, bindings, HTTP endpoints and the lease share."""

    def __init__(self, families: Families) -> None:
        self._lag = families.histograms(
            "custom_scheduler_loop_lag_seconds",
            "How late a task of the main loop ran, measured ten times a second, in seconds.",
            bounds=_LAG_BOUNDS,
        )[()]
        self._lag_cpu = families.histograms(
            "custom_scheduler_loop_lag_cpu_seconds",
            "How much of that the main loop had the processor, at most, in seconds. In the rest it waited for the "
            "processor or for a disk.",
            bounds=_LAG_BOUNDS,
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

    def lagged(self, seconds: float, cpu_seconds: float) -> None:
        """Record how late a task ran, and how much of that time the loop had the processor."""
        self._lag.observe(seconds)
        self._lag_cpu.observe(cpu_seconds)

    def stalled(self, holder: str, seconds: float) -> None:
        """Record that something of a kind held the loop."""
        self._stalls[holder].add()
        self._longest[holder] = max(seconds, self._longest.get(holder, 0.0))


class RefreshMetrics:
    """Metrics of plugins with background data; without such plugins there are no series.

    Attributes:
        ages: ((plugin, profile), seconds since the last successful refresh) of the active plugins.
        nodes_without_data: ((plugin, profile), number of nodes) of plugins with data about nodes.
    """

    def __init__(self, families: Families) -> None:
        self.ages: Callable[[], Numbers] = lambda: ()
        self.nodes_without_data: Callable[[], Numbers] = lambda: ()
        self._refreshes = families.counters(
            "custom_scheduler_plugin_refresh_total",
            "Number of refreshes of a plugin's background data.",
            "plugin profile",
        )
        self._failures = families.counters(
            "custom_scheduler_plugin_refresh_failures_total",
            "Number of failed refreshes of a plugin's background data.",
            "plugin profile",
        )
        families.read_gauges(
            "custom_scheduler_plugin_refresh_age_seconds",
            "Time since a plugin last refreshed its background data, or since its first try.",
            ("plugin", "profile"),
            lambda: self.ages(),  # noqa: PLW0108 - set later
        )
        families.read_gauges(
            "custom_scheduler_plugin_refresh_nodes_without_data",
            "Nodes without data, or without recent data, in a plugin's background data.",
            ("plugin", "profile"),
            lambda: self.nodes_without_data(),  # noqa: PLW0108 - set later
        )

    def began(self, plugin: str, profile: str) -> None:
        """Show the counters of a plugin before its first refresh."""
        self._refreshes[plugin, profile].add(0)
        self._failures[plugin, profile].add(0)

    def refreshed(self, plugin: str, profile: str) -> None:
        """Count a successful refresh."""
        self._refreshes[plugin, profile].add()

    def failed(self, plugin: str, profile: str) -> None:
        """Count a failed refresh."""
        self._refreshes[plugin, profile].add()
        self._failures[plugin, profile].add()


class ShardMetrics:
    """Metrics of a replica that shares the nodes with others; without sharding there are no series.

    Attributes:
        states: state of a bucket -> the number of buckets in it.
    """

    def __init__(self, families: Families) -> None:
        self.states: Callable[[], Mapping[str, int]] = dict
        families.read_gauges(
            "custom_scheduler_shard_buckets",
            "Number of buckets of nodes and pods by their state for this replica: others, claimed, in use, releasing, expired.",
            ("state",),
            lambda: [((state,), float(count)) for state, count in self.states().items()],
        )


class WhatIfMetrics:
    """Metrics of what-if requests."""

    def __init__(self, families: Families) -> None:
        self._requests = families.counters(
            "custom_scheduler_whatif_requests_total",
            "What-if requests, by result: success, invalid, busy (another one was being answered), unavailable (the cluster "
            "was not read yet, or too little memory was left), late (the time limit was reached), left (the client closed "
            "the connection), failed.",
            "result",
        )
        self._seconds = families.histograms(
            "custom_scheduler_whatif_duration_seconds",
            "Latency of answers to what-if requests that were evaluated, in seconds.",
            bounds=_SECONDS,
        )

    def answered(self, result: str, seconds: float) -> None:
        """Count a request."""
        self._requests[result].add()
        if result in {"success", "late", "failed"}:
            self._seconds[()].observe(seconds)


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
