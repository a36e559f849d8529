"""The tables for users."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scheduler.engine.cycle.verdict import with_verdict
from scheduler.tools.whatif.explanation_text import show

LONG = "ip-10-0-119-204.eu-central-1.compute.internal"


def shown(
    explanation: dict[str, Any], *, all_nodes: bool = False, width: int = 80, drawn: bool = False
) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    whole = {
        "pod": "shop/web",
        "message": None,
        "preFilter": None,
        "nodes": {},
        "preemption": None,
        **explanation,
    }
    show(console, with_verdict(whole), all_nodes=all_nodes, drawn=drawn)
    return console.file.getvalue()  # type: ignore[attr-defined]


def refused(plugin: str, *reasons: str, code: str = "Unschedulable", **more: Any) -> dict[str, Any]:
    return {"feasible": False, "plugin": plugin, "code": code, "reasons": list(reasons), **more}


def ranked(total: int, **scores: int) -> dict[str, Any]:
    return {"feasible": True, "scores": scores, "total": total}


def fits(**nodes: dict[str, Any]) -> dict[str, Any]:
    best = max((verdict["total"] for verdict in nodes.values() if "total" in verdict), default=0)
    named = [name for name, verdict in nodes.items() if verdict.get("total") == best]
    return {"result": "schedulable", "nodes": nodes, "best": named}


def waits(nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"result": "unschedulable", "message": "0/3 nodes are available: 3 no.", "nodes": nodes, **more}


# The ranking.


def test_different_scores_are_columns_and_equal_scores_one_line() -> None:
    text = shown(
        {
            **fits(
                n1=ranked(305, TaintToleration=300, NodeResourcesFit=5, NodeAffinity=0),
                n2=ranked(597, TaintToleration=300, NodeResourcesFit=97, NodeAffinity=200),
                n3=refused("TaintToleration", "node(s) had untolerated taint(s)"),
            ),
            "weights": {"TaintToleration": 3, "NodeResourcesFit": 1, "NodeAffinity": 2},
        }
    )

    assert text.splitlines()[:9] == [
        (
            "Pod shop/web fits on 2 of 3 nodes; best: n2, because its total is 597, and that of the next, n1, is 305 "
            "(NodeAffinity 200 higher, NodeResourcesFit 92 higher)."
        ),
        "Chosen node: n2.",
        "Nodes by rank, with score x weight of each plugin:",
        "  the same on all nodes: TaintToleration 100 x 3",
        "                    Node          ",
        "               Resources      Node",
        "  Node  Total        Fit  Affinity",
        "  n2      597         97   100 x 2",
        "  n1      305          5     0 x 2",
    ]


def test_without_space_for_columns_each_node_has_its_scores_below() -> None:
    plugins = ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "PodTopologySpread", "InterPodAffinity")
    nodes = {f"{LONG}-{number}": ranked(number, **dict.fromkeys(plugins, number)) for number in range(2)}

    lines = shown({**fits(**nodes), "weights": {}}).splitlines()

    assert lines[3:6] == [
        f"  {LONG}-1  total 1",
        "      NodeResourcesFit 1, NodeResourcesBalancedAllocation 1, PodTopologySpread",
        "      1, InterPodAffinity 1",
    ]
    assert max(map(len, shown({**fits(**nodes), "weights": {}}, width=120).splitlines())) > 80


def test_a_single_node_has_all_its_scores() -> None:
    text = shown({**fits(n1=ranked(7, NodeResourcesFit=7)), "weights": {"NodeResourcesFit": 1}})

    assert "  n1  total 7\n      NodeResourcesFit 7\n" in text


def test_unranked_nodes_have_their_totals() -> None:
    assert "Nodes by rank:\n  Node  Total\n  n1        1\n  n2        1\n" in shown(
        fits(n1={"feasible": True, "total": 1}, n2={"feasible": True, "total": 1})
    )


def test_avoided_nodes_are_listed_separately_and_not_ranked() -> None:
    rests = {"feasible": True, "avoided": "a kubelet refused pods"}

    text = shown(fits(n1=ranked(1), n2=rests, n3=rests))

    assert "Not scored, avoided (a kubelet refused pods): n2, n3\n" in text


def test_nodes_not_ranked_because_of_an_error_are_named() -> None:
    assert "Not scored: n1" in shown(
        {"result": "error", "message": "no", "nodes": {"n1": {"feasible": True}}}
    )


# Where it goes.


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        pytest.param({}, "Chosen node: one of n1, n2, n3 and 1 more, at random among the 4 with the highest total.", id="file"),
        pytest.param({"chosen": "n1"}, "Chosen node: n1, the first of the 4 with the highest total.", id="sequence"),
        pytest.param(
            {"chosen": "n4", "drawn": True}, "Chosen node: n4, at random among the 4 with the highest total.", id="daemon"
        ),
    ],
)  # fmt: skip
def test_random_ties_are_reported(more: dict[str, Any], sentence: str) -> None:
    drawn = more.pop("drawn", False)

    assert f"\n{sentence}\n" in shown(
        {**fits(**{f"n{n}": ranked(1) for n in range(1, 5)}), **more}, drawn=drawn, width=100
    )


def test_only_the_nominated_node_is_listed_as_examined() -> None:
    nodes = {"n1": {"feasible": True}}
    text = shown(
        {
            "result": "schedulable",
            "nodes": nodes,
            "chosen": "n1",
            "nominatedNodeName": "n1",
            "notExamined": 29,
        }
    )

    assert text.splitlines() == [
        "Pod shop/web fits on 1 of 1 nodes; best: n1, because it is nominated there.",
        "Chosen node: n1, the nominated node.",
        "Nodes not examined: 29.",
        "",
    ]


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        pytest.param(ranked(90), "Its current node n9 has a total that is 10 lower.", id="a worse one"),
        pytest.param(ranked(100), "Its current node n9 is one of them.", id="one of the best"),
        pytest.param(ranked(101), "Its current node n9 is the same.", id="the best"),
        pytest.param(
            refused("NodeAffinity", "no label", "no zone"),
            "Its current node n9 would be rejected by NodeAffinity: no label, no zone.",
            id="a node that does not fit",
        ),
    ],
)
def test_a_pod_on_a_node_is_compared_with_the_best_choice(verdict: dict[str, Any], sentence: str) -> None:
    text = shown({**fits(n1=ranked(100), n9=verdict), "node": "n9"})

    assert text.startswith("Pod shop/web is on node n9; if it were pending, it ")
    assert f"\n{sentence}\n" in text


# Where it could go.

CANDIDATES = {
    "n1": {"victims": ["a/x", "a/y"], "pdbViolations": 0},
    "n2": {"victims": ["b/z"], "pdbViolations": 1},
    "n3": {"victims": [f"c/{number}" for number in range(12)], "pdbViolations": 0},
}


def room(best: list[str], *, all_nodes: bool = False, **more: Any) -> list[str]:
    preemption = {"candidates": CANDIDATES, "nominated": best}
    return shown(waits({}, preemption=preemption, **more), all_nodes=all_nodes, width=200).splitlines()[2:-1]


def test_victims_are_listed_for_the_best_node() -> None:
    assert room(["n1"]) == [
        "Preemption could use n1, evicting a/x, a/y.",
        "Preemption could use 2 more nodes: --all-nodes shows them.",
    ]


def test_victims_are_listed_for_all_nodes_on_request() -> None:
    assert room(["n2"], all_nodes=True) == [
        "Preemption could use n2, evicting b/z, violating the PodDisruptionBudgets of 1 of them.",
        "Preemption could use n1, evicting a/x, a/y.",
        f"Preemption could use n3, evicting {', '.join(CANDIDATES['n3']['victims'])}.",  # type: ignore[arg-type]
    ]


def test_very_many_victims_are_counted() -> None:
    assert room(["n3"])[0].endswith("c/8, c/9 and 2 more.")


def test_current_victims_are_listed_apart_from_possible_ones() -> None:
    assert room(["n1", "n3"], nominates="n3")[:2] == [
        "Nominated node: n3, evicting c/0, c/1, c/2, c/3, c/4, c/5, c/6, c/7, c/8, c/9 and 2 more.",
        "Preemption could also use n1, evicting a/x, a/y.",
    ]


def test_a_preemption_without_candidates_is_not_shown() -> None:
    assert shown(waits({}, preemption={"candidates": {}, "nominated": []})).splitlines() == [
        "Pod shop/web does not fit: 0/3 nodes are available: 3 no.",
        "0/3 nodes are available: 3 no.",
        "",
    ]


PROTECTED = {
    f"n{number}": {
        "pod": f"a/{number}",
        "until": f"2026-03-01T08:0{9 - number}:00Z",
        "by": "PriorityClass batch",
    }
    for number in range(4)
} | {"n9": {"pod": "a/9", "until": None, "by": "a toleration"}}


def protections(*, all_nodes: bool = False) -> list[str]:
    preemption = {"candidates": {}, "nominated": [], "protected": PROTECTED}
    return shown(waits({}, preemption=preemption), all_nodes=all_nodes, width=200).splitlines()[2:-1]


def test_the_protections_that_end_first_are_listed() -> None:
    assert protections() == [
        "On n3 pod a/3 is protected from preemption until 2026-03-01T08:06:00Z, by PriorityClass batch.",
        "On n2 pod a/2 is protected from preemption until 2026-03-01T08:07:00Z, by PriorityClass batch.",
        "On n1 pod a/1 is protected from preemption until 2026-03-01T08:08:00Z, by PriorityClass batch.",
        "Pods on 2 more nodes are protected: --all-nodes shows them.",
    ]


def test_a_protection_without_end_is_listed_last() -> None:
    assert protections(all_nodes=True)[-1] == (
        "On n9 pod a/9 is protected from preemption without end, by a toleration."
    )


def test_the_protections_of_a_pod_on_a_node_are_listed_by_cause() -> None:
    protection = {"cause": "reclaim of quota", "pod": "shop/web", "until": None, "by": "ElasticQuota shop/q"}
    text = shown({**fits(n9=ranked(100)), "node": "n9", "protections": [protection]}, width=120)

    assert "\nPod shop/web is protected from reclaim of quota without end, by ElasticQuota shop/q.\n" in text


# Rejecting plugins.


def test_rejected_nodes_are_grouped_by_plugin_and_reason_largest_group_first() -> None:
    nodes = {f"small-{number}": refused("NodeResourcesFit", "Insufficient cpu") for number in range(5)}
    code = "UnschedulableAndUnresolvable"
    nodes["far"] = refused("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", code=code)

    assert shown(waits(nodes)).splitlines()[2:-1] == [
        "Rejected nodes:",
        "  5 nodes: NodeResourcesFit: Insufficient cpu",
        "     small-0, small-1, small-2 and 2 more",
        "  1 node: NodeAffinity: node(s) didn't match Pod's node affinity/selector",
        "     far",
        "  --all-nodes shows all of them",
    ]


def test_the_details_of_identical_nodes_are_shown_once() -> None:
    short = {"details": ["needs 2 cpu, 1.5 free of 4", "needs 2Gi memory, 1Gi free of 8Gi"]}
    nodes = {
        "n1": refused("Fit", "no", **short),
        "n2": refused("Fit", "no", **short),
        "n3": refused("Fit", "no", details=[]),
        "n4": refused("Fit", "no"),
        "n5": refused("Fit", "no"),
    }

    assert shown(waits(nodes)).splitlines()[3:-1] == [
        "  5 nodes: Fit: no",
        "     n1, n2: needs 2 cpu, 1.5 free of 4; needs 2Gi memory, 1Gi free of 8Gi",
        "     n3: the reason no longer applies; it did at the time of the decision",
        "     and 2 more",
    ]
    assert shown(waits(nodes), width=40).splitlines()[4:8] == [
        "     n1, n2:",
        "       needs 2 cpu, 1.5 free of 4",
        "       needs 2Gi memory, 1Gi free of 8Gi",
        "     n3:",
    ]


def test_long_sentences_are_wrapped_between_words_and_stay_separate() -> None:
    details = ["claim data needs a volume of the class local:", "  pv-2 is only for nodes in another zone"]

    assert shown(waits({"n1": refused("V", "no", details=details)}), width=30).splitlines()[4:-1] == [
        "     n1:",
        "       claim data needs a",
        "         volume of the class",
        "         local:",
        "         pv-2 is only for",
        "           nodes in another",
        "           zone",
    ]


def test_only_a_few_of_many_kinds_of_nodes_are_shown_by_default() -> None:
    nodes = {f"n{number}": refused("V", "no", details=[f"disk-{number}"]) for number in range(8)}

    few, every = shown(waits(nodes)), shown(waits(nodes), all_nodes=True)

    assert [number for number in range(8) if f"disk-{number}" in few] == [0, 1, 2]
    assert "     and 5 more\n  --all-nodes shows all of them\n" in few
    assert all(f"n{number}: disk-{number}\n" in every for number in range(8))


def test_a_node_whose_evaluation_failed_has_its_code() -> None:
    assert "  1 node: A: a bug (Error)\n" in shown(waits({"n1": refused("A", "a bug", code="Error")}))


def test_a_prefilter_rejection_names_the_plugin_and_its_details() -> None:
    text = shown(waits({}, preFilter=refused("VolumeBinding", "bad claim", details=["claim data: none"])))

    assert "VolumeBinding rejects the pod on every node:\n  claim data: none\n" in text


# All of it.


def test_all_nodes_are_named_on_request() -> None:
    nodes = {f"no-{number}": refused("A", "no") for number in range(50)}
    nodes |= {f"yes-{number}": ranked(number) for number in range(50)}

    some, everything = shown(fits(**nodes)), shown(fits(**nodes), all_nodes=True)

    assert "and 40 more: --all-nodes shows them" in some
    assert "yes-0 " not in some
    for number in range(50):
        assert re.search(rf"\bno-{number}\b", everything)
        assert re.search(rf"\byes-{number}\b", everything)


def test_a_gated_pod_is_shown_in_two_lines() -> None:
    text = shown({"result": "gated", "message": "waiting for quota"})

    assert text.splitlines() == ["Pod shop/web is not attempted: waiting for quota.", "waiting for quota", ""]


@pytest.mark.parametrize(
    ("requeued", "line"), [(True, "The event requeues it."), (False, "The event does not requeue it.")]
)
def test_the_effect_of_an_event_on_a_pending_pod_is_shown(requeued: bool, line: str) -> None:
    text = shown({"result": "gated", "message": "waiting for quota", "requeued": requeued})

    assert text.splitlines() == [
        "Pod shop/web is not attempted: waiting for quota.",
        line,
        "waiting for quota",
        "",
    ]


def test_the_message_is_one_unchanged_line() -> None:
    message = f"0/9 nodes are available: {', '.join(f'{n} node(s) had reason {n}' for n in range(1, 9))}."

    assert f"\n{message}\n" in shown({"result": "unschedulable", "message": message})


NAMES = st.from_regex(r"[a-z]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)
PLUGINS = st.sampled_from(
    ["NodeResourcesFit", "NodeResourcesBalancedAllocation", "TaintToleration", "X", "odd.example"]
)
TEXTS = st.lists(st.text("abcxyz09:,()/-", min_size=1, max_size=40), min_size=1, max_size=20).map(" ".join)
VERDICTS = st.one_of(
    st.builds(lambda total, scores: ranked(total, **scores), st.integers(0, 900), st.just({"A": 1, "NodeAffinity": 3})),
    st.builds(
        lambda plugin, reasons, details: refused(plugin, *reasons, details=details),
        PLUGINS, st.lists(TEXTS, min_size=1, max_size=3), st.lists(TEXTS, max_size=4),
    ),
)  # fmt: skip


@given(
    st.dictionaries(NAMES, VERDICTS, min_size=1, max_size=12), st.sampled_from([40, 80, 120]), st.booleans()
)
def test_lines_fit_the_width_and_break_at_spaces(nodes: dict[str, Any], width: int, every: bool) -> None:
    whole = {**fits(**nodes), "weights": {"A": 1, "NodeAffinity": 3}}

    lines = shown(whole, width=width, all_nodes=every).splitlines()

    reported = {"shop/web", *nodes, *(word for verdict in nodes.values() for word in _words(verdict))}
    for line in lines[1:]:
        assert len(line) <= width or any(word in line and len(word) > width - 16 for word in reported), line
    if every:
        text = "\n".join(lines)
        assert all(word in text for word in reported)


def _words(verdict: dict[str, Any]) -> list[str]:
    return " ".join([*verdict.get("reasons", ()), *verdict.get("details", ())]).split()
