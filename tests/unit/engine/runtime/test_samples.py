"""Slow plugins that evaluate a sample of the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.engine.runtime.adapters import outcomes_of, scores_of, slow_last
from scheduler.engine.runtime.calls import NoInstruments
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.runtime.framework import EnabledPlugins, Framework
from scheduler.framework import (
    CycleState,
    FilterPlugin,
    ScorePlugin,
    Status,
)
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.interface import ExtensionPoint, SlowPlugin
from scheduler.framework.reasons import codes_of
from scheduler.tools.whatif.evaluation import evaluate_each
from tests.support.builders import node, node_object, pod, pod_object
from tests.support.clusters import cluster
from tests.support.scripted_plugins import framework_of
from tests.support.snapshots import cache_of
from tests.unit.tools.whatif.clusters import profile_with, scheduler_of

if TYPE_CHECKING:
    from scheduler.framework import Outcomes
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo

SNAPSHOT = cluster(*(node(f"n{number}") for number in range(8))).snapshot()
POD = pod("web")


class Slow(SlowPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes 0 and 1, and scores a node by its number."""

    name = "Slow"

    def __init__(self, sample: int | None) -> None:
        self.sample = sample
        self.asked: list[str] = []

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        self.asked.append(node.name)
        return Status.unschedulable("low") if node.name in {"n0", "n1"} else None

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        self.asked.append(node.name)
        return int(node.name[1:]) + 10


class Quick(FilterPlugin):
    name = "Quick"

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None: ...


def judged(plugin: Slow) -> Outcomes:
    return outcomes_of(plugin, AttemptState(), POD, SNAPSHOT, SNAPSHOT.all_rows)


def filtered(plugin: Slow) -> list[str]:
    outcomes = judged(plugin)
    return ["low" if outcomes.index[row] else "ok" for row in range(8)]


def test_nodes_are_evaluated_until_the_sample_has_passed() -> None:
    plugin = Slow(3)

    assert filtered(plugin) == ["low", "low", "ok", "ok", "ok", "low", "low", "low"]
    assert plugin.asked == ["n0", "n1", "n2", "n3", "n4"]


def test_unsampled_nodes_are_rejected_for_this_attempt_with_the_reason() -> None:
    reasons = judged(Slow(3)).of(7).reasons

    assert reasons == ("node(s) were left out of the sample of Slow",)
    assert codes_of(reasons, "Slow") == ("OutsideSample",)


def test_the_next_sample_starts_after_the_last_one() -> None:
    plugin = Slow(2)
    seen = []
    for _ in range(3):
        plugin.asked.clear()
        judged(plugin)
        seen.append(list(plugin.asked))

    assert seen == [["n0", "n1", "n2", "n3"], ["n4", "n5"], ["n6", "n7"]]


def test_without_a_sample_every_node_is_evaluated() -> None:
    plugin = Slow(None)

    assert filtered(plugin) == ["low", "low", *["ok"] * 6]


def test_a_sample_of_scores_gives_other_nodes_the_lowest_of_them() -> None:
    plugin = Slow(2)
    plugin.sample_start = 5

    scores = scores_of(plugin, AttemptState(), POD, SNAPSHOT, SNAPSHOT.all_rows)

    assert plugin.asked == ["n5", "n6"]
    assert scores.tolist() == [15, 15, 15, 15, 15, 15, 16, 15]
    assert plugin.sample_start == 7


def test_plugins_with_a_sample_run_last_and_the_others_stay_in_order() -> None:
    sampled, whole, quick = Slow(1), Slow(None), Quick()

    assert slow_last([sampled, whole, quick]) == [whole, quick, sampled]


def test_the_metric_counts_the_evaluated_nodes() -> None:
    class Counting(NoInstruments):
        loops: list[tuple[str, ExtensionPoint, int]]

        def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None:
            self.loops.append((plugin, point, nodes))

    counting = Counting()
    counting.loops = []
    plugin = Slow(3)
    framework = Framework(
        "x",
        EnabledPlugins({point: [plugin] for point in (ExtensionPoint.FILTER, ExtensionPoint.SCORE)}),
        counting,
    )
    rows = framework.filtering.run_filters(
        AttemptState(), POD, SNAPSHOT, SNAPSHOT.all_rows, Diagnosis.blank(8)
    )
    framework.scoring.run(AttemptState(), POD, SNAPSHOT, SNAPSHOT.all_rows)

    assert len(rows) == 3
    assert counting.loops == [("Slow", ExtensionPoint.FILTER, 5), ("Slow", ExtensionPoint.SCORE, 3)]


@pytest.mark.parametrize(("sample", "asked"), [(None, 0), (3, 4)])
def test_results_of_a_sample_are_not_cached(sample: int | None, asked: int) -> None:
    class Signing(Slow):
        def signature(self, pod: PodInfo) -> str:
            return "all alike"

    plugin = Signing(sample)
    framework = framework_of(plugin)
    snapshot = cache_of([f"n{number}" for number in range(4)]).snapshot()
    for _ in range(3):
        plugin.asked.clear()
        plugin.sample_start = 0
        state, diagnosis = AttemptState(), Diagnosis.blank(4)
        framework.filtering.run_pre_filter(state, POD, snapshot, diagnosis)
        rows = framework.filtering.find_feasible(
            state, POD, snapshot, diagnosis, rows=snapshot.all_rows, nominated={}
        )
        assert rows.tolist() == [2, 3]
        framework.scoring.run(state, POD, snapshot, rows)

    assert len(plugin.asked) == asked + (2 if asked else 0)


def test_a_plugin_that_filters_and_scores_evaluates_every_node_in_turn() -> None:
    plugin = Slow(2)
    chosen: list[int] = []
    for _ in range(3):
        rows = SNAPSHOT.all_rows[judged(plugin).index == 0]
        plugin.asked.clear()
        scores_of(plugin, AttemptState(), POD, SNAPSHOT, rows)
        assert plugin.asked == [f"n{row}" for row in rows]
        assert len(rows) == 2
        chosen += rows.tolist()

    assert sorted(chosen) == [2, 3, 4, 5, 6, 7]


def test_explain_shows_the_unsampled_nodes() -> None:
    class Sampled(SlowPlugin, FilterPlugin):
        name = "Sampled"
        sample = 2

        def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None: ...

    objects = [*(node_object(f"n{number}") for number in range(4)), pod_object("web")]
    scheduler = scheduler_of(*objects, config=profile_with("Sampled"), plugins=(Sampled,))

    (judged,) = evaluate_each(scheduler, [pod("web")])
    reported = judged.explanation

    assert reported["result"] == "schedulable"
    left_out = [each["reasons"] for each in reported["nodes"].values() if not each["feasible"]]
    assert left_out == [["node(s) were left out of the sample of Sampled"]] * 2
