"""Reports of a standby scheduler after it becomes the leader."""

from __future__ import annotations

from typing import Any

from scheduler.engine.cycle.reporting import Reporter
from scheduler.framework import Status
from tests.support.builders import pod


class Heard:
    """Records events and patches."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def of(self, scheduler_name: str) -> Heard:
        return self

    def record(self, regarding: object, *, note: str, **_: Any) -> None:
        self.notes.append(note)

    def patch_pod_status(self, *_: Any, **__: Any) -> bool:
        return True


class Standby:
    def __init__(self) -> None:
        self.heard, self.leading = Heard(), False
        self.seen = {"default/web": pod("web")}
        self.reporter = Reporter(
            self.heard,
            self.heard,
            is_leading=lambda: self.leading,
            newest=self.seen.get,
        )
        self.reporter.failed("custom-scheduler", self.seen["default/web"], Status.failed("unreadable"))

    def lead(self) -> list[str]:
        self.leading = True
        self.reporter.catch_up()
        return self.heard.notes


def test_a_finding_that_still_holds_is_reported_once_it_leads() -> None:
    assert Standby().lead() == ["unreadable"]


def test_a_finding_replaced_by_a_decodable_version_is_not_reported() -> None:
    standby = Standby()
    standby.seen["default/web"] = pod("web", node="n1")

    assert standby.lead() == []


def test_a_finding_replaced_by_an_undecodable_version_is_not_reported() -> None:
    standby = Standby()
    standby.reporter.outdated("default/web")

    assert standby.lead() == []
