"""PreScore, Score and normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework import SKIP, ScorePlugin
from tests.support.builders import pod
from tests.support.scripted_plugins import NodeScore, PreScore, Score, framework_of
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from scheduler.engine.runtime.scoring import Scores
    from scheduler.framework import Plugin

SNAPSHOT = snapshot_of("n0", "n1", "n2", "n3")
FEASIBLE = np.array([1, 3])
POD = pod("web")


def int64s(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def ranked(*plugins: Plugin, weights: dict[str, int] | None = None, feasible: Any = FEASIBLE) -> Scores:
    return framework_of(*plugins, weights=weights).scoring.run(AttemptState(), POD, SNAPSHOT, feasible)


def error(*plugins: Plugin) -> str:
    with pytest.raises(PluginError) as failed:
        ranked(*plugins)
    return str(failed.value)


class Normalized(ScorePlugin):
    name = "Mine"

    def __init__(self, scores: Any, normalized: Any) -> None:
        self.scores, self.normalized = scores, normalized

    def score(self, *_: Any) -> Any:
        return self.scores

    def normalize(self, state: Any, pod: Any, scores: Any, feasible: Any) -> Any:
        return self.normalized(scores, feasible) if callable(self.normalized) else self.normalized


def test_scores_are_weighted_and_added_for_feasible_nodes_only():
    scores = ranked(
        Score("A", int64s(999, 10, 999, 20)),
        NodeScore("B", lambda _state, _pod, node: {"n1": 3, "n3": 4}[node.name]),
        weights={"A": 2, "B": 5},
    )

    assert scores.rows.tolist() == [1, 3]
    assert {name: of.tolist() for name, of in scores.by_plugin.items()} == {"A": [20, 40], "B": [15, 20]}
    assert scores.total.tolist() == [35, 60]


def test_the_best_nodes_are_those_with_the_highest_weighted_total():
    plugins = Score("A", int64s(100, 0, 100, 10)), Score("B", int64s(100, 5, 100, 0))
    assert ranked(*plugins, weights={"A": 1, "B": 3}).best.tolist() == [1]
    assert ranked(*plugins, weights={"A": 1, "B": 2}).best.tolist() == [1, 3]
    assert ranked(*plugins, weights={"A": 40_000_000, "B": 1}).best.tolist() == [3]


def test_without_score_plugins_every_node_has_one_point():
    scores = ranked(PreScore("A", KeyError("not asked")))

    assert (scores.total.tolist(), scores.by_plugin) == ([1, 1], {})


def test_a_plugin_that_skips_at_pre_score_is_not_called_at_score():
    class Both(PreScore, Score): ...

    skips = Both("A", pre_score=SKIP, score=KeyError("asked"))
    scores = ranked(skips, Score("B", int64s(0, 1, 0, 2)))

    assert scores.by_plugin.keys() == {"B"}
    assert skips.called() == ["pre_score"]


def test_if_all_skip_all_nodes_are_equal():
    class Both(PreScore, Score): ...

    scores = ranked(Both("A", pre_score=SKIP))

    assert (scores.total.tolist(), scores.by_plugin) == ([0, 0], {})


def test_scores_are_normalized_before_weights_apply():
    doubled = Normalized(int64s(0, 500, 0, 1000), lambda scores, _feasible: scores // 10)

    assert ranked(doubled, weights={"Mine": 3}).total.tolist() == [150, 300]


def raising(*_: Any) -> None:
    raise KeyError("x")


FAILED = 'running Score plugins: plugin "Mine" failed with: '
NORMALIZING = 'running Normalize on Score plugins: plugin "Mine" failed with: '
INVALID = (
    'applying score defaultWeights on Score plugins: plugin "Mine" returns an invalid score {}, '
    "it should in the range of [0, 100] after normalizing"
)


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        pytest.param(Score("Mine", int64s(0, 101, 0, 0)), INVALID.format(101), id="too high"),
        pytest.param(Score("Mine", int64s(0, 0, 0, -1)), INVALID.format(-1), id="negative"),
        pytest.param(Score("Mine", np.ones(4)), FAILED + "ValueError: score returns int64 (4,), was float64 (4,)", id="of another dtype"),
        pytest.param(Score("Mine", int64s(1, 2)), FAILED + "ValueError: score returns int64 (4,), was int64 (2,)", id="of feasible nodes only"),
        pytest.param(Score("Mine", [1, 2, 3, 4]), FAILED + "ValueError: score returns int64 (4,), was list", id="a list"),
        pytest.param(Normalized(int64s(1, 1, 1, 1), None), NORMALIZING + "ValueError: normalize returns int64 (4,), was NoneType", id="normalized in place"),
        pytest.param(Normalized(int64s(1, 1, 1, 1), np.ones(4)), NORMALIZING + "ValueError: normalize returns int64 (4,), was float64", id="normalized to floats"),
        pytest.param(Normalized(int64s(1, 1, 1, 1), int64s(1, 1, 1, 200)), INVALID.format(200), id="normalized too high"),
        pytest.param(Normalized(int64s(1, 1, 1, 1), raising), NORMALIZING + "KeyError: 'x'", id="normalize raises"),
        pytest.param(NodeScore("Mine", lambda *_: 101), INVALID.format(101), id="too high, by node"),
    ],
)  # fmt: skip
def test_an_invalid_score_is_reported_as_by_kube_scheduler(plugin: Plugin, expected: str):
    assert error(plugin).startswith(expected)


def test_the_node_of_an_invalid_score_is_logged(caplog: pytest.LogCaptureFixture):
    error(Score("Mine", int64s(0, 0, 0, -1)))

    assert [vars(record)["node"] for record in caplog.records] == ["n3"]


def test_scores_of_infeasible_nodes_are_ignored():
    assert ranked(Score("A", int64s(-5, 0, 101, 0))).total.tolist() == [0, 0]


def test_normalizing_in_place_does_not_change_cached_scores():
    class Kept(ScorePlugin):
        name = "Kept"

        def signature(self, pod: Any) -> str:
            return "all"

        def score_node(self, state: Any, pod: Any, node: Any) -> int:
            return int(node.name.removeprefix("n")) + 1

        def normalize(self, state: Any, pod: Any, scores: Any, feasible: Any) -> Any:
            scores *= 10
            return scores

    framework = framework_of(Kept())
    totals = [framework.scoring.run(AttemptState(), POD, SNAPSHOT, FEASIBLE).total.tolist() for _ in range(3)]

    assert totals == [[20, 40]] * 3
