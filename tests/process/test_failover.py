"""Short leases, so that it takes seconds; `python -m tests.process` has the usual ones, and more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.process.faults import play
from tests.process.world import SHORT

if TYPE_CHECKING:
    from pathlib import Path

BUSY_MACHINE_SECONDS = 6.0
TAKEN_OVER = SHORT.lease + BUSY_MACHINE_SECONDS


@pytest.mark.parametrize(
    ("fault", "replicas", "at_most_seconds"),
    [
        ("killed", 3, TAKEN_OVER),
        ("stood still", 2, TAKEN_OVER),
        ("eaten", 2, TAKEN_OVER),
        ("server restarted", 2, 5.0 + BUSY_MACHINE_SECONDS),
        ("server away", 2, 5.0 + BUSY_MACHINE_SECONDS),
    ],
)
def test_pods_are_placed_again_in_time_and_once_each(
    fault: str, replicas: int, at_most_seconds: float, tmp_path: Path
) -> None:
    it = asyncio.run(play(tmp_path, fault, replicas=replicas, times=SHORT))

    assert (it.lost, it.double, it.excess) == (0, 0, 0)
    assert it.late == 0, "bindings of one that did not lead"
    assert it.failover_seconds <= at_most_seconds
