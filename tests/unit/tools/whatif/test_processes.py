"""The progress of long work is shown without a terminal too."""

from __future__ import annotations

import os
import signal

import pytest

from scheduler.tools.whatif import processes
from scheduler.tools.whatif.processes import Progress, ProgressLines, given, side_by_side


def test_a_line_each_minute_tells_the_share_and_the_time_left() -> None:
    lines = ProgressLines(Progress("pods", 2000), began=100.0)

    assert lines.line(10, 159.0) == ""
    assert lines.line(500, 160.0) == "25% of 2,000 pods, about 0:03:00 left"
    assert lines.line(800, 219.0) == ""
    assert lines.line(1000, 220.0) == "50% of 2,000 pods, about 0:02:00 left"


def test_before_the_first_result_no_time_is_guessed() -> None:
    lines = ProgressLines(Progress("pods", 2000), began=0.0)

    assert lines.line(0, 60.0) == "0% of 2,000 pods"


def test_work_without_units_has_a_line_too() -> None:
    assert ProgressLines(Progress("pods", 0), began=0.0).line(0, 60.0) == "0% of 0 pods"


def blocked() -> None:
    """Block until an interrupt, and then interrupt this process again."""
    into, never = given()
    try:
        os.write(into, b"begun ")
        os.read(never, 1)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        os.write(into, b"interrupted ")
        raise


def test_an_interrupt_reaches_a_running_call_once_and_no_other_call_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, into = os.pipe()
    never, _open = os.pipe()

    def interrupted(*_: object) -> None:
        assert os.read(said, 100) == b"begun "
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "wait", interrupted)

    with pytest.raises(KeyboardInterrupt):
        side_by_side((into, never), [blocked, blocked, blocked], processes=1)

    os.close(into)  # the end of the pipe is reached when the process has ended
    assert b"".join(iter(lambda: os.read(said, 100), b"")) == b"interrupted "
    for each in (said, never, _open):
        os.close(each)
