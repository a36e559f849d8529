"""How much is logged, and how often."""

from __future__ import annotations

import io
import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.daemon.logs import LogFormat, Repetitions, configure_logging, level_of
from scheduler.framework.status import Status
from tests.support import virtual_time
from tests.support.builders import pod
from tests.support.scripted_plugins import NodeFilter
from tests.unit.engine.cycle.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(("verbosity", "is_told"), [(0, False), (1, False), (2, True), (4, True)])
def test_bound_and_waiting_pods_are_logged_from_verbosity_2_on(
    verbosity: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        no = Status.unschedulable("no")
        async with Cluster(
            NodeFilter("Picky", lambda _state, pod, _node: no if pod.name == "big" else None)
        ).running() as cluster:
            cluster.api.create(pod("big"))
            cluster.api.create(pod("web"))
            await cluster.until(lambda: cluster.node_of("web") and not cluster.binding.under_way)

    with caplog.at_level(level_of(verbosity)):
        virtual_time.run(scenario())

    for message, key in (
        ("Successfully bound pod to node", "default/web"),
        ("Unable to schedule pod; no fit; waiting", "default/big"),
    ):
        shown = {record.__dict__["pod"] for record in caplog.records if record.getMessage() == message}
        assert shown == ({key} if is_told else set()), message
    assert level_of(verbosity) <= logging.INFO


class Log:
    """What a plugin's failures come to, as lines of JSON.

    Attributes:
        now: seconds, as the log sees them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._written = 0.0, io.StringIO()
        monkeypatch.setattr("scheduler.daemon.logs.Repetitions", lambda: Repetitions(lambda: self.now))
        configure_logging(logging.INFO, LogFormat.JSON, self._written)

    def fail(self, plugin: str = "Mine", point: str = "Filter", text: str = "no licence") -> None:
        try:
            int(text)
        except ValueError:
            logging.getLogger("calls").exception(
                "Plugin failed", extra={"plugin": plugin, "extension_point": point}
            )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._written.getvalue().splitlines()]


@contextmanager
def the_root_logger_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    with the_root_logger_as_it_was():
        yield Log(monkeypatch)


def test_a_traceback_is_logged_once_and_then_counted_once_a_minute(log: Log) -> None:
    for _ in range(100):
        log.fail()
    log.now = 60.0
    for number in range(100):
        log.fail(text=f"no licence {number}")

    first, later = log.lines()
    assert "in fail\n    int(text)" in first["exc_info"]
    assert "exc_info" not in later
    assert (later["plugin"], later["times"]) == ("Mine", 100)
    assert later["error"] == "ValueError: invalid literal for int() with base 10: 'no licence 0'"


def test_a_traceback_is_logged_again_after_an_hour(log: Log) -> None:
    log.fail()
    log.now = 3600.0
    log.fail()

    assert ["exc_info" in line for line in log.lines()] == [True, True]


def test_each_plugin_point_and_line_has_its_own_traceback(log: Log) -> None:
    log.fail()
    log.fail(plugin="Yours")
    log.fail(point="Score")
    try:
        int("no licence")
    except ValueError:
        logging.getLogger("calls").exception(
            "Plugin failed", extra={"plugin": "Mine", "extension_point": "Filter"}
        )

    assert ["exc_info" in line for line in log.lines()] == [True] * 4


def test_lines_without_a_traceback_are_all_logged(log: Log) -> None:
    for number in range(3):
        logging.getLogger("failure").error("Error scheduling pod; retrying", extra={"pod": f"web-{number}"})

    assert [line["pod"] for line in log.lines()] == ["web-0", "web-1", "web-2"]


def test_the_number_of_remembered_tracebacks_is_bounded() -> None:
    seen = Repetitions(lambda: 0.0)
    for number in range(5000):
        try:
            int("no licence")
        except ValueError as error:
            record = logging.makeLogRecord(
                {"msg": str(number), "exc_info": (ValueError, error, error.__traceback__)}
            )
            assert seen.filter(record)

    assert len(seen._shown) == 1000
