"""Reason codes in what `explain` and `kubectl why` print and answer."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from scheduler.cli.why_output import show_pod, show_waiting
from scheduler.tools.whatif.explanation_text import reason_codes, show
from scheduler.tools.whatif.pending_causes import PendingByCause

CAUSES = [
    {"code": "InsufficientCPU", "plugin": "NodeResourcesFit", "nodes": 2},
    {"code": "NodeUnschedulable", "plugin": "NodeUnschedulable", "nodes": 1},
    {"code": "SchedulingGated", "plugin": "SchedulingGates"},
]
LINE = "Reason codes: InsufficientCPU (2 nodes), NodeUnschedulable (1 node), SchedulingGated"
REJECTED = {
    "feasible": False,
    "plugin": "NodeResourcesFit",
    "code": "Unschedulable",
    "reasons": ["Insufficient cpu"],
    "reasonCodes": ["InsufficientCPU"],
}
EXPLANATION: dict[str, Any] = {
    "verdict": "Pod default/web does not fit.",
    "pod": "default/web",
    "result": "unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
    "causes": CAUSES,
    "preFilter": None,
    "nodes": {"n1": REJECTED},
    "preemption": None,
}


def test_a_line_has_each_code_with_its_number_of_nodes_or_members() -> None:
    assert reason_codes(CAUSES) == LINE
    assert reason_codes([{"code": "NoPlacement", "plugin": "", "members": 4}]) == (
        "Reason codes: NoPlacement (4 members)"
    )
    assert reason_codes([]) == ""


def test_the_text_of_an_explanation_has_the_codes_below_the_message() -> None:
    console = Console(file=io.StringIO(), width=120)

    show(console, EXPLANATION, all_nodes=False)

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[1:3] == [EXPLANATION["message"], LINE]


def test_an_explanation_by_an_earlier_version_has_no_codes() -> None:
    console = Console(file=io.StringIO(), width=120)

    show(console, {key: value for key, value in EXPLANATION.items() if key != "causes"}, all_nodes=False)

    assert "Reason codes" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_text_about_one_node_has_its_codes(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"attempt": EXPLANATION, "decidedBy": "the default plugins", "place": None}

    show_pod(answer, node="n1", as_json=False, all_nodes=False)

    assert "Rejected by NodeResourcesFit (Unschedulable, InsufficientCPU)." in capsys.readouterr().out


@pytest.mark.parametrize("as_json", [False, True])
def test_pending_pods_by_cause_have_the_codes_of_the_first_pod(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    group = PendingByCause("mine", ("Insufficient cpu",), [(2, 2)], 3, False, ["default/web"])
    group.reason_codes = CAUSES

    show_waiting([group], as_json=as_json)

    written = capsys.readouterr().out
    assert ('"nodes": 2' in written) if as_json else (f"  {LINE}\n" in written)
