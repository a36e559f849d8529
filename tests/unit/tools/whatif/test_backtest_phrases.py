"""The verdict of a backtest names the figures that differ from the recorded configuration, and by how much."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.tools.whatif.backtest.phrases import verdicts
from scheduler.tools.whatif.backtest.result import (
    Backtest,
    BacktestRun,
    Figures,
    Moves,
    NodeFigures,
    Recorded,
    Waits,
)

NODES = NodeFigures(
    least_in_use=5, most_in_use=9, mean_in_use=8.0, empty_share=0.2, empty_at_end=1, empty_names=[]
)
FIGURES = Figures(
    arrived=100,
    placed=98,
    never_placed=2,
    waits=Waits(p50=0.1, p90=0.5, p99=4.0, max=9.0, mean=0.3, curve={}),
    preemptions=0,
    evictions=0,
    others_evicted=0,
    mean_utilisation={},
    mean_fragmentation={"cpu": 0.2, "memory": 0.4},
    nodes=NODES,
    unplaced=[],
    samples=[],
)
RECORDED = Recorded(
    source="recording",
    began="2026-01-01T00:00:00Z",
    seconds=60.0,
    decision_seconds=0.0,
    figures=FIGURES,
    stretches=1,
    unheard_seconds=0.0,
    torn=[],
    unreadable=0,
    reconfigured=0,
)


def run(configuration: str, **figures: Any) -> BacktestRun:
    return BacktestRun(
        configuration=configuration,
        figures=msgspec.structs.replace(FIGURES, **figures),
        moves=Moves(same=0, elsewhere=0, only_now=0, only_then=0, causes={}, examples=[]),
        held=0,
        run_on=0,
        dropped=0,
        renamed=0,
        not_recorded=[],
    )


def verdict(baseline: BacktestRun | None = None, **figures: Any) -> str:
    result = Backtest(
        recorded=RECORDED, baseline=baseline, no_baseline="", runs=[run("a/packing.yaml", **figures)]
    )
    (found,) = verdicts(result)
    return found


def in_use(mean: float) -> NodeFigures:
    return msgspec.structs.replace(NODES, mean_in_use=mean)


def waiting(p99: float) -> Waits:
    return msgspec.structs.replace(FIGURES.waits, p99=p99)


def test_better_and_worse_figures_are_named_with_both_values() -> None:
    found = verdict(run("recorded"), nodes=in_use(3.25), waits=waiting(12.0), never_placed=1)

    assert found == (
        "packing, compared with the recorded configuration: better: never placed 1 instead of 2, nodes in use, mean "
        "3.2 instead of 8.0; worse: wait, p99 12.00 s instead of 4.00 s."
    )


def test_the_same_method_is_compared_and_the_recording_only_without_it() -> None:
    assert verdict(run("recorded", evictions=7), evictions=7) == (
        "packing is as good as the recorded configuration: no figure differs noticeably."
    )
    assert verdict(evictions=7) == "packing, compared with the recording: worse: evictions 7 instead of 0."


@pytest.mark.parametrize(
    "figures",
    [
        {"waits": waiting(4.19)},
        {"nodes": in_use(7.6)},
        {"mean_fragmentation": {"cpu": 0.209, "memory": 0.4}},
        {},
    ],
    ids=["less than 5 % of the waiting time", "half a node", "half a percent fragmented", "nothing"],
)
def test_small_differences_do_not_count(figures: dict[str, Any]) -> None:
    assert verdict(run("recorded"), **figures).endswith("no figure differs noticeably.")
