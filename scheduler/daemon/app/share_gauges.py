"""Gauges of queues and quotas that are read at each scrape of the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.daemon.app.object_statuses import active_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from plugins.fair_queues.report import QueueReport
    from scheduler.daemon.app.assembly import Parts
    from scheduler.daemon.app.queue_statuses import QueueStatuses
    from scheduler.daemon.app.quota_statuses import QuotaStatuses
    from scheduler.daemon.metrics import Metrics


def show_shares(
    metrics: Metrics,
    parts: Parts,
    quotas: QuotaStatuses,
    queues: QueueStatuses,
    is_leading: Callable[[], bool],
) -> None:
    """Register the gauges of queues and quotas: one value for each queue or namespace, and none from standby replicas."""

    def of_queues(read: Callable[[QueueReport], float]) -> Callable[[], Mapping[str, float]]:
        def now() -> Mapping[str, float]:
            counts = is_leading() and any(True for _ in active_plugins(parts, queues.plugin))
            return {name: read(its) for name, its in queues.reports.items()} if counts else {}

        return now

    def of_quotas() -> Mapping[str, float]:
        counts = is_leading() and any(True for _ in active_plugins(parts, quotas.plugin))
        return quotas.parts_of_max if counts else {}

    shown: Iterable[tuple[str, str, str, Callable[[], Mapping[str, float]]]] = (
        (
            "custom_scheduler_queue_longest_wait_seconds",
            "For how long the pod of a queue has waited that has waited longest, those left out that no node could run.",
            "queue",
            of_queues(lambda its: its.longest_wait_seconds),
        ),
        (
            "custom_scheduler_queue_used_share",
            "The greatest part of the cluster that a queue's pods take of any resource, in [0, 1].",
            "queue",
            of_queues(lambda its: its.used_share),
        ),
        (
            "custom_scheduler_queue_fair_share",
            "The greatest part of the cluster that fairness gives a queue of any resource, in [0, 1].",
            "queue",
            of_queues(lambda its: its.fair_part),
        ),
        (
            "custom_scheduler_quota_used_ratio",
            "The greatest part of its quota's max that a namespace uses of any resource.",
            "namespace",
            of_quotas,
        ),
    )
    for name, text, label, read in shown:
        metrics.watch_gauge(name, text, label, read)
