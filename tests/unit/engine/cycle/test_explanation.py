"""Explanations of decisions as JSON, with the details of plugins."""

from __future__ import annotations

import json
import math
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.clock import SystemClock
from scheduler.engine.cycle.attempt import Decision
from scheduler.engine.cycle.explanation import RefusalDetails, explain, explain_gated
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.runtime.budget import LoopBudget
from scheduler.framework import CycleState, PostFilterResult, PreFilterResult, Status
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import REPORT, PreemptionReport, Protected
from tests.support.builders import pod
from tests.support.manual_clock import ManualClock
from tests.support.scripted_plugins import Filter, NodeFilter, NodeScore, PostFilter, PreFilter, framework_of
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

SNAPSHOT = snapshot_of("n0", "n1", "n2")
POD = pod("web", namespace="shop")
NOMINATED = pod("web", status={"nominatedNodeName": "n1"})


def explained(
    *plugins: Plugin, snapshot: Snapshot = SNAPSHOT, weights: Any = None, each: PodInfo = POD
) -> dict[str, Any]:
    framework = framework_of(*plugins, weights=weights)
    decision = schedule_pod(framework, each, snapshot, nominated={}, random=Random(1), exhaustive=True)
    explanation = explain(decision, snapshot.names)
    json.dumps(explanation)  # only plain JSON values
    return explanation


def refusing(*names: str, status: Status) -> Any:
    return lambda _state, _pod, node: status if node.name in names else None


def test_a_schedulable_pod_has_scores_totals_and_the_rejections_of_other_nodes():
    explanation = explained(
        NodeFilter("F", refusing("n1", status=Status.unschedulable("too small", "too slow"))),
        NodeScore("A", lambda _state, _pod, node: 10 * node.row),
        NodeScore("B", 1),
        weights={"A": 2, "B": 3},
    )

    assert explanation == {
        "pod": "shop/web",
        "result": "schedulable",
        "message": None,
        "causes": [],
        "preFilter": None,
        "nodes": {
            "n0": {"feasible": True, "scores": {"A": 0, "B": 3}, "total": 3},
            "n1": {
                "feasible": False,
                "plugin": "F",
                "code": "Unschedulable",
                "reasons": ["too small", "too slow"],
                "reasonCodes": ["F"],
            },
            "n2": {"feasible": True, "scores": {"A": 40, "B": 3}, "total": 43},
        },
        "weights": {"A": 2, "B": 3},
        "best": ["n2"],
        "preemption": None,
    }
    assert list(explanation)[:6] == ["pod", "result", "message", "causes", "preFilter", "nodes"]


def test_all_nodes_with_the_highest_total_are_named():
    explanation = explained(NodeScore("A", lambda _state, _pod, node: 5 if node.name != "n1" else 4))

    assert explanation["best"] == ["n0", "n2"]


def test_unsampled_nodes_are_counted_and_not_feasible():
    decision = schedule_pod(framework_of(), NOMINATED, SNAPSHOT, nominated={}, random=Random(1))

    explanation = explain(decision, SNAPSHOT.names)

    assert explanation["nodes"] == {"n1": {"feasible": True}}
    assert (explanation["nominatedNodeName"], explanation["notExamined"]) == ("n1", 2)


def test_the_nominated_node_is_the_best_one_whatever_the_scores():
    explanation = explained(NodeScore("A", lambda _state, _pod, node: 10 * node.row), each=NOMINATED)

    assert (explanation["result"], explanation["best"]) == ("schedulable", ["n1"])
    assert {name: verdict["total"] for name, verdict in explanation["nodes"].items()} == {
        "n0": 0,
        "n1": 10,
        "n2": 20,
    }


def test_a_nominated_node_that_does_not_fit_has_no_influence():
    refused = NodeFilter("F", refusing("n1", status=Status.unschedulable("full")))
    explanation = explained(refused, NodeScore("A", 1), each=NOMINATED)

    assert (explanation["result"], explanation["best"]) == ("schedulable", ["n0", "n2"])


@pytest.mark.parametrize(
    "plugin",
    [
        NodeFilter("F", refusing("n2", status=Status.failed("no answer"))),
        NodeScore("S", lambda _state, _pod, node: {"n0": 0, "n1": 1}[node.name]),
    ],
    ids=["Filter", "Score"],
)
def test_a_failure_at_another_node_does_not_affect_a_nominated_pod(plugin: Plugin):
    explanation = explained(plugin, each=NOMINATED)

    assert (explanation["result"], explanation["message"]) == ("schedulable", None)
    assert explanation["nodes"] == {"n1": {"feasible": True}}
    assert explanation["notExamined"] == 2


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        pytest.param(
            PreemptionReport({0: ([pod("x", namespace="a"), pod("y", namespace="a")], 1), 2: ([], 0)}, [2]),
            {
                "candidates": {
                    "n0": {"victims": ["a/x", "a/y"], "pdbViolations": 1},
                    "n2": {"victims": [], "pdbViolations": 0},
                },
                "nominated": ["n2"],
            },
            id="a preemption report",
        ),
        pytest.param(
            PreemptionReport(
                {},
                [],
                {
                    0: Protected("a/x", 1_800_000_000.5, "PriorityClass batch", ""),
                    1: Protected("a/y", math.inf, "a toleration", ""),
                },
            ),
            {
                "candidates": {},
                "nominated": [],
                "protected": {
                    "n0": {"pod": "a/x", "until": "2027-01-15T08:00:01Z", "by": "PriorityClass batch"},
                    "n1": {"pod": "a/y", "until": None, "by": "a toleration"},
                },
            },
            id="protected pods",
        ),
        pytest.param("somebody else's", None, id="a plugin of that name wrote something else"),
    ],
)
def test_the_preemption_report_is_explained(report: Any, expected: Any):
    state = CycleState()
    state.write(REPORT, report)
    decision = Decision(POD, state, Diagnosis.blank(3), status=Status.unschedulable("no"))

    assert explain(decision, SNAPSHOT.names)["preemption"] == expected


def test_a_single_feasible_node_is_ranked_too():
    explanation = explained(
        NodeFilter("F", refusing("n1", "n2", status=Status.unschedulable("no"))), NodeScore("A", 7)
    )

    assert explanation["nodes"]["n0"] == {"feasible": True, "scores": {"A": 7}, "total": 7}


def test_without_scorers_every_node_has_a_total_of_one():
    explanation = explained()

    assert explanation["nodes"]["n2"] == {"feasible": True, "total": 1}


def test_an_unschedulable_pod_has_the_message_of_its_event():
    explanation = explained(
        NodeFilter("F", refusing("n0", "n1", status=Status.unschedulable("no", resolvable=False))),
        NodeFilter("G", Status.unschedulable("never")),
        PostFilter("P", PostFilterResult(Status.unschedulable("nothing to evict"), None)),
    )

    assert explanation["result"] == "unschedulable"
    assert explanation["message"] == "0/3 nodes are available: 1 never, 2 no. nothing to evict"
    assert [verdict["plugin"] for verdict in explanation["nodes"].values()] == ["F", "F", "G"]
    assert explanation["nodes"]["n0"]["code"] == "UnschedulableAndUnresolvable"


def test_nodes_left_out_by_prefilter_name_its_plugins():
    explanation = explained(
        PreFilter("Y", PreFilterResult(frozenset({"n1", "ghost", "n2"}))),
        PreFilter("X", PreFilterResult(frozenset({"n1", "ghost"}))),
        NodeScore("A", 1),
    )

    assert explanation["preFilterNodes"] == ["ghost", "n1"]
    assert explanation["nodes"]["n0"] == {
        "feasible": False,
        "plugin": "X,Y",
        "code": "UnschedulableAndUnresolvable",
        "reasons": ["node(s) didn't satisfy plugin(s) [X Y]"],
        "reasonCodes": ["ExcludedByPreFilter"],
    }
    assert explanation["nodes"]["n1"]["feasible"]
    assert list(explanation)[4:6] == ["preFilter", "preFilterNodes"]


def test_a_pod_rejected_by_prefilter_has_no_verdicts_on_nodes():
    explanation = explained(PreFilter("X", Status.unschedulable("bad claim", resolvable=False)))

    assert explanation["result"] == "unschedulable"
    assert explanation["preFilter"] == {
        "plugin": "X",
        "code": "UnschedulableAndUnresolvable",
        "reasons": ["bad claim"],
        "reasonCodes": ["X"],
    }
    assert explanation["nodes"] == {}
    assert explanation["message"] == "0/3 nodes are available: bad claim."


def test_without_nodes_nothing_is_evaluated():
    explanation = explained(NodeFilter("F", KeyError("asked")), snapshot=snapshot_of())

    assert explanation["result"] == "unschedulable"
    assert explanation["message"] == "no nodes available to schedule pods"
    assert explanation["nodes"] == {}


@pytest.mark.parametrize(
    ("plugin", "nodes"),
    [
        pytest.param(PreFilter("X", KeyError("k")), {}, id="PreFilter raises, no node is evaluated"),
        pytest.param(
            Filter("X", KeyError("k")),
            {"n0": False},
            id="Filter raises, earlier rejections stay",
        ),
        pytest.param(
            NodeFilter("X", refusing("n1", status=Status.failed("disk"))),
            {"n0": False, "n1": False, "n2": True},
            id="Filter fails at one node",
        ),
        pytest.param(
            NodeScore("X", KeyError("k")),
            {"n0": False, "n1": True, "n2": True},
            id="Score raises: all nodes were filtered",
        ),
    ],
)
def test_an_error_keeps_the_verdicts_before_it(plugin: Plugin, nodes: dict[str, bool]):
    explanation = explained(NodeFilter("F", refusing("n0", status=Status.unschedulable("no"))), plugin)

    assert explanation["result"] == "error"
    assert '"X"' in explanation["message"]
    assert explanation["preFilter"] is None
    assert {name: verdict["feasible"] for name, verdict in explanation["nodes"].items()} == nodes
    assert all(
        verdict == {"feasible": True} for verdict in explanation["nodes"].values() if verdict["feasible"]
    )


def test_a_node_whose_evaluation_failed_has_the_code_error():
    explanation = explained(NodeFilter("X", refusing("n1", status=Status.failed("disk"))))

    assert explanation["nodes"]["n1"] == {
        "feasible": False,
        "plugin": "X",
        "code": "Error",
        "reasons": ["disk"],
        "reasonCodes": [],
    }


def test_a_gated_pod_has_the_message_of_its_gate():
    assert explain_gated(POD, Status.unschedulable("waiting for quota")) == {
        "verdict": "Pod shop/web is not attempted: waiting for quota.",
        "pod": "shop/web",
        "result": "gated",
        "message": "waiting for quota",
        "causes": [],
        "preFilter": None,
        "nodes": {},
        "preemption": None,
    }


REJECTED_POD = pod("web")
SIX_NODES = snapshot_of(*(f"n{number}" for number in range(6)))


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
    RefusalDetails(plugins, limits.pop("clock", ManualClock()), **limits).add_to(
        explanation, REJECTED_POD, SIX_NODES
    )
    return explanation


def test_each_node_has_the_details_of_its_plugin():
    one = Telling("One", why=lambda _pod, _snapshot, node: [f"disk of row {node.row}"])
    two = Telling("Two", why=("a", "b"))

    explanation = added(refused("One", "One", "Two"), one, two, Filter("Three"))

    assert details_of(explanation) == {"n0": ["disk of row 0"], "n1": ["disk of row 1"], "n2": ["a", "b"]}
    assert explanation["nodes"]["n0"]["reasons"] == ["no"]
    assert one.calls[0][1][:2] == (REJECTED_POD, SIX_NODES)


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

    RefusalDetails([one], ManualClock()).add_to(explanation, REJECTED_POD, SIX_NODES, nominated)

    expected = "including the pods nominated to this node: default/guest"
    assert details_of(explanation) == {"n0": ["full", expected], "n1": [], "n2": []}


def test_nominated_pods_are_not_named_if_the_node_is_rejected_without_them():
    explanation = refused("One")

    RefusalDetails([Telling("One", why=["no disk"])], ManualClock()).add_to(
        explanation, REJECTED_POD, SIX_NODES, {0: [pod("guest")]}
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
