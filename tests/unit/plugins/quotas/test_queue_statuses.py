"""The status of a Queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugins.quotas.ledger import QueueReport
from plugins.quotas.queue_statuses import QueueStatuses
from tests.support.status_access import FakeStatusAccess

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


class Reporting:
    """An instance of the plugin with the given reports."""

    def __init__(self, **reports: QueueReport) -> None:
        self._reports = reports

    def report(self) -> Generator[None, None, Mapping[str, QueueReport]]:
        yield
        return self._reports


async def test_a_queue_without_a_report_keeps_its_status() -> None:
    source = QueueStatuses([Reporting(known=QueueReport(pending=3))], FakeStatusAccess())
    objects: Any = {"known": {"spec": {}}, "unknown": {"spec": {}}}
    status_of = await source.status_of(objects)

    wanted = status_of("known", objects["known"])
    assert wanted is not None
    assert wanted.fields["pending"] == 3
    assert status_of("unknown", objects["unknown"]) is None


async def test_the_pending_pods_of_all_profiles_are_counted() -> None:
    plugins = [Reporting(a=QueueReport(pending=3)), Reporting(a=QueueReport(pending=4))]
    objects: Any = {"a": {"spec": {}}}
    status_of = await QueueStatuses(plugins, FakeStatusAccess()).status_of(objects)

    wanted = status_of("a", objects["a"])
    assert wanted is not None
    assert wanted.fields["pending"] == 7
