"""The judge itself: whatever differs is told, and nothing else."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.comparison import compare, is_same_message, not_judged, report
from tests.conformance.corpus import Case

if TYPE_CHECKING:
    from collections.abc import Callable

NOTHING: frozenset[str] = frozenset()

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
    return [f"{each.node} {each.what}".strip() for each in compare(CASE, explanations, NOTHING)]


def test_what_is_equal_is_not_told() -> None:
    assert differing(lambda _: None) == []


@pytest.mark.parametrize(
    ("number", "change", "told"),
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
        pytest.param(0, lambda it: it["nodes"]["n2"].update(plugin="C"), ["n2 refusal"], id="who refused"),
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
def test_whatever_differs_is_told(
    number: int, change: Callable[[dict[str, Any]], Any], told: list[str]
) -> None:
    assert differing(change, number) == told


def test_a_pod_that_is_missing_is_told() -> None:
    assert [each.what for each in compare(CASE, CASE.expected[:2], NOTHING)] == ["pod"]


def test_a_pod_too_many_is_told() -> None:
    assert [each.what for each in compare(CASE, [*CASE.expected, FITS], NOTHING)] == ["pod"]


# While plugins are missing.


def test_zeros_of_a_missing_plugin_are_left_out_and_nothing_else() -> None:
    explanation = copy.deepcopy(FITS)
    del explanation["nodes"]["n1"]["scores"]["Zero"]
    case = Case("case-000", "resources", None, {}, "independent", [FITS])

    assert compare(case, [explanation], frozenset({"Zero"})) == []
    explanation["nodes"]["n1"]["scores"]["A"] = 9
    assert [each.what for each in compare(case, [explanation], frozenset({"Zero"}))] == ["A"]


@pytest.mark.parametrize(
    ("got", "same"),
    [
        pytest.param("0/1 nodes are available: 1 x.", True, id="the part before PostFilter's"),
        pytest.param(WAITS["message"], True, id="all of it"),
        pytest.param("0/1 nodes are available: 1 y.", False, id="another reason"),
        pytest.param("0/1 nodes are", False, id="broken off within a word"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_before_preemption_is_here_a_message_may_lack_what_postfilter_adds(got: str, same: bool) -> None:
    missing = frozenset({"DefaultPreemption", "DynamicResources"})

    assert is_same_message(WAITS["message"], got, missing) is same


HEAD = "0/1 nodes are available: 1 x."
PREEMPTION = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        pytest.param(f"{HEAD} no new claims to deallocate, {PREEMPTION}", HEAD, False, id="nothing of it"),
        pytest.param(
            f"{HEAD} no new claims to deallocate, {PREEMPTION}",
            f"{HEAD} {PREEMPTION}",
            False,
            id="only preemption",
        ),
        pytest.param(f"{HEAD} not found", f"{HEAD} {PREEMPTION}", False, id="an error before preemption"),
        pytest.param(HEAD, HEAD, True, id="preemption found room"),
    ],
)
def test_what_a_plugin_says_that_is_here_in_part_is_compared_whole(
    expected: str, got: str, same: bool
) -> None:
    assert is_same_message(expected, got, frozenset({"DynamicResources"})) is same


def test_with_all_postfilter_plugins_messages_are_compared_whole() -> None:
    expected = f"{HEAD} no new claims to deallocate, {PREEMPTION}"

    assert not is_same_message(expected, f"{HEAD} {PREEMPTION}", NOTHING)
    assert is_same_message(expected, expected, NOTHING)


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        pytest.param({"DynamicResources", "DefaultPreemption"}, [], id="before it is here"),
        pytest.param({"DynamicResources"}, ["preemption"], id="from then on"),
    ],
)
def test_candidates_of_preemption_are_compared_once_it_is_here(missing: set[str], told: list[str]) -> None:
    case = Case("case-000", "resources", None, {}, "independent", [WAITS])

    mismatches = compare(case, [{**WAITS, "preemption": None}], frozenset(missing))

    assert [each.what for each in mismatches] == told


@pytest.mark.parametrize(
    ("missing", "judged"),
    [
        pytest.param({"Zero"}, True, id="it gives every node 0"),
        pytest.param({"A"}, False, id="it gives a node a score"),
        pytest.param({"B"}, False, id="it refuses a node"),
        pytest.param({"P"}, False, id="it refuses a pod"),
        pytest.param({"Elsewhere"}, True, id="it does not occur"),
    ],
)
def test_a_case_is_judged_if_no_missing_plugin_matters_in_it(missing: set[str], judged: bool) -> None:
    assert (not not_judged(CASE, frozenset(missing))) is judged


def test_a_family_about_a_missing_plugin_is_not_judged() -> None:
    case = Case("spread-000", "spread", None, {}, "independent", [])

    assert not_judged(case, frozenset({"PodTopologySpread"})) == "not built yet: PodTopologySpread"


def test_a_report_has_a_limit() -> None:
    explanation = {**FITS, "nodes": {}}
    case = Case("case-000", "resources", None, {}, "independent", [FITS])

    text = report(compare(case, [explanation], NOTHING), limit=1)

    assert "default/fits on n1, verdict:\n    expected {" in text
    assert text.endswith("and 1 more")
