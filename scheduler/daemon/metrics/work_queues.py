"""Metrics of the queues of writes, with the names of client-go's work queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.daemon.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from collections.abc import Hashable, Sized

    from scheduler.clock import Clock
    from scheduler.daemon.metrics.families import Distribution, Families, Number

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
