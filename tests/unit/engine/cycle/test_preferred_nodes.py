"""Nodes that a decision prefers: those of this replica, if several replicas place pods."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from scheduler.engine.cycle.explanation import explain
from scheduler.engine.cycle.sampling import NodeSampling
from scheduler.engine.cycle.scheduling import DecisionOptions, decide, run_now
from scheduler.engine.cycle.verdict import with_verdict
from scheduler.engine.runtime.cached_scores import Scores
from scheduler.engine.state.cache import Cache
from tests.support.builders import node, pod
from tests.support.offline_capabilities import frameworks
from tests.support.scripted_plugins import NodeScore, framework_of
from tests.support.snapshots import snapshot_of

N_NODES = 24


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("has_spread", [False, True], ids=["cached totals", "normalized scores"])
def test_the_best_of_the_preferred_nodes_is_chosen_or_the_best_of_all(seed: int, *, has_spread: bool) -> None:
    random = Random(seed)
    framework = frameworks()["custom-scheduler"]
    cache = Cache()
    for number in range(N_NODES):
        cache.add_node(node(f"n{number}", cpu=str(random.randint(1, 4)), labels={"zone": f"z{number % 3}"}))
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    spread = {"topologySpreadConstraints": [constraint]} if has_spread else {}
    preferred = np.array([random.random() < 0.2 for _ in range(N_NODES)])
    met = set()

    for number in range(60):
        if random.random() < 0.2:
            preferred = np.array([random.random() < 0.2 for _ in range(N_NODES)])
        snapshot = cache.snapshot()
        web = pod(f"web-{number}", cpu="700m", labels={"app": "web"}, **spread)
        decision = run_now(decide(framework, web, snapshot, nominated={}, random=random, preferred=preferred))
        if not decision.node_name:
            met.add("none")
            continue
        if decision.scores is not None:
            of_node = dict(zip(decision.scores.rows.tolist(), decision.scores.total.tolist(), strict=True))
            own = {row: total for row, total in of_node.items() if preferred[row]}
            among = own or of_node
            highest = max(among.values())
            expected = {snapshot.name_of(row) for row, total in among.items() if total == highest}
            assert decision.node_name in expected
            met.add("of others" if not own else "best" if highest == max(of_node.values()) else "own")
        cache.assume(web, decision.node_name)

    assert {"of others", "best", "own"} <= met


def test_scores_of_extenders_are_compared_among_the_preferred_nodes() -> None:
    rows, preferred = np.array([1, 2, 4]), np.array([True, True, False, True, True])

    scores = Scores(rows, rows, base=1).with_others({"x": np.array([3, 9, 7])}, preferred)

    assert scores.best.tolist() == [4]


def chosen(**options: Any) -> set[str]:
    """Return the nodes that ten decisions without Score plugins choose; two of 300 are preferred."""
    snapshot = snapshot_of(*(f"n{number:03}" for number in range(300)))
    preferred = np.zeros(300, dtype=np.bool_)
    preferred[[7, 250]] = True
    return {
        run_now(
            decide(
                framework_of(),
                pod("web"),
                snapshot,
                nominated={},
                random=Random(seed),
                preferred=preferred,
                **options,
            )
        ).node_name
        for seed in range(10)
    }


def test_without_score_plugins_each_preferred_node_may_be_chosen() -> None:
    assert chosen() == {"n007", "n250"}


def test_a_caller_that_chooses_by_itself_gets_the_preferred_nodes() -> None:
    first = DecisionOptions(choose=lambda _pod, rows, _snapshot: int(rows[0]))

    assert chosen(options=first) == {"n007"}


def test_a_search_that_ends_early_is_for_the_preferred_nodes() -> None:
    sampling = NodeSampling({"custom-scheduler": 0})

    assert chosen(sampling=sampling) <= {"n007", "n250"}


@pytest.mark.parametrize(
    ("totals", "verdict"),
    [
        pytest.param(
            [5, 9, 9, 4],
            "best: n0, the best node of this replica; 2 nodes of other replicas have a higher total.",
            id="one own node",
        ),
        pytest.param(
            [9, 5, 5, 5],
            "best: n0, because its total is 9, and that of the next, n1, is 5 (S 4 higher).",
            id="the best of all",
        ),
        pytest.param([5, 4, 9, 5], "; 1 node of other replicas has a higher total.", id="two own nodes"),
    ],
)
def test_the_verdict_counts_better_nodes_of_other_replicas(totals: list[int], verdict: str) -> None:
    snapshot, preferred = snapshot_of("n0", "n1", "n2", "n3"), np.array([True, False, False, True])
    framework = framework_of(NodeScore("S", lambda _state, _pod, node: totals[node.row]))
    asked = decide(framework, pod("web"), snapshot, nominated={}, random=Random(1), preferred=preferred)

    explanation = with_verdict(explain(run_now(asked), snapshot.names))

    assert explanation["verdict"].endswith(verdict)
