"""Details of rejections: the called plugins, the nodes, and the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.clock import SystemClock
from scheduler.engine.cycle.refusal_details import RefusalDetails
from scheduler.engine.runtime.budget import LoopBudget
from tests.support.builders import pod
from tests.support.manual_clock import ManualClock
from tests.support.scripted_plugins import Filter
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

POD = pod("web")
SNAPSHOT = snapshot_of(*(f"n{number}" for number in range(6)))


class Telling(Filter):
    def why(self, *args: Any) -> Any:
        return self.say("why", *args)

    @property
    def asked(self) -> list[str | None]:
        return [node and node.name for _, (_, _, node) in self.calls]


def refused(*plugins: str, pre_filter: str = "") -> dict[str, Any]:
    """An explanation: the first plugin rejects node n0, the next n1; equal plugins share a value."""
    verdicts = {
        name: {"feasible": False, "plugin": name, "code": "Unschedulable", "reasons": ["no"]}
        for name in plugins
    }
    return {
        "preFilter": {"plugin": pre_filter, "code": "Unschedulable", "reasons": ["no"]}
        if pre_filter
        else None,
        "nodes": {f"n{number}": verdicts[name] for number, name in enumerate(plugins)},
    }


def details_of(explanation: dict[str, Any]) -> dict[str, Any]:
    return {name: verdict.get("details") for name, verdict in explanation["nodes"].items()}


def added(explanation: dict[str, Any], *plugins: Filter, **limits: Any) -> dict[str, Any]:
    RefusalDetails(plugins, limits.pop("clock", ManualClock()), **limits).add_to(explanation, POD, SNAPSHOT)
    return explanation


def test_each_node_has_the_details_of_its_plugin():
    one = Telling("One", why=lambda _pod, _snapshot, node: [f"disk of row {node.row}"])
    two = Telling("Two", why=("a", "b"))

    explanation = added(refused("One", "One", "Two"), one, two, Filter("Three"))

    assert details_of(explanation) == {"n0": ["disk of row 0"], "n1": ["disk of row 1"], "n2": ["a", "b"]}
    assert explanation["nodes"]["n0"]["reasons"] == ["no"]
    assert one.calls[0][1][:2] == (POD, SNAPSHOT)


def test_a_rejection_for_every_node_has_details_without_a_node():
    one = Telling("One", why=["the claim is gone"])

    explanation = added(refused(pre_filter="One"), one)

    assert explanation["preFilter"] == {
        "plugin": "One",
        "code": "Unschedulable",
        "reasons": ["no"],
        "details": ["the claim is gone"],
    }
    assert one.asked == [None]


def test_a_plugin_without_details_leaves_the_rejection_as_it_is():
    explanation = refused("Plain", "Quiet", pre_filter="Plain")

    assert added(explanation, Filter("Plain"), Telling("Quiet", why=None)) == refused(
        "Plain", "Quiet", pre_filter="Plain"
    )


def test_a_plugin_that_no_longer_rejects_gives_an_empty_list():
    assert details_of(added(refused("One"), Telling("One", why=()))) == {"n0": []}


def test_feasible_nodes_get_no_details():
    one = Telling("One", why=["no"])
    explanation = refused("One") | {"nodes": {"n0": {"feasible": True, "total": 1}}}

    assert added(explanation, one)["nodes"] == {"n0": {"feasible": True, "total": 1}}
    assert not one.calls


def test_deleted_nodes_and_joint_rejections_get_no_details():
    one = Telling("One", why=["no"])
    explanation = refused("One,Two")
    explanation["nodes"]["gone"] = refused("One")["nodes"]["n0"]

    assert details_of(added(explanation, one)) == {"n0": None, "gone": None}


def test_details_are_limited_for_nodes_with_the_same_rejection():
    one, two = Telling("One", why=["no"]), Telling("Two", why=["no"])

    added(refused("One", "One", "Two", "One"), one, two, nodes_of_a_kind=2)

    assert (one.asked, two.asked) == (["n0", "n1"], ["n2"])


def full(_pod: Any, _snapshot: Any, node: Any) -> list[str]:
    return ["full"] if any(True for _ in node.pods) else []


def test_nominated_pods_are_named_where_nothing_else_rejects_the_node():
    one, guest = Telling("One", why=full), pod("guest")
    explanation = refused("One", "One", "One")
    nominated = {0: [guest], 1: []}

    RefusalDetails([one], ManualClock()).add_to(explanation, POD, SNAPSHOT, nominated)

    expected = "including the pods nominated to this node: default/guest"
    assert details_of(explanation) == {"n0": ["full", expected], "n1": [], "n2": []}


def test_nominated_pods_are_not_named_if_the_node_is_rejected_without_them():
    explanation = refused("One")

    RefusalDetails([Telling("One", why=["no disk"])], ManualClock()).add_to(
        explanation, POD, SNAPSHOT, {0: [pod("guest")]}
    )

    assert details_of(explanation) == {"n0": ["no disk"]}


def test_details_end_after_a_time_limit():
    clock = ManualClock()

    def slow(*_: Any) -> Sequence[str]:
        clock.advance(0.04)
        return ["no"]

    one = Telling("One", why=slow)

    explanation = added(refused("One", "One", "One", "One"), one, clock=clock, seconds=0.05)

    assert one.asked == ["n0", "n1"]
    assert details_of(explanation) == {"n0": ["no"], "n1": ["no"], "n2": None, "n3": None}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(KeyError("zone"), "One returned no valid details: KeyError: 'zone'", id="it raises"),
        pytest.param(
            "no", "One returned no valid details: expected a list of strings, was 'no'", id="one text"
        ),
        pytest.param([1], "One returned no valid details: expected a list of strings, was [1]", id="no text"),
        pytest.param(
            7, "One returned no valid details: TypeError: 'int' object is not iterable", id="nothing like it"
        ),
    ],
)
def test_a_plugin_that_fails_is_named(answer: Any, expected: str):
    assert details_of(added(refused("One"), Telling("One", why=answer))) == {"n0": [expected]}


def test_an_endless_plugin_is_stopped_at_the_first_node_and_not_called_again():
    def endless(*_: Any) -> Any:
        while True:
            pass

    one, two = Telling("One", why=endless), Telling("Two", why=("a", "b"))
    budget = LoopBudget(seconds=0.05)
    budget.take_clock()
    try:
        explanation = added(refused("One", "One", "Two"), one, two, clock=SystemClock(), budget=budget)
    finally:
        budget.give_clock_back()

    assert details_of(explanation) == {
        "n0": ["One returned no valid details: OverBudgetError: stopped: more than 0.05s had passed"],
        "n1": [
            "One returned no valid details: OverBudgetError: not asked: it rests for 60s, since it was stopped again and again"
        ],
        "n2": ["a", "b"],
    }
    assert budget.paused == [], "pods do without what it would say"
