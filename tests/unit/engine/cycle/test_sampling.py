"""percentageOfNodesToScore: the nodes within a search, compared with a search of one node after another."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.configuration.load import parse
from scheduler.engine.cycle.sampling import NodeSampling, nodes_to_find, percentages_of
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.framework import Diagnosis, Outcomes, Status
from scheduler.framework.diagnosis import NOT_EXAMINED
from tests.support.builders import pod
from tests.support.scripted_plugins import NodeFilter, Score, framework_of
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scheduler.engine.cycle.attempt import Decision

PROFILE = "custom-scheduler"
SCORER = Score(answer=lambda _state, _pod, nodes, _rows: np.zeros(nodes.n_nodes, dtype=np.int64))


@pytest.mark.parametrize(
    ("percentage", "n_nodes", "wanted"),
    [
        pytest.param(50, 99, 99, id="fewer than 100 nodes are all looked at"),
        pytest.param(1, 100, 100, id="at least 100"),
        pytest.param(30, 1000, 300, id="a share"),
        pytest.param(33, 1001, 330, id="rounded down"),
        pytest.param(0, 1000, 420, id="adaptive, 42 percent of 1000"),
        pytest.param(0, 5000, 500, id="adaptive, 10 percent of 5000"),
        pytest.param(0, 6000, 300, id="adaptive, never below 5 percent"),
        pytest.param(100, 5000, 5000, id="all"),
    ],
)
def test_the_sample_is_a_share_of_the_nodes_and_at_least_a_hundred(
    percentage: int, n_nodes: int, wanted: int
) -> None:
    assert nodes_to_find(percentage, n_nodes) == wanted


def test_the_percentage_of_a_profile_takes_precedence() -> None:
    configuration = parse(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "percentageOfNodesToScore: 40\n"
        "profiles:\n- {schedulerName: a}\n- {schedulerName: b, percentageOfNodesToScore: 70}\n"
        "- {schedulerName: c, percentageOfNodesToScore: 0}\n"
    )

    assert percentages_of(configuration.settings) == {"a": 40, "b": 70, "c": 0}


def _search(
    rows: Sequence[int], feasible: Collection[int], start: int, enough: int
) -> tuple[list[int], list[int]]:
    """Search one node after another, as kube-scheduler with one worker: (feasible nodes, all examined nodes)."""
    found: list[int] = []
    looked_at: list[int] = []
    for step in range(len(rows)):
        row = rows[(start + step) % len(rows)]
        if row in feasible:
            if len(found) == enough:
                break
            found.append(row)
        looked_at.append(row)
    return sorted(found), looked_at


@given(
    percentage=st.integers(0, 100),
    n_nodes=st.integers(1, 400),
    share=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    narrowed=st.booleans(),
    scores=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_search_starts_and_ends_as_one_that_evaluates_node_by_node(
    percentage: int, n_nodes: int, share: float, narrowed: bool, scores: bool, seed: int
) -> None:
    framework = framework_of(SCORER) if scores else framework_of()
    sampling, start, random = NodeSampling({PROFILE: percentage}), 0, Random(seed)

    for _ in range(4):  # pods, one after another
        rows = [row for row in range(n_nodes) if not narrowed or random.random() < 0.7]
        refused = [row for row in rows if random.random() >= share]
        diagnosis = _diagnosis(n_nodes, rows, refused)
        feasible = np.flatnonzero(diagnosis.rejected_by == -1)
        found = sampling.cut(framework, np.array(rows, dtype=np.intp), feasible, diagnosis).tolist()

        enough = nodes_to_find(percentage, len(rows)) if scores else 1
        expected, looked_at = _search(rows, {*rows} - {*refused}, start, enough)
        assert found == expected
        examined = np.flatnonzero(diagnosis.rejected_by != NOT_EXAMINED).tolist()
        assert [row for row in examined if row in rows] == sorted(looked_at)
        assert diagnosis.reason_counts()["no"] == len({*refused} & {*looked_at})
        start = (start + len(looked_at)) % n_nodes
        assert sampling.next_start == start


def _diagnosis(n_nodes: int, rows: list[int], refused: list[int]) -> Diagnosis:
    """PreFilter excludes nodes other than `rows`; plugin A rejects some of the rest."""
    diagnosis = Diagnosis.blank(n_nodes)
    keep = np.zeros(n_nodes, dtype=bool)
    keep[rows] = True
    if len(rows) < n_nodes:
        diagnosis.narrow(keep, frozenset(), ("N",))
    no = np.zeros(n_nodes, dtype=bool)
    no[refused] = True
    outcomes, asked = Outcomes.reject(no, "no"), np.array(rows, dtype=np.intp)
    diagnosis.reject("A", outcomes.table, outcomes.index[asked], asked)
    return diagnosis


# In the scheduling cycle.


def _names(n_nodes: int) -> list[str]:
    return [f"n{row:03}" for row in range(n_nodes)]


SNAPSHOT = snapshot_of(*_names(300))


def _decide(*plugins: Any, sampling: NodeSampling, **more: Any) -> Decision:
    return schedule_pod(
        framework_of(*plugins),
        pod("web"),
        SNAPSHOT,
        nominated={},
        random=Random(1),
        sampling=sampling,
        **more,
    )


def test_only_the_nodes_found_are_ranked_and_the_next_pod_continues_after_them() -> None:
    sampling = NodeSampling({PROFILE: 50})

    first = _decide(SCORER, sampling=sampling)
    second = _decide(SCORER, sampling=sampling)

    assert first.scores is not None
    assert second.scores is not None
    assert first.scores.rows.tolist() == list(range(150))
    assert second.scores.rows.tolist() == list(range(150, 300))


def test_without_scorers_feasible_nodes_are_chosen_in_turn() -> None:
    sampling = NodeSampling({PROFILE: 100})
    even = NodeFilter(answer=lambda _state, _pod, node: Status.unschedulable("odd") if node.row % 2 else None)

    assert [_decide(even, sampling=sampling).node_name for _ in range(3)] == ["n000", "n002", "n004"]


def test_at_a_hundred_percent_every_node_is_ranked() -> None:
    decision = _decide(SCORER, sampling=NodeSampling({PROFILE: 100}))

    assert decision.scores is not None
    assert len(decision.scores.rows) == 300


def test_a_plugin_that_rejects_only_unsampled_nodes_does_not_reject_the_pod() -> None:
    late = NodeFilter(
        "Late", lambda _state, _pod, node: Status.unschedulable("late") if node.row >= 200 else None
    )
    early = NodeFilter(
        "Early", lambda _state, _pod, node: Status.unschedulable("early") if node.row < 10 else None
    )

    decision = _decide(late, early, SCORER, sampling=NodeSampling({PROFILE: 40}))

    assert decision.diagnosis.unschedulable_plugins == {"Early"}
    assert decision.diagnosis.reason_counts() == {"early": 10}
    assert decision.diagnosis.outcome_of(299) is None


def test_an_exhaustive_search_evaluates_every_node_and_keeps_the_start() -> None:
    sampling = NodeSampling({PROFILE: 50})

    decision = _decide(SCORER, sampling=sampling, exhaustive=True)

    assert decision.scores is not None
    assert len(decision.scores.rows) == 300
    assert sampling.next_start == 0


def test_an_exhaustive_search_ranks_a_single_feasible_node() -> None:
    only = NodeFilter(answer=lambda _state, _pod, node: None if node.row == 7 else Status.unschedulable("no"))

    decision = _decide(only, SCORER, sampling=NodeSampling({PROFILE: 100}), exhaustive=True)

    assert decision.scores is not None
    assert decision.scores.rows.tolist() == [7]
