"""What people read."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from scheduler.whatif.table import show


def shown(explanation: dict[str, Any], *, all_nodes: bool = False, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(console, {"message": None, "preFilter": None, "nodes": {}, **explanation}, all_nodes=all_nodes)
    return console.file.getvalue()  # type: ignore[attr-defined]


def refused(plugin: str, *reasons: str, code: str = "Unschedulable") -> dict[str, Any]:
    return {"feasible": False, "plugin": plugin, "code": code, "reasons": list(reasons)}


def ranked(total: int, **scores: int) -> dict[str, Any]:
    return {"feasible": True, "scores": scores, "total": total}


def test_the_best_nodes_come_first_with_a_column_for_each_plugin() -> None:
    text = shown(
        {
            "pod": "shop/web",
            "result": "schedulable",
            "nodes": {
                "n1": ranked(5, NodeResourcesFit=5),
                "n2": ranked(97, NodeResourcesFit=97),
                "n3": refused("TaintToleration", "node(s) had untolerated taint(s)"),
            },
        }
    )

    assert "shop/web: schedulable, 2 of 3 nodes can run it" in text
    assert text.index("n2") < text.index("n1")
    for word in ("Node", "Resources", "Fit", "97", "node(s) had untolerated taint(s)"):
        assert word in text


def test_refused_nodes_are_grouped_by_plugin_and_reason_largest_group_first() -> None:
    nodes = {f"small-{number}": refused("NodeResourcesFit", "Insufficient cpu") for number in range(5)}
    nodes["far"] = refused("NodeAffinity", "node(s) didn't satisfy plugin(s) [NodeAffinity]")

    text = shown(
        {"pod": "shop/web", "result": "unschedulable", "message": "0/6 nodes are available", "nodes": nodes}
    )

    assert "0/6 nodes are available" in text
    assert "small-0, small-1, small-2 and 2 more" in text
    assert "[NodeAffinity]" in text
    assert text.index("Insufficient cpu") < text.index("[NodeAffinity]")


def test_all_nodes_are_named_when_asked_for() -> None:
    nodes = {f"no-{number}": refused("A", "no") for number in range(50)}
    nodes |= {f"yes-{number}": ranked(number) for number in range(50)}
    explanation = {"pod": "shop/web", "result": "schedulable", "nodes": nodes}

    some, everything = shown(explanation), shown(explanation, all_nodes=True)

    assert "and 40 more: --all-nodes shows them" in some
    assert "yes-0 " not in some
    for number in range(50):
        assert f"no-{number}" in everything
        assert f"yes-{number}" in everything


def test_a_choice_in_a_sequence_is_told_with_its_ties() -> None:
    text = shown(
        {
            "pod": "shop/web",
            "result": "schedulable",
            "nodes": {"n1": ranked(1), "n2": ranked(1)},
            "best": ["n1", "n2"],
            "chosen": "n1",
        }
    )

    assert "goes to n1, the first of 2 with the same total" in text


def test_a_refusal_by_prefilter_names_the_plugin() -> None:
    text = shown(
        {
            "pod": "shop/web",
            "result": "unschedulable",
            "message": "0/9 nodes are available: bad claim.",
            "preFilter": {"plugin": "VolumeBinding", "code": "Unschedulable", "reasons": ["bad claim"]},
        }
    )

    assert "VolumeBinding refuses the pod, whatever the node." in text


def test_a_gated_pod_is_told_in_two_lines() -> None:
    text = shown({"pod": "shop/web", "result": "gated", "message": "waiting for quota"})

    assert text.splitlines() == ["shop/web: gated", "waiting for quota", ""]


@pytest.mark.parametrize(
    ("wakes", "line"), [(True, "The event wakes it."), (False, "It sleeps on after the event.")]
)
def test_what_an_event_does_to_a_waiting_pod_is_told(wakes: bool, line: str) -> None:
    text = shown({"pod": "shop/web", "result": "gated", "message": "waiting for quota", "wakes": wakes})

    assert text.splitlines() == ["shop/web: gated", line, "waiting for quota", ""]


def test_nodes_that_were_not_ranked_because_of_an_error_are_named() -> None:
    text = shown(
        {
            "pod": "shop/web",
            "result": "error",
            "message": "running Score plugin",
            "nodes": {"n1": {"feasible": True}},
        }
    )

    assert "Not ranked: n1" in text


def test_what_plugins_say_of_nodes_is_told_once_for_nodes_alike() -> None:
    far = {**refused("VolumeBinding", "no"), "details": ["claim data: far", "what would help: a node"]}
    nodes = {"n1": far, "n2": far, "n3": {**far, "details": []}, "n4": refused("VolumeBinding", "no")}

    text = shown({"pod": "shop/web", "result": "unschedulable", "nodes": nodes}, width=60)

    assert "VolumeBinding on n1, n2:\n  claim data: far\n  what would help: a node\n" in text
    assert "VolumeBinding on n3:\n  nothing is in the way any more" in text
    assert "on n4" not in text


def test_of_many_kinds_of_nodes_a_few_are_told_of_unless_all_are_wanted() -> None:
    nodes = {f"n{number}": {**refused("V", "no"), "details": [f"disk-{number}"]} for number in range(8)}
    explanation = {"pod": "shop/web", "result": "unschedulable", "nodes": nodes}

    few, every = shown(explanation), shown(explanation, all_nodes=True)

    assert [number for number in range(8) if f"disk-{number}" in few] == [0, 1, 2, 3, 4]
    assert "and more of 3 other kinds of nodes: --all-nodes shows it" in few
    assert all(f"disk-{number}" in every for number in range(8))


def test_what_a_plugin_says_of_the_pod_follows_its_name() -> None:
    refusal = {**refused("VolumeBinding", "no"), "details": ["claim data: none"]}

    text = shown({"pod": "shop/web", "result": "unschedulable", "preFilter": refusal})

    assert "VolumeBinding refuses the pod, whatever the node.\n  claim data: none\n" in text
