"""A plugin that does not return to a command is reported once, with its position."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.loop_watch import PluginWatch, plugin_call_in, stack_of
from scheduler.engine.runtime.budget import LoopBudget
from tests.support.manual_clock import ManualClock
from tests.support.scripted_plugins import Filter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import pytest


class Watched:
    """A plugin whose calls let the test inspect it, as the thread does."""

    def __init__(self) -> None:
        self.clock = ManualClock(0.0)
        self.watch = PluginWatch(self.clock.monotonic)

    def call(self, inside: Callable[[], Any]) -> None:
        LoopBudget().call(Filter("Slow"), inside)

    def look(self, *, after: float) -> None:
        self.clock.advance(after)
        self.watch.look(sys._getframe())


def test_a_long_call_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()

    def goes_on() -> None:
        for _ in range(20):
            it.look(after=0.5)

    it.call(goes_on)

    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message == "A plugin does not return; Ctrl-C ends this command"
    assert "in goes_on" in vars(record)["stack"]


def test_many_short_calls_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    for _ in range(20):
        it.call(lambda: it.look(after=2.5))

    assert not caplog.records


def test_long_work_outside_plugins_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    for _ in range(20):
        it.look(after=2.5)

    assert not caplog.records


def test_the_stack_of_a_plugin_begins_with_the_plugin() -> None:
    found: list[str] = []

    def library() -> None:
        found.append(stack_of(sys._getframe()))

    LoopBudget().call(Filter("Slow"), library)

    [reported] = found
    assert reported.startswith(f'  File "{__file__}"')
    assert reported.count("File ") == 1


def test_a_stack_is_short_however_deep_it_is() -> None:
    def deep(levels: int) -> FrameType:
        return deep(levels - 1) if levels else sys._getframe()

    assert stack_of(deep(500)).count("deep") < 50
    assert plugin_call_in(deep(500)) is None
