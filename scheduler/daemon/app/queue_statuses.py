"""The status of Queues while the plugin FairQueues is active: their use, and whether they are accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plugins.fair_queues.fair_queues import FairQueues
from plugins.fair_queues.queues import QUEUES as KIND
from scheduler.daemon.app.object_statuses import (
    ACCEPTED,
    Acceptance,
    WantedStatus,
    active_plugins,
    named_in,
    run_in_slices,
    written,
)
from scheduler.kube.client.resources import QUEUES

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from plugins.fair_queues.report import QueueReport
    from scheduler.daemon.app.assembly import Parts
    from scheduler.daemon.app.object_statuses import StatusOf
    from scheduler.snapshot import Objects


class QueueStatuses:
    """Computes the statuses of Queues.

    Args:
        parts: the active profiles.

    Attributes:
        reports: name -> report, from the last computation.
    """

    resource = QUEUES
    kind = KIND
    plugin = FairQueues.name
    condition_types = frozenset({ACCEPTED})

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.reports: Mapping[str, QueueReport] = {}

    async def status_of(self, objects: Objects) -> StatusOf:
        reports = self.reports = await run_in_slices(queue_reports(self._parts))

        def status_of(name: str, obj: Mapping[str, Any]) -> WantedStatus | None:
            report = reports.get(name)
            return None if report is None else status_of_report(report, obj.get("spec") or {})

        return status_of


def queue_reports(parts: Parts) -> Generator[None, None, Mapping[str, QueueReport]]:
    """Return the reports of queues by name, in steps; empty if the plugin is not active.

    Pods wait in their own profile: if several profiles have the plugin, the pending pods of all are counted, and the fair
    shares are those of the first.
    """
    found: dict[str, QueueReport] = {}
    for plugin in list(active_plugins(parts, FairQueues.name)):
        assert isinstance(plugin, FairQueues), "the name is its own"
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
    fields = {
        "used": written(report.used, named_in(spec)),
        "fairShare": written(report.fair_share, named_in(spec)),
        "pending": report.pending,
        "dominantShare": f"{100 * report.used_share:.1f}%",
    }
    return WantedStatus(fields, (verdict.condition(),))
