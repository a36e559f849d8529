"""What Prometheus reads: kube-scheduler's own metrics, same names, labels and buckets, and a few of ours.

Others are told nothing of Prometheus: each package that is measured says in a Protocol what it tells, and
`Metrics` fulfils them all. Ours have the prefix `custom_scheduler_`.

Source:
    kube-scheduler v1.36, metrics/metrics.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scheduler.framework.points import ExtensionPoint
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.status import Code

# kube-scheduler has no `_created` series, and dashboards that list series would show them.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

_MOST_ATTEMPTS = 15
"""Attempts from here on share one label."""


def _exponential(start: float, factor: float, count: int) -> list[float]:
    # Multiplied step by step as Go does, so that the bounds have the same text.
    buckets = [start]
    while len(buckets) < count:
        buckets.append(buckets[-1] * factor)
    return buckets


class Metrics:
    """Every metric of one scheduler, in a registry of its own, so that two can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges: list[tuple[str, str, str, Callable[[], Mapping[str, float]]]] = []
        self.registry.register(self)
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self._attempts = counter(
            "scheduler_schedule_attempts_total", "Attempts to schedule pods.", ["result", "profile"]
        )
        self._attempt_seconds = histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding).",
            ["result", "profile"],
            _exponential(0.001, 2, 15),
        )
        self._algorithm_seconds = histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds.",
            [],
            _exponential(0.001, 2, 15),
        )
        self._point_seconds = histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            ["extension_point", "status", "profile"],
            _exponential(0.0001, 2, 12),
        )
        self._plugin_seconds = histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point, in one cycle out of ten.",
            ["plugin", "extension_point", "status"],
            _exponential(0.00001, 1.5, 20),
        )
        self._evaluations = counter(
            "scheduler_plugin_evaluation_total",
            "Number of times a plugin was asked; kept verdicts do not count.",
            ["plugin", "extension_point", "profile"],
        )
        self._pod_attempts = histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            [],
            _exponential(1, 2, 5),
        )
        self._sli_seconds = histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first attempt until it is bound.",
            ["attempts"],
            _exponential(0.01, 2, 20),
        )
        self._permit_seconds = histogram(
            "scheduler_permit_wait_duration_seconds",
            "Duration of waiting on permit.",
            ["result"],
            _exponential(0.001, 2, 15),
        )
        self._incoming = counter(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            ["queue", "event"],
        )
        self._hint_seconds = histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Execution time of queueing hints.",
            ["plugin", "event", "hint"],
            _exponential(0.00001, 2, 12),
        )
        self._after_flush = counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods scheduled after they were flushed from the unschedulable pods: an event that was missed.",
            [],
        )
        self._goroutines = gauge(
            "scheduler_goroutines", "Number of running tasks split by the work they do.", ["operation"]
        )
        self._node_loop_seconds = counter(
            "custom_scheduler_node_loop_seconds_total",
            "Time spent in plugins that look at nodes one by one.",
            ["plugin", "extension_point"],
        )
        self._node_loop_nodes = counter(
            "custom_scheduler_node_loop_nodes_total",
            "Nodes shown to plugins that look at them one by one.",
            ["plugin", "extension_point"],
        )
        self._relists = counter(
            "custom_scheduler_relists_total", "Full lists of a kind read from the API server.", ["resource"]
        )
        self._watch_ends = counter(
            "custom_scheduler_watch_ends_total", "Watches that ended, by why.", ["resource", "reason"]
        )
        self._undecodable = counter(
            "custom_scheduler_undecodable_objects_total", "Objects nobody could read.", ["kind"]
        )
        self._bind_seconds = histogram(
            "custom_scheduler_bind_duration_seconds",
            "From wanting to send a Binding to its answer; code 0 is no answer.",
            ["code"],
            _exponential(0.001, 2, 15),
        )
        self._dropped = counter(
            "custom_scheduler_dropped_writes_total", "Writes for which there was no room.", ["queue"]
        )

    # Read when scraped.

    def watch_gauge(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Show numbers that are read when somebody asks: label value -> number."""
        self._gauges.append((name, text, label, read))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of `watch_gauge`; called by the registry."""
        for name, text, label, read in self._gauges:
            family = GaugeMetricFamily(name, text, labels=[label])
            for value, number in read().items():
                family.add_metric([value], number)
            yield family

    # What the runtime tells.

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code, seconds: float) -> None:
        self._point_seconds.labels(point.metric_name, code.value, profile).observe(seconds)

    def plugin(self, plugin: str, point: ExtensionPoint, code: Code, seconds: float) -> None:
        self._plugin_seconds.labels(plugin, point.metric_name, code.value).observe(seconds)

    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None:
        self._evaluations.labels(plugin, point.metric_name, profile).inc()

    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None:
        self._node_loop_seconds.labels(plugin, point.metric_name).inc(seconds)
        self._node_loop_nodes.labels(plugin, point.metric_name).inc(nodes)

    def permit_wait(self, code: Code, seconds: float) -> None:
        self._permit_seconds.labels(code.value).observe(seconds)

    # What the queue tells.

    def incoming(self, queue: str, event: str) -> None:
        self._incoming.labels(queue, event).inc()

    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None:
        self._hint_seconds.labels(plugin, event, result).observe(seconds)

    # What the cycles tell.

    def decided(self, queued: QueuedPodInfo, decision: object, seconds: float) -> None:
        self._algorithm_seconds.observe(seconds)

    def attempted(self, profile: str, result: str, seconds: float) -> None:
        self._attempts.labels(result, profile).inc()
        self._attempt_seconds.labels(result, profile).observe(seconds)

    def bound(self, queued: QueuedPodInfo, seconds_since_first_attempt: float) -> None:
        self._pod_attempts.observe(queued.attempts)
        many = queued.attempts >= _MOST_ATTEMPTS
        label = f"{_MOST_ATTEMPTS}+" if many else str(queued.attempts)
        self._sli_seconds.labels(label).observe(seconds_since_first_attempt)
        if queued.was_flushed_from_unschedulable:
            self._after_flush.inc()

    def binding(self, change: int) -> None:
        self._goroutines.labels("binding").inc(change)

    def undecodable(self, kind: str) -> None:
        self._undecodable.labels(kind).inc()

    # What the client tells.

    def listed(self, resource: object) -> None:
        self._relists.labels(str(resource)).inc()

    def watch_ended(self, resource: object, reason: str) -> None:
        self._watch_ends.labels(str(resource), reason).inc()

    def bind_answered(self, status: int, seconds: float) -> None:
        self._bind_seconds.labels(str(status)).observe(seconds)

    def dropped(self, queue: str) -> None:
        self._dropped.labels(queue).inc()

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: list[str]) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: list[str], buckets: list[float]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def text(self) -> tuple[bytes, dict[str, Any]]:
        """Return what /metrics answers, and its headers."""
        body = prometheus_client.generate_latest(self.registry)
        return body, {"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
