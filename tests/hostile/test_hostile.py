"""Each scenario at small scale: nothing is asserted that a busy machine can miss."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.hostile.observer import Observed
from tests.hostile.result import Result, table
from tests.hostile.runner import running
from tests.hostile.scenarios import SCENARIOS
from tests.hostile.schedulers import ROOT
from tests.hostile.stage import SMALL
from tests.support.commands import forked_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.hostile.scenario import Scenario


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Scenario], Result]]:
    """Plays scenarios on one simulated API server, with one scheduler for all that want the same configuration."""
    folder = tmp_path_factory.mktemp("hostile")
    with asyncio.Runner() as loop:
        stack = AsyncExitStack()
        played = running(SMALL, folder, keeps=True, program=[forked_program()])
        runner = loop.run(stack.enter_async_context(played))
        try:
            yield lambda scenario: loop.run(runner.play(scenario))
        finally:
            loop.run(stack.aclose())


@pytest.mark.parametrize("name", [it.name for it in sorted(SCENARIOS.values(), key=lambda it: it.kind)])
def test_the_scheduler_binds_innocent_pods_and_keeps_running(
    name: str, play: Callable[[Scenario], Result]
) -> None:
    scenario = SCENARIOS[name]
    result = play(scenario)

    assert result.broken == []
    assert result.ends == []
    assert len(result.bound) == len(result.latencies) >= SMALL.innocents
    assert set(result.errors) <= scenario.logged
    assert not result.put_aside or scenario.may_be_quarantined


def seen(**fields: Any) -> Observed:
    found = Observed(health=[0.001] * 99, longest_without_renewal=2.0, peak=100.0)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def result(who: str = "ours", *latencies: float | None, **fields: Any) -> Result:
    return Result("evil", who, "Something evil", latencies=list(latencies) or [0.005], seen=seen(**fields))


@pytest.mark.parametrize(
    ("ours", "short"),
    [
        (result(), []),
        (result("ours", 0.1, 0.005), []),
        (result("ours", 0.21), ["innocent pods later than 200 ms"]),
        (result("ours", 0.19), []),
        (result("ours", 0.005, None), ["1 innocent pods not bound"]),
        (result(longest_without_renewal=10.1), ["lease"]),
        (result(peak=201.0), ["memory"]),
        (result(health=[0.001] * 97 + [0.2] * 2), ["health"]),
        (result(health=[0.001] * 198 + [0.2] * 2), []),
        (result(health=[0.001] * 198 + [5.8]), ["health not answered for 5.8 s"]),
    ],
)
def test_limits_are_those_of_kube_scheduler_or_our_own(ours: Result, short: list[str]) -> None:
    assert ours.short(result("kube-scheduler", 0.1, peak=200.0)) == short


def test_a_process_that_ends_and_an_unmet_expectation_fall_short() -> None:
    ours = result()
    ours.ends.append(1)
    ours.broken.append("pods are evicted in vain")

    assert ours.short() == ["pods are evicted in vain", "exit 1"]


def test_without_kube_scheduler_an_innocent_pod_has_a_tenth_of_a_second() -> None:
    assert result("ours", 0.11).short() == ["innocent pods later than 100 ms"]


def test_innocent_pods_may_be_late_where_kube_scheduler_never_binds_some() -> None:
    assert result("ours", 2.4).short(result("kube-scheduler", 0.1, None)) == []


def test_the_table_shows_both_schedulers_side_by_side() -> None:
    theirs = result("kube-scheduler", 0.1, peak=200.0)

    row = table([(result(), theirs)]).splitlines()[-1]

    assert (
        row == "| Something evil | 5, 5, 5; 100, 100, 100 | 1, 1, 1; 1, 1, 1 | 2.0; 2.0 | 100; 200 | - |  |"
    )


def test_the_command_measures_and_prints_a_line_and_a_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hostile", "--simulated", "--only", "topologies"]
    it = subprocess.run(
        [*command, "--table", "--logs", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    first, *_, row, last = it.stdout.splitlines()
    assert first.split()[:2] == ["topologies", "ours"], it.stderr
    assert "innocent 4/4 in" in first
    assert row.startswith("| A StorageClass with 5000 allowed topologies")
    assert last.startswith("short: ")
