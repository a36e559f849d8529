"""The status of Queues while the plugin FairQueues is active: their use, and whether they are accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from plugins.quotas.history import AVERAGE, AVERAGE_TIME
from plugins.quotas.queues import QUEUES
from scheduler.clock import rfc3339
from scheduler.framework import WantedStatus
from scheduler.framework.status_sources import (
    ACCEPTED,
    Acceptance,
    StatusSource,
    named_in,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from plugins.quotas.ledger import QueueReport
    from scheduler.framework.status_sources import StatusAccess, StatusOf
    from scheduler.snapshot import Objects

_GAUGES: Mapping[str, tuple[str, Callable[[QueueReport], float | None]]] = {
    "custom_scheduler_queue_longest_wait_seconds": (
        "For how long the pod of a queue has waited that has waited longest, those left out that no node could run.",
        lambda its: its.longest_wait_seconds,
    ),
    "custom_scheduler_queue_used_share": (
        "The greatest part of the cluster that a queue's pods take of any resource, in [0, 1].",
        lambda its: its.used_share,
    ),
    "custom_scheduler_queue_fair_share": (
        "The greatest part of the cluster that fairness gives a queue of any resource, in [0, 1].",
        lambda its: its.fair_part,
    ),
    "custom_scheduler_queue_average_share": (
        "The average used share of a queue with the half-life of the history, in [0, 1]; without a history none.",
        lambda its: its.average_share,
    ),
}


class Reporting(Protocol):
    """An instance of the plugin."""

    def report(self) -> Generator[None, None, Mapping[str, QueueReport]]:
        """Return the report of each queue, by name, in steps."""
        ...


class QueueStatuses(StatusSource):
    """Computes the statuses of Queues, and shows their shares.

    Args:
        plugins: the instances in the active profiles.
        access: computes in slices.
    """

    kind = QUEUES
    object_kind = "Queue"
    condition_types = frozenset({ACCEPTED})

    def __init__(self, plugins: Iterable[Reporting], access: StatusAccess) -> None:
        self._plugins, self._access = plugins, access
        self._gauges = [
            (access.metrics.gauge(name, text, "queue"), read) for name, (text, read) in _GAUGES.items()
        ]

    def ended(self) -> None:
        self._show({})

    def _show(self, reports: Mapping[str, QueueReport]) -> None:
        for gauge, read in self._gauges:
            values = {(name,): read(its) for name, its in reports.items()}
            gauge.replace({key: value for key, value in values.items() if value is not None})

    async def status_of(self, objects: Objects) -> StatusOf:
        reports = await self._access.in_slices(queue_reports(self._plugins))
        self._show(reports)

        def status_of(name: str, obj: Mapping[str, Any]) -> WantedStatus | None:
            report = reports.get(name)
            return None if report is None else status_of_report(report, obj.get("spec") or {})

        return status_of


def queue_reports(plugins: Iterable[Reporting]) -> Generator[None, None, Mapping[str, QueueReport]]:
    """Return the reports of queues by name, in steps.

    Pods wait in their own profile: if several profiles have the plugin, the pending pods of all are counted, and the fair
    shares are those of the first.
    """
    found: dict[str, QueueReport] = {}
    for plugin in plugins:
        for name, its in (yield from plugin.report()).items():
            known = found.get(name)
            if known is None:
                found[name] = its
                continue
            longest = max(known.longest_wait_seconds, its.longest_wait_seconds)
            pending = known.pending + its.pending
            found[name] = replace(known, pending=pending, longest_wait_seconds=longest)
    return found


def status_of_report(report: QueueReport, spec: Mapping[str, object]) -> WantedStatus:
    """Return a queue's status."""
    fault = report.fault
    verdict = Acceptance("Valid") if fault is None else Acceptance(fault.reason, str(fault))
    fields: dict[str, Any] = {
        "used": written(report.used, named_in(spec)),
        "fairShare": written(report.fair_share, named_in(spec)),
        "pending": report.pending,
        "dominantShare": f"{100 * report.used_share:.1f}%",
    }
    if report.average_share is not None and report.average_time is not None:
        fields[AVERAGE] = f"{100 * report.average_share:.2f}%"
        fields[AVERAGE_TIME] = rfc3339(report.average_time)
    return WantedStatus(fields, (verdict.condition(),))
