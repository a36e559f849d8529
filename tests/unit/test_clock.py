from __future__ import annotations

import time

import pytest

from scheduler.clock import SystemClock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="another system")
def test_monotonic_time_continues_while_the_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)
