"""Short leases, so that it takes seconds; `python -m tests.process` has the usual ones, and more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.process.faults import play
from tests.process.world import SHORT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

BUSY_MACHINE_SECONDS = 6.0
TAKEN_OVER = SHORT.lease + BUSY_MACHINE_SECONDS


RESTARTED = 5.0 + BUSY_MACHINE_SECONDS


@pytest.mark.parametrize(
    ("replicas", "faults"),
    [
        (3, {"killed": TAKEN_OVER}),
        (2, {"stood still": TAKEN_OVER, "eaten": TAKEN_OVER}),
        (2, {"server restarted": RESTARTED, "server away": RESTARTED}),
    ],
)
async def test_pods_are_placed_again_in_time_and_once_each(
    replicas: int, faults: dict[str, float], tmp_path: Path
) -> None:
    async for it in play(tmp_path, *faults, replicas=replicas, times=SHORT):
        assert (it.lost, it.double, it.excess) == (0, 0, 0), it
        assert it.late == 0, f"bindings of one that did not lead: {it}"
        assert it.failover_seconds <= faults[it.fault], it
