from __future__ import annotations

import math
from typing import Any

import pytest

from plugins.node_resources import balanced_allocation
from plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from scheduler.framework import CycleState
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import faults, made, scores


def balanced(**args: Any) -> NodeResourcesBalancedAllocation:
    return made(NodeResourcesBalancedAllocation, **args)


def test_a_pod_without_requests_is_not_scored():
    assert scores(balanced(), pod("p"), cluster(node("n"))) is None
    assert scores(balanced(), pod("p", requests={"nvidia.com/gpu": 1}), cluster(node("n"))) is None


def test_a_pod_that_keeps_the_balance_scores_75():
    nodes = cluster(node("n", cpu="4", memory="4Gi"))

    assert scores(balanced(), pod("p", cpu="1", memory="1Gi"), nodes) == {"n": 75}


def test_more_balance_scores_higher_and_less_balance_lower():
    nodes = cluster(
        node("much-memory-used", cpu="4", memory="4Gi"),
        node("much-cpu-used", cpu="4", memory="4Gi"),
        pods=[pod("a", memory="3Gi", node="much-memory-used"), pod("b", cpu="3", node="much-cpu-used")],
    )

    found = scores(balanced(), pod("p", cpu="1"), nodes)

    # Both are 0.75 apart before, which is 62 of 100; then 0.5 and 1 apart, 75 and 50 of 100.
    assert found == {"much-memory-used": 50 + (50 + 75 - 62) // 2, "much-cpu-used": 50 + (50 + 50 - 62) // 2}


def test_up_to_1_35_the_balance_with_the_pod_counts():
    nodes = cluster(
        node("much-memory-used", cpu="4", memory="4Gi"),
        node("much-cpu-used", cpu="4", memory="4Gi"),
        pods=[pod("a", memory="3Gi", node="much-memory-used"), pod("b", cpu="3", node="much-cpu-used")],
    )
    plugin = balanced(features=FakeFeatures("1.35"))

    # Then they are 0.5 and 1 apart.
    assert scores(plugin, pod("p", cpu="1"), nodes) == {"much-memory-used": 75, "much-cpu-used": 50}
    state, info = CycleState(), nodes.snapshot().node_info(0)
    assert plugin.score_node(state, pod("p", cpu="1"), info) == 75


def test_usage_above_the_allocatable_amount_counts_as_all_of_it():
    nodes = cluster(node("n", cpu="1", memory="1Gi"), pods=[pod("a", cpu="5", memory="1Gi", node="n")])

    assert scores(balanced(), pod("p", cpu="1"), nodes) == {"n": 75}


def test_three_resources_are_balanced_by_their_standard_deviation():
    nodes = cluster(node("n", cpu="4", memory="4Gi", allocatable={"nvidia.com/gpu": 4}))
    plugin = balanced(resources=[{"name": name} for name in ("cpu", "memory", "nvidia.com/gpu")])

    # 0, 0 and 1 deviate by the square root of 2/9, so 52 with the pod; 50 + (50 + 52 - 100) / 2.
    assert scores(plugin, pod("p", requests={"nvidia.com/gpu": 4}), nodes) == {"n": 51}


@pytest.mark.parametrize("adds_up", [sum, math.fsum], ids=["as it is", "as since Python 3.12"])
def test_a_single_node_is_scored_exactly_as_all_are(adds_up: Any, monkeypatch: pytest.MonkeyPatch):
    """Go rounds at each step; the built-in sum() does not, since some version of Python."""
    monkeypatch.setattr(balanced_allocation, "sum", adds_up, raising=False)
    amounts = {"a": (6, 10), "b": (7, 10), "c": (90, 100), "d": (8, 10), "e": (75, 100)}
    names = {short: f"example.com/{short}" for short in amounts}
    nodes = cluster(node("n", allocatable={names[short]: there for short, (_, there) in amounts.items()}))
    asks = pod("p", requests={names[short]: asked for short, (asked, _) in amounts.items()})
    plugin = balanced(resources=[{"name": name} for name in names.values()])

    assert scores(plugin, asks, nodes) == {"n": 50 + (50 + 90 - 100) // 2}
    snapshot, state = nodes.snapshot(), CycleState()
    plugin.pre_score(state, asks, snapshot, snapshot.all_rows)
    assert plugin.score_node(state, asks, snapshot.node_info(0)) == 70


def test_a_resource_that_the_node_lacks_does_not_count():
    nodes = cluster(node("n", cpu="4", memory="0"))

    assert scores(balanced(), pod("p", cpu="3"), nodes) == {"n": 75}


def test_scores_without_pre_score_are_the_same_and_zero_where_it_skips():
    snapshot = cluster(node("n", cpu="4", memory="4Gi")).snapshot()

    def score(each: Any) -> list[int]:
        return balanced().score(CycleState(), each, snapshot, snapshot.all_rows).tolist()

    assert score(pod("p", cpu="1", memory="1Gi")) == [75]
    assert score(pod("p")) == [0]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([], []),
        ([{"name": "cpu", "weight": 0}], []),
        ([{"name": "cpu", "weight": 2}], ["resources[0].weight: must be 1, was 2"]),
        ([{"name": "cpu"}, {"name": "cpu"}], ["resources[1].name: 'cpu' is named twice"]),
    ],
    ids=["none named", "a weight of zero", "a weight", "a name twice"],
)
def test_arguments(resources: list[dict[str, Any]], expected: list[str]):
    assert faults(NodeResourcesBalancedAllocationArgs, resources=resources) == expected
