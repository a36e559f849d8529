"""Decisions about a pod on a snapshot."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from scheduler.engine.cycle.scheduling import pick, schedule_pod
from scheduler.engine.runtime.scoring import Scores
from scheduler.engine.state.nominator import Nominator
from scheduler.framework import (
    SUCCESS,
    Code,
    PostFilterResult,
    PreFilterResult,
    Status,
)
from tests.support.builders import pod
from tests.support.scripted_plugins import (
    Filter,
    NodeFilter,
    NodeScore,
    PostFilter,
    PreFilter,
    PreScore,
    Score,
    framework_of,
)
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from scheduler.engine.cycle.attempt import Decision
    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo

SNAPSHOT = snapshot_of("n0", "n1", "n2", "n3")
POD = pod("web")


def refusing(*names: str) -> Any:
    return lambda _state, _pod, node: Status.unschedulable("no") if node.name in names else None


def decide(
    *plugins: Plugin, each: PodInfo = POD, snapshot: Any = SNAPSHOT, seed: int = 1, **more: Any
) -> Decision:
    more = {"nominated": {}, **more}
    return schedule_pod(framework_of(*plugins), each, snapshot, random=Random(seed), **more)


def test_without_nodes_the_pod_waits_and_its_nomination_is_cleared():
    decision = decide(NodeFilter(answer=KeyError("asked")), snapshot=snapshot_of())

    assert decision.status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert decision.status.message == "no nodes available to schedule pods"
    assert (decision.node_name, decision.nominated_node_name) == ("", "")


def test_the_reasons_are_counted_when_no_node_fits():
    decision = decide(
        NodeFilter(
            "A", lambda _state, _pod, node: Status.unschedulable("odd" if node.name in "n1 n3" else "even")
        ),
        PostFilter("B", PostFilterResult(Status.unschedulable("nothing to evict"), "n2")),
    )

    assert decision.status.code is Code.UNSCHEDULABLE
    assert decision.status.message == "0/4 nodes are available: 2 even, 2 odd. nothing to evict"
    assert decision.nominated_node_name == "n2"
    assert decision.diagnosis.unschedulable_plugins == {"A"}


@pytest.mark.parametrize(
    ("plugins", "nominated"),
    [
        pytest.param([], "", id="without PostFilter a nomination is taken back"),
        pytest.param([PostFilter(answer=PostFilterResult(SUCCESS, "n1"))], "n1", id="success"),
        pytest.param(
            [PostFilter(answer=PostFilterResult(Status.unschedulable("x")))], None, id="no nomination"
        ),
        pytest.param([PostFilter(answer=KeyError("x"))], None, id="a failure leaves it"),
    ],
)
def test_post_filter_decides_about_the_nomination(plugins: list[Plugin], nominated: str | None):
    decision = decide(NodeFilter("A", refusing("n0", "n1", "n2", "n3")), *plugins)

    assert decision.status.code is Code.UNSCHEDULABLE  # also if PostFilter failed
    assert decision.nominated_node_name == nominated


def test_a_failure_of_post_filter_is_reported_with_the_reasons():
    decision = decide(NodeFilter("A", refusing("n0", "n1", "n2", "n3")), PostFilter("B", KeyError("x")))

    assert decision.status.message == (
        "0/4 nodes are available: 4 no. running PostFilter plugin \"B\": KeyError: 'x'"
    )


def test_a_rejection_at_pre_filter_calls_no_filter_but_post_filter():
    last = PostFilter("C", PostFilterResult(SUCCESS, "n1"))
    decision = decide(
        PreFilter("A", Status.unschedulable("no claim")), NodeFilter("B", KeyError("asked")), last
    )

    assert decision.status.message == "0/4 nodes are available: no claim."
    assert decision.nominated_node_name == "n1"
    assert last.called() == ["post_filter"]


def test_a_single_feasible_node_is_chosen_without_scoring():
    decision = decide(
        NodeFilter("A", refusing("n0", "n1", "n3")),
        PreScore("B", KeyError("asked")),
        NodeScore("C", KeyError("asked")),
    )

    assert decision.status.is_success
    assert decision.node_name == "n2"
    assert decision.scores is None


def test_the_best_node_is_chosen():
    decision = decide(NodeScore("A", lambda _state, _pod, node: {"n2": 90}.get(node.name, 10)))

    assert decision.node_name == "n2"
    assert decision.scores is not None
    assert decision.scores.total.tolist() == [10, 10, 90, 10]


def test_the_random_source_breaks_ties_among_the_best_only():
    scorer = NodeScore("A", lambda _state, _pod, node: 5 if node.name in {"n1", "n3"} else 4)

    chosen = Counter(decide(scorer, seed=seed).node_name for seed in range(200))

    assert chosen.keys() == {"n1", "n3"}
    assert min(chosen.values()) > 60


def test_the_same_random_source_breaks_ties_the_same_way():
    assert [decide(seed=7).node_name for _ in range(5)] == [decide(seed=7).node_name] * 5


def test_a_clear_winner_needs_no_random_number():
    class Untouched(Random):
        def random(self) -> float:
            raise AssertionError("asked")

        def getrandbits(self, k: int, /) -> int:
            raise AssertionError("asked")

    scores = Scores(np.array([3, 5]), best=np.array([5]))

    assert pick(scores, POD, SNAPSHOT, Untouched()) == 5


def test_a_decision_without_preemption_calls_no_post_filter():
    preemption = PostFilter("B", PostFilterResult(SUCCESS, "n2"))
    refused = decide(NodeFilter("A", Status.unschedulable("no")), preemption, may_preempt=False)

    assert refused.status.message == "0/4 nodes are available: 4 no."
    assert not preemption.calls


NOMINATED = pod("web", status={"nominatedNodeName": "n2"})


def test_the_nominated_node_is_evaluated_first_and_alone():
    asked = NodeFilter("A")
    decision = decide(asked, each=NOMINATED)

    assert decision.node_name == "n2"
    assert [args[2].name for _, args in asked.calls] == ["n2"]
    assert decision.diagnosis.feasible.tolist() == [2]
    assert decision.diagnosis.n_not_examined == 3


def test_a_nominated_node_that_does_not_fit_falls_back_to_all_nodes():
    decision = decide(NodeFilter("A", refusing("n0", "n1", "n2")), each=NOMINATED)

    assert decision.node_name == "n3"
    assert decision.diagnosis.message() == "0/4 nodes are available: 3 no."


def test_a_failure_at_the_nominated_node_alone_falls_back_to_all_nodes(caplog: pytest.LogCaptureFixture):
    answers = iter([KeyError("x"), None, None, None, None])

    def once(*_: Any) -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    assert decide(NodeFilter("A", once), each=NOMINATED).status.is_success
    assert [record.getMessage() for record in caplog.records] == ["Plugin failed"]


def test_a_deleted_nominated_node_is_ignored():
    each = pod("web", status={"nominatedNodeName": "gone"})

    assert decide(NodeFilter("A", refusing("n0", "n1", "n2")), each=each).node_name == "n3"


def test_other_nominated_pods_keep_their_capacity_on_a_node():
    def room(_state: Any, _pod: Any, node: Any) -> Status | None:
        return Status.unschedulable("full") if any(True for _ in node.pods) else None

    decision = decide(NodeFilter("A", room), nominated={row: [pod(f"p{row}")] for row in (0, 1, 3)})

    assert decision.node_name == "n2"


def raising_at(name: str) -> Any:
    def judge(_state: Any, _pod: Any, node: Any) -> None:
        if node.name == name:
            raise OSError("no answer")

    return judge


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param([PreFilter("A", KeyError("x"))], "running PreFilter plugin \"A\": KeyError: 'x'", id="pre_filter"),
        pytest.param([NodeFilter("A", raising_at("n2"))], 'running "A" filter plugin: OSError: no answer', id="at one node"),
        pytest.param(
            [NodeFilter("A", lambda _s, _p, node: Status.failed("down") if node.name == "n3" else None)],
            'running "A" filter plugin: down',
            id="of one node",
        ),
        pytest.param([Filter("A", KeyError("x"))], "running \"A\" filter plugin: KeyError: 'x'", id="at all nodes"),
        pytest.param([PreScore("A", Status.unschedulable("no")), NodeScore("B", 1)], 'running PreScore plugin "A": unexpected return value', id="pre_score"),
        pytest.param([Score("A", np.zeros(4))], 'running Score plugins: plugin "A" failed with: ValueError', id="score"),
    ],
)  # fmt: skip
def test_a_failure_is_an_error_though_other_nodes_fit(plugins: list[Plugin], expected: str):
    decision = decide(*plugins)

    assert decision.status.code is Code.ERROR
    assert decision.status.message.startswith(expected)
    assert (decision.node_name, decision.nominated_node_name) == ("", "")


def test_narrowing_searches_the_named_nodes_only():
    asked = NodeFilter("B")
    decision = decide(PreFilter("A", PreFilterResult(frozenset({"n1"}))), asked)

    assert decision.node_name == "n1"
    assert len(asked.calls) == 1


def test_only_nominated_pods_of_equal_or_higher_priority_keep_their_capacity():
    nominator = Nominator()
    for name, priority, where in [
        ("low", 4, "n0"),
        ("equal", 5, "n1"),
        ("high", 9, "n1"),
        ("web", 5, "n2"),
        ("other", 9, "gone"),
    ]:
        nominator.add(pod(name, priority=priority), where)

    found = nominator.others(pod("web", priority=5), SNAPSHOT)

    assert {row: [each.name for each in pods] for row, pods in found.items()} == {1: ["equal", "high"]}
