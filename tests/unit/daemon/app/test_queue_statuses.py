"""The status of a Queue."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from plugins.fair_queues.report import QueueReport
from scheduler.daemon.app import queue_statuses
from scheduler.daemon.app.queue_statuses import QueueStatuses
from tests.support.virtual_time_test import virtually

if TYPE_CHECKING:
    import pytest


@virtually
async def test_a_queue_without_a_report_keeps_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def reports(_parts: object) -> Any:
        yield
        return {"known": QueueReport(pending=3)}

    monkeypatch.setattr(queue_statuses, "queue_reports", reports)
    parts: Any = SimpleNamespace()
    objects: Any = {"known": {"spec": {}}, "unknown": {"spec": {}}}
    status_of = await QueueStatuses(parts).status_of(objects)

    wanted = status_of("known", objects["known"])
    assert wanted is not None
    assert wanted.fields["pending"] == 3
    assert status_of("unknown", objects["unknown"]) is None
