"""The progress of long work is shown without a terminal too."""

from __future__ import annotations

from scheduler.tools.whatif.processes import Progress, ProgressLines


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
