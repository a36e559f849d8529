"""Gauges that are read from the parts of a scheduler at each scrape."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scheduler.daemon.app.group_queue_state import waiting_groups
from scheduler.engine.queue.in_flight import POD_POPPED
from scheduler.engine.queue.pod_places import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.daemon.app.assembly import Cycles, Parts
    from scheduler.daemon.app.generation import Generation
    from scheduler.daemon.metrics import Metrics

# The labels are those of kube-scheduler's metric.
_WAITING = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)


def show_state(metrics: Metrics, parts: Parts, active: Callable[[], Generation]) -> None:
    """Register the gauges of the cache's contents and of the age of plugins' data."""
    metrics.watch_gauge(
        "scheduler_cache_size",
        "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
        "type",
        parts.cache.counts,
    )
    refreshes = metrics.refreshes
    refreshes.ages = lambda: active().refresh_ages()
    refreshes.nodes_without_data = lambda: active().nodes_without_data(parts.cache.snapshot())


def show_groups(metrics: Metrics, parts: Parts) -> None:
    """Register the gauges of waiting pod groups and their waiting time."""
    metrics.watch_gauges(
        "custom_scheduler_pending_podgroups",
        "Number of groups of pods that wait, by the queue of the pod whose turn comes first.",
        ("queue",),
        lambda: _pending_groups(parts),
    )
    metrics.watch_gauges(
        "custom_scheduler_oldest_podgroup_seconds",
        "For how long the group of pods waits that was to be tried first; 0 if none waits.",
        (),
        lambda: [
            ((), max((parts.clock.monotonic() - since for _, _, since in waiting_groups(parts)), default=0.0))
        ],
    )


def _pending_groups(parts: Parts) -> list[tuple[tuple[str, ...], float]]:
    counts = Counter(place for _, place, _ in waiting_groups(parts))
    return [((place.value,), float(counts[place])) for place in _WAITING]


def show_queue(metrics: Metrics, parts: Parts, cycles: Cycles) -> None:
    """Register the gauges of waiting pods and of work in progress."""
    queue = parts.queue
    metrics.watch_gauge(
        "scheduler_pending_pods",
        "Number of pending pods, by the queue type.",
        "queue",
        lambda: {place.value: queue.count(place) for place in _WAITING},
    )
    metrics.watch_gauge(
        "scheduler_inflight_events",
        "Number of events kept for pods that are being scheduled.",
        "event",
        lambda: {POD_POPPED: 0, **queue.in_flight_events},
    )
    metrics.watch_gauges(
        "custom_scheduler_requeue_backlog_events",
        "Number of events that some of the waiting pods have not been shown yet.",
        (),
        lambda: [((), float(queue.backlog))],
    )
    metrics.watch_gauge(
        "scheduler_goroutines",
        "Number of running tasks split by the work they do.",
        "operation",
        lambda: {"binding": cycles.binding.under_way},
    )
    metrics.watch_gauges(
        "custom_scheduler_long_attempts",
        "Number of attempts under way that need more time than a turn of the loop.",
        (),
        lambda: [((), float(len(cycles.long)))],
    )
    metrics.watch_gauges(
        "scheduler_unschedulable_pods",
        "Number of waiting pods that a plugin rejected in their last attempt, or gates.",
        ("plugin", "profile"),
        queue.rejections.items,
    )
    metrics.watch_gauges(
        "custom_scheduler_paused_nodes",
        "Number of nodes that are avoided for a while because their kubelets rejected pods.",
        (),
        lambda: [((), float(parts.cache.pauses.paused(at=parts.clock.monotonic())))],
    )
