"""Campaigns: what a storm of faults must not break, on a hundred seeds and more."""

from __future__ import annotations

import pytest

from tests.faults.campaign import run
from tests.faults.telling import told

SEEDS = range(1, 121)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_breaks_no_promise(seed: int) -> None:
    report = run(seed)

    assert not report.findings, told(report)
