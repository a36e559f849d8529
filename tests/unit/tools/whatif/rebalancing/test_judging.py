"""Judgements of evictions that another program plans."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.whatif.rebalancing.eviction_list import Listed
from scheduler.tools.whatif.rebalancing.judging import judge
from tests.support.builders import node_object, pod_object
from tests.unit.tools.whatif.rebalancing.rebalanced_clusters import PACKING, budget, rebalancer_of, replica

NODES = [node_object(f"n{number}") for number in range(1, 5)]


def judged(*names: str, objects: list[Any]) -> list[tuple[str, str | None]]:
    cluster = rebalancer_of(*objects, objective="nodes")
    listed = [Listed(number, f"default/{name}") for number, name in enumerate(names, 1)]
    judgement = judge(cluster, "nodes", listed)
    assert [each.line for each in judgement.evictions] == [each.line for each in listed]
    return [(each.result, each.to_node) for each in judgement.evictions]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([replica("a", "n1", "2"), replica("p", "n2")], ("better", "n1"), id="empties a node"),
        pytest.param(
            [replica("a", "n1", "2"), replica("p", "n2"), replica("q", "n2", "100m")],
            ("same", "n1"),
            id="a node stays in use",
        ),
        pytest.param([replica("a", "n1"), replica("p", "n2")], ("returns", "n2"), id="no better node"),
        pytest.param([pod_object("p", cpu="1", node="n2")], ("refused", None), id="without a controller"),
        pytest.param(
            [replica("p", "n2", node_selector={"disk": "ssd"})], ("pending", None), id="no node fits any more"
        ),
        pytest.param(
            [replica("p", "n2", node_selector={"kubernetes.io/hostname": "n3"}), replica("q", "n2")],
            ("worse", "n3"),
            id="uses another node",
        ),
    ],
)
def test_an_eviction_is_judged_by_the_node_of_the_replacement(
    objects: list[Any], expected: tuple[str, str | None]
):
    assert judged("p", objects=[*NODES, *objects]) == [expected]


def test_evictions_are_judged_one_after_another_in_their_order():
    objects = [*NODES, replica("a", "n1", "2500m"), replica("p", "n2", "600m"), replica("q", "n2", "600m")]

    assert judged("p", "q", objects=objects) == [("same", "n1"), ("better", "n1")]


def test_evictions_at_once_count_together_against_a_budget():
    objects = [
        *NODES,
        replica("a", "n1", "2500m", owner="a"),
        replica("p", "n2", "600m"),
        replica("q", "n2", "600m"),
        budget("b", 1),
    ]

    assert judged("p", "q", objects=objects) == [("same", "n1"), ("refused", None)]


def test_a_pending_replacement_frees_its_capacity_for_later_ones():
    objects = [
        node_object("n1", cpu="2"),
        node_object("n2", cpu="2"),
        replica("p", "n1", "2", node_selector={"disk": "ssd"}),
        replica("q", "n2", "2", node_selector={"kubernetes.io/hostname": "n1"}),
    ]

    assert judged("q", objects=objects) == [("pending", None)]
    assert judged("p", "q", objects=objects) == [("pending", None), ("same", "n1")]


def test_the_numbers_of_all_objectives_are_those_after_the_evictions():
    cluster = rebalancer_of(*NODES, replica("a", "n1", "2"), replica("p", "n2"))

    judgement = judge(cluster, "nodes", [Listed(1, "default/p")])

    assert (judgement.before["nodes"], judgement.after["nodes"]) == (2, 1)
    assert judgement.evictions[0].why == "nodes in use 2 -> 1"
    assert judgement.after.keys() == {"nodes", "spread", "fragmentation"}


def test_an_eviction_in_vain_counts_for_the_limits_too():
    limits = "{protection: {evictionsPerHour: {controller: 1}}}"
    config = f"{PACKING}  - name: DefaultPreemption\n    args: {limits}\n"
    cluster = rebalancer_of(*NODES, replica("a", "n1"), replica("p", "n2"), config=config)

    judgement = judge(cluster, "nodes", [Listed(1, "default/p"), Listed(2, "default/a")])

    assert [each.result for each in judgement.evictions] == ["returns", "refused"]
