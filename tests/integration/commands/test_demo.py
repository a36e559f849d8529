"""The demo shows a first-time user how the daemon decides, and how to ask for the reason."""

from __future__ import annotations

import re
import sys

import pytest

from scheduler.tools.demo.workloads import BATCH, TOO_BIG
from tests.support.commands import run_command

SECONDS = 120


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
def test_the_demo_shows_placement_spreading_preemption_and_a_waiting_pod(version: str):
    done = run_command("demo", "--exit", "--emulated-version", version, timeout_seconds=SECONDS)

    shown = done.stdout.decode()
    assert done.returncode == 0, shown + done.stderr.decode()
    assert f"    {sys.executable} -m scheduler explain --server http://127.0.0.1:" in shown
    assert sum(f"Preempted        {name}" in shown for name in BATCH) == 1
    assert "20 on " in shown
    assert [shown.count(f"{number} in") for number in (6, 7)] == [1, 2]  # 20 over three zones
    assert f"Why does {TOO_BIG} wait?" in shown
    assert f"Pod default/{TOO_BIG} does not fit on any of " in shown
    # The last node may come after the attempt.
    assert re.search(r"2[78] nodes: NodeResourcesFit: Insufficient cpu", shown)
    assert shown.rstrip().endswith("Every pod is where it should be.")
