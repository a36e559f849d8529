"""Campaigns of random faults break no promise, on some seeds; `make soak` runs hundreds."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.faults.campaign import run
from tests.faults.text_report import told
from tests.support import virtual_time

# The shortest seeds in which every actor acts, with every fault. The tests of recordings play and check others.
SEEDS = (1, 2, 3, 4, 5, 6, 9, 10, 12, 16, 18, 21, 22, 26, 31, 32, 34, 35, 37, 38)
SEEDS_OF_GROUPS = (1, 2, 5, 6, 7, 8)
SEEDS_OF_PLUGINS = (1, 2, 4, 5, 8, 9, 10, 11, 12)
SEEDS_OF_SHARDS = (10, 12, 14)
IN_PARTS = (("groups", 40285),)
"""Seeds that found something once."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_campaign_of_faults_breaks_no_promise(seed: int) -> None:
    report = run(seed)

    assert not report.findings, told(report)


@pytest.mark.parametrize("seed", SEEDS_OF_GROUPS)
def test_a_campaign_of_faults_breaks_no_promise_to_groups(seed: int) -> None:
    report = run(seed, "groups")

    assert not report.findings, told(report)


@pytest.mark.parametrize("seed", SEEDS_OF_PLUGINS)
def test_a_storm_breaks_no_promise_to_users_of_optional_plugins(seed: int) -> None:
    report = run(seed, "plugins")

    assert not report.findings, told(report)


@pytest.mark.parametrize("seed", SEEDS_OF_SHARDS)
def test_a_campaign_of_faults_breaks_no_promise_of_several_active_replicas(seed: int) -> None:
    report = run(seed, "shards")

    assert not report.findings, told(report)


@pytest.mark.parametrize(("kind", "seed"), IN_PARTS)
def test_a_campaign_of_faults_breaks_no_promise_where_all_work_is_sliced(kind: str, seed: int) -> None:
    report = run(seed, kind, is_all_in_parts=True)

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
