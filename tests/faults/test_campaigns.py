"""Campaigns of random faults break no promise, on some seeds; `make soak` runs hundreds."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.faults.campaign import run
from tests.faults.text_report import told
from tests.support import virtual_time

# The shortest seeds in which every actor acts, with every fault. The tests of recordings play and check others.
SEEDS = {
    "pods": (1, 2, 3, 4, 5, 6, 9, 10, 12, 16, 18, 21, 22, 26, 31, 32, 34, 35, 37, 38),
    "groups": (1, 2, 5, 6, 7, 8),
    "plugins": (1, 2, 4, 5, 8, 9, 10, 11, 12),
    "shards": (10, 12, 14),
}
IN_PARTS = (("groups", 40285),)
"""Seeds that found something once, where all work is sliced."""


@pytest.mark.parametrize(
    ("kind", "seed", "is_all_in_parts"),
    [
        *((kind, seed, False) for kind, seeds in SEEDS.items() for seed in seeds),
        *((kind, seed, True) for kind, seed in IN_PARTS),
    ],
)
def test_a_campaign_of_faults_breaks_no_promise(kind: str, seed: int, is_all_in_parts: bool) -> None:
    report = run(seed, kind, is_all_in_parts=is_all_in_parts)

    assert not report.findings, told(report)


def test_a_campaign_leaves_nothing_behind() -> None:
    run(1)
    run(1)  # all that is imported and kept once is there
    before = gc.get_freeze_count()

    run(1)
    run(1)

    assert gc.get_freeze_count() - before < 5000  # objects


def test_an_endless_task_ends_a_campaign() -> None:
    async def busy() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="goes on for ever at"):
        virtual_time.run(busy())
