from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from plugins.taint_toleration import REASON, TaintToleration
from scheduler.framework import Code, CycleState, EventResource
from scheduler.objects.v1 import Toleration, Tolerations
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import made, reasons, requeues, scores

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERYTHING = [{"operator": "Exists"}]


def test_untolerated_taints_are_rejected_as_unresolvable():
    snapshot = cluster(node("a", taints=["k=v:NoSchedule"])).snapshot()

    outcomes = made(TaintToleration).filter(CycleState(), pod("p"), snapshot, snapshot.all_rows)

    assert outcomes.of(0) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) had untolerated taint(s)",))


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_hard_taints_are_rejected(effect: str):
    assert reasons(made(TaintToleration), pod("p"), cluster(node("a", taints=[f"k:{effect}"]))) == {
        "a": (REASON,)
    }


def test_the_untolerated_taints_are_listed():
    taints = ["a=1:NoSchedule", "b:NoExecute", "c:NoSchedule", "d:PreferNoSchedule"]
    snapshot = cluster(node("n", taints=taints)).snapshot()
    waiting = pod("p", tolerations=[{"key": "c", "operator": "Exists"}])

    assert made(TaintToleration).why(waiting, snapshot, snapshot.node_info(0)) == [
        "does not tolerate a=1:NoSchedule",
        "does not tolerate b:NoExecute",
    ]
    assert made(TaintToleration).why(waiting, snapshot, None) is None


def test_soft_taints_are_not_rejected():
    assert reasons(made(TaintToleration), pod("p"), cluster(node("a", taints=["k:PreferNoSchedule"]))) == {}


def test_one_untolerated_taint_among_many_is_enough():
    taints = ["a:NoSchedule", "b:NoExecute", "c:NoSchedule"]
    tolerations = [{"key": key, "operator": "Exists"} for key in "ac"]

    assert reasons(
        made(TaintToleration), pod("p", tolerations=tolerations), cluster(node("n", taints=taints))
    )


COMPARING = FakeFeatures("1.37", TaintTolerationComparisonOperators=True)


@pytest.mark.parametrize(
    ("features", "refused"),
    [
        pytest.param(COMPARING, {"low", "text"}, id="1.37 with the gate"),
        pytest.param(
            FakeFeatures("1.35", TaintTolerationComparisonOperators=True), {"low", "text"}, id="1.35 with it"
        ),
        pytest.param(FakeFeatures("1.37"), {"low", "high", "text"}, id="1.37 without it"),
        pytest.param(FakeFeatures("1.34"), {"low", "high", "text"}, id="1.34, which has no such gate"),
    ],
)
def test_the_gate_decides_whether_tolerations_compare_numbers(features: FakeFeatures, refused: set[str]):
    nodes = cluster(
        node("low", taints=["sla=950:NoSchedule"]),
        node("high", taints=["sla=990:NoSchedule"]),
        node("text", taints=["sla=good:NoSchedule"]),
    )
    waiting = pod("p", tolerations=[{"key": "sla", "operator": "Gt", "value": "950"}])

    assert reasons(TaintToleration(features=features), waiting, nodes).keys() == refused


def test_tolerations_that_compare_numbers_count_in_scores_and_hints():
    soft, tainted = node("soft", taints=["sla=5:PreferNoSchedule"]), node("n", taints=["sla=5:NoExecute"])
    waiting = pod("p", tolerations=[{"key": "sla", "operator": "Lt", "value": "6"}])
    plugin = TaintToleration(features=COMPARING)

    assert scores(plugin, waiting, cluster(soft, node("bare"))) == {"soft": 100, "bare": 100}
    assert requeues(plugin, EventResource.NODE, waiting, None, tainted)


def test_nodes_with_fewer_soft_taints_score_higher():
    nodes = cluster(
        node("none"),
        node("one", taints=["a:PreferNoSchedule"]),
        node("three", taints=[f"{key}:PreferNoSchedule" for key in "abc"]),
        node("forbidding", taints=["a:NoSchedule"]),
    )

    found = scores(made(TaintToleration), pod("p"), nodes)

    assert found == {"none": 100, "one": 67, "three": 0, "forbidding": 100}


def test_a_toleration_of_another_effect_does_not_count_for_scores():
    nodes = cluster(node("tainted", taints=["a:PreferNoSchedule"]), node("free"))

    def tainted_score(effect: str) -> int:
        tolerations = [{"key": "a", "operator": "Exists", "effect": effect}]
        return scores(made(TaintToleration), pod("p", tolerations=tolerations), nodes)["tainted"]

    assert tainted_score("NoSchedule") == 0
    assert tainted_score("PreferNoSchedule") == tainted_score("") == 100


def test_nodes_without_taints_all_have_the_best_score():
    assert scores(made(TaintToleration), pod("p"), cluster(node("a"), node("b"))) == {"a": 100, "b": 100}


def test_only_feasible_nodes_set_the_scale():
    snapshot = cluster(
        node("a", taints=["a:PreferNoSchedule"]),
        node("b"),
        node("far", taints=[f"{key}:PreferNoSchedule" for key in "abcd"]),
    ).snapshot()
    plugin, state, feasible = made(TaintToleration), CycleState(), np.array([0, 1])

    plugin.pre_score(state, pod("p"), snapshot, feasible)
    raw = plugin.score(state, pod("p"), snapshot, feasible)

    assert plugin.normalize(state, pod("p"), raw, feasible)[feasible].tolist() == [0, 100]


TAINTED, OTHER_TAINT, FREE = (
    node("n", taints=["a:NoSchedule"]),
    node("n", taints=["b:NoExecute"]),
    node("n", taints=["a:PreferNoSchedule"]),
)


@pytest.mark.parametrize(
    ("old", "new", "tolerations", "helps"),
    [
        pytest.param(None, FREE, [], True, id="a new untainted node"),
        pytest.param(None, TAINTED, [], False, id="a new tainted node"),
        pytest.param(None, TAINTED, EVERYTHING, True, id="a new tainted node, tolerated"),
        pytest.param(TAINTED, FREE, [], True, id="the taint went"),
        pytest.param(TAINTED, OTHER_TAINT, [], False, id="another taint took its place"),
        pytest.param(FREE, FREE, [], False, id="nothing that matters changed"),
        pytest.param(TAINTED, FREE, EVERYTHING, False, id="it was tolerated before"),
    ],
)
def test_a_node_with_tolerated_taints_now_requeues_a_pod(
    old: object, new: object, tolerations: list[dict[str, str]], helps: bool
):
    assert (
        requeues(made(TaintToleration), EventResource.NODE, pod("p", tolerations=tolerations), old, new)
        is helps
    )


def test_any_new_toleration_of_its_own_requeues_a_pod():
    plugin, mine, other = made(TaintToleration), pod("mine"), pod("other")

    assert requeues(plugin, EventResource.POD, mine, mine, pod("mine"))
    assert not requeues(plugin, EventResource.POD, mine, other, other)


def test_thousands_of_tolerations_are_read_once_for_any_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    build = Tolerations.__init__

    def counted(self: Tolerations, tolerations: Iterable[Toleration]) -> None:
        known = tuple(tolerations)
        read.extend(known)
        build(self, known)

    monkeypatch.setattr(Tolerations, "__init__", counted)
    nodes = cluster(*(node(f"n{number}", taints=[f"k{number}:NoSchedule"]) for number in range(100)))
    many = [{"key": f"k{number}", "operator": "Exists"} for number in range(50, 1050)]

    refused = reasons(made(TaintToleration), pod("p", tolerations=many), nodes)

    assert refused.keys() == {f"n{number}" for number in range(50)}
    assert len(read) <= 2 * len(many)
