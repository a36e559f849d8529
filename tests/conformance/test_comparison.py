"""The comparison reports each difference and nothing else."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.comparison import compare, report
from tests.conformance.corpus import Case

if TYPE_CHECKING:
    from collections.abc import Callable


FITS: dict[str, Any] = {
    "pod": "default/fits",
    "result": "schedulable",
    "message": None,
    "preFilter": None,
    "preFilterNodes": ["n1", "n2"],
    "nodes": {
        "n1": {"feasible": True, "scores": {"A": 1, "Zero": 0}, "total": 1},
        "n2": {"feasible": False, "plugin": "B", "code": "Unschedulable", "reasons": ["x", "y"]},
    },
    "preemption": None,
    "best": ["n1"],
    "chosen": "n1",
}
WAITS: dict[str, Any] = {
    "pod": "default/waits",
    "result": "unschedulable",
    "message": "0/1 nodes are available: 1 x. preemption: 0/1 nodes are available: 1 x.",
    "preFilter": {"plugin": "P", "code": "Unschedulable", "reasons": ["x"]},
    "nodes": {},
    "preemption": {"candidates": {}, "nominated": []},
}
FAILS: dict[str, Any] = {
    "pod": "default/fails",
    "result": "error",
    "message": "somebody's words",
    "preFilter": None,
    "nodes": {"n1": {"feasible": False, "plugin": "B", "code": "Error", "reasons": ["somebody's words"]}},
    "preemption": None,
}
CASE = Case("case-000", "resources", None, {}, "independent", [FITS, WAITS, FAILS])


def differing(change: Callable[[dict[str, Any]], Any], number: int = 0) -> list[str]:
    """What is told after a change of one explanation: node and field of each mismatch."""
    explanations = copy.deepcopy(CASE.expected)
    change(explanations[number])
    return [f"{each.node} {each.what}".strip() for each in compare(CASE, explanations)]


def test_the_best_nodes_are_recorded_for_sequences_only() -> None:
    assert differing(lambda it: it.update(best=["n1"]), 1) == []


def test_equal_verdicts_are_not_reported() -> None:
    assert differing(lambda _: None) == []


@pytest.mark.parametrize(
    ("number", "change", "expected"),
    [
        pytest.param(0, lambda it: it.update(result="error"), ["result"], id="result"),
        pytest.param(0, lambda it: it.pop("preFilterNodes"), ["preFilterNodes"], id="narrowing"),
        pytest.param(0, lambda it: it.update(chosen="n2"), ["chosen"], id="choice"),
        pytest.param(0, lambda it: it.update(best=["n1", "n2"]), ["best"], id="best nodes"),
        pytest.param(0, lambda it: it["nodes"]["n1"]["scores"].update(A=2), ["n1 A"], id="a score"),
        pytest.param(
            0, lambda it: it["nodes"]["n1"]["scores"].pop("Zero"), ["n1 Zero"], id="a scorer that ran"
        ),
        pytest.param(0, lambda it: it["nodes"]["n1"]["scores"].update(C=0), ["n1 C"], id="one that did not"),
        pytest.param(0, lambda it: it["nodes"]["n1"].update(total=2), ["n1 total"], id="a total"),
        pytest.param(0, lambda it: it["nodes"].pop("n2"), ["n2 verdict"], id="a node that is missing"),
        pytest.param(
            0, lambda it: it["nodes"].update(n3={"feasible": True}), ["n3 verdict"], id="one too many"
        ),
        pytest.param(
            0, lambda it: it["nodes"].update(n2=it["nodes"]["n1"]), ["n2 verdict"], id="feasible after all"
        ),
        pytest.param(
            0, lambda it: it["nodes"]["n2"].update(plugin="C"), ["n2 refusal"], id="the rejecting plugin"
        ),
        pytest.param(0, lambda it: it["nodes"]["n2"].update(code="Error"), ["n2 refusal"], id="how"),
        pytest.param(
            0, lambda it: it["nodes"]["n2"]["reasons"].reverse(), ["n2 refusal"], id="order of reasons"
        ),
        pytest.param(1, lambda it: it["preFilter"].update(plugin="Q"), ["preFilter"], id="PreFilter"),
        pytest.param(
            1, lambda it: it.update(message="0/1 nodes are available: 1 x."), ["message"], id="message"
        ),
        pytest.param(1, lambda it: it.update(preemption=None), ["preemption"], id="preemption"),
        pytest.param(
            2, lambda it: it.update(message="other words"), [], id="the words of an error do not count"
        ),
        pytest.param(
            2, lambda it: it["nodes"]["n1"].update(reasons=["other"]), [], id="nor those about a node"
        ),
        pytest.param(0, lambda it: it.update(pod="default/other"), ["pod"], id="another pod"),
    ],
)
def test_each_difference_is_reported(
    number: int, change: Callable[[dict[str, Any]], Any], expected: list[str]
) -> None:
    assert differing(change, number) == expected


def test_a_missing_pod_is_reported() -> None:
    assert [each.what for each in compare(CASE, CASE.expected[:2])] == ["pod"]


def test_an_extra_pod_is_reported() -> None:
    assert [each.what for each in compare(CASE, [*CASE.expected, FITS])] == ["pod"]


def test_a_report_has_at_most_a_given_number_of_lines() -> None:
    explanation = {**FITS, "nodes": {}}
    case = Case("case-000", "resources", None, {}, "independent", [FITS])

    text = report(compare(case, [explanation]), limit=1)

    assert "default/fits on n1, verdict:\n    expected {" in text
    assert text.endswith("and 1 more")
