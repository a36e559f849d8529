"""Evaluation of each pod alone, or of all pods in sequence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.framework import ReservePlugin, ScorePlugin, Status
from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.evaluation import evaluate_each, evaluate_in_sequence, is_pending
from tests.support.builders import node_object, pod, pod_object
from tests.unit.tools.whatif.clusters import profile_with, scheduler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.evaluation import PodEvaluation
    from scheduler.tools.whatif.offline import OfflineScheduler

    Judge = Callable[[OfflineScheduler, Iterable[PodInfo]], Iterator[PodEvaluation]]


def _pods(*objects: dict[str, Any]) -> list[PodInfo]:
    return [decode_pod(json.dumps(each).encode()) for each in objects]


def _explanations(judge: Judge, scheduler: OfflineScheduler, pods: list[PodInfo]) -> list[Explanation]:
    return [judged.explanation for judged in judge(scheduler, pods)]


def _going() -> PodInfo:
    going = pod_object("a")
    going["metadata"]["deletionTimestamp"] = "2026-03-01T09:00:00Z"
    return _pods(going)[0]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(pod("a"), True, id="pending"),
        pytest.param(pod("a", node="n1"), False, id="on a node"),
        pytest.param(pod("a", status={"phase": "Failed"}), False, id="ended before it ran"),
        pytest.param(_going(), False, id="being deleted"),
    ],
)
def test_a_pending_pod_is_one_without_a_node(found: PodInfo, expected: bool) -> None:
    assert is_pending(found) is expected


def test_each_pod_is_evaluated_against_the_same_cluster() -> None:
    objects = [pod_object("a", cpu="3"), pod_object("b", cpu="3")]
    scheduler = scheduler_of(node_object("n1", cpu="4"), *objects)

    explanations = list(_explanations(evaluate_each, scheduler, _pods(*objects)))

    assert [explanation["result"] for explanation in explanations] == ["schedulable", "schedulable"]
    assert not any("chosen" in explanation for explanation in explanations)


def test_in_a_sequence_each_pod_uses_capacity_of_the_next() -> None:
    objects = [pod_object("a", cpu="3"), pod_object("b", cpu="3")]
    scheduler = scheduler_of(node_object("n1", cpu="4"), *objects)

    first, second = _explanations(evaluate_in_sequence, scheduler, _pods(*objects))

    assert (first["result"], first["chosen"]) == ("schedulable", "n1")
    assert second["result"] == "unschedulable"
    assert second["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert "chosen" not in second
    assert "best" not in second


def test_a_sequence_is_ordered_by_priority_and_then_by_the_file() -> None:
    objects = [
        pod_object("low", priority=-5),
        pod_object("first", priority=3),
        pod_object("top", priority=900),
        pod_object("second", priority=3),
    ]
    scheduler = scheduler_of(node_object("n1"), *objects)

    order = [
        explanation["pod"] for explanation in _explanations(evaluate_in_sequence, scheduler, _pods(*objects))
    ]

    assert order == ["default/top", "default/first", "default/second", "default/low"]


def test_a_pod_on_a_node_is_evaluated_as_if_it_were_pending() -> None:
    port = [{"containerPort": 80, "hostPort": 80}]
    here = pod_object("here", cpu="3", node="n1", ports=port)
    there = pod_object("there", cpu="2", node="n2")
    scheduler = scheduler_of(node_object("n1", cpu="4"), node_object("n2", cpu="4"), here, there)

    (explanation,) = _explanations(evaluate_each, scheduler, _pods(here))
    (again,) = _explanations(evaluate_each, scheduler, _pods(here))

    assert explanation["node"] == "n1"
    assert explanation["best"] == ["n1"]
    assert explanation["nodes"]["n2"]["reasons"] == ["Insufficient cpu"]
    assert explanation["nodes"]["n2"]["details"] == ["needs 3 cpu, 2 free of 4"]
    assert again == explanation, "it is where it was"


def test_a_pod_on_a_missing_node_is_evaluated_too() -> None:
    lost = pod_object("lost", cpu="3", node="gone")
    scheduler = scheduler_of(node_object("n1", cpu="4"), lost)

    (explanation,) = _explanations(evaluate_each, scheduler, _pods(lost))

    assert (explanation["node"], explanation["best"]) == ("gone", ["n1"])


def test_possible_preemption_is_reported_and_not_done() -> None:
    low, vip = pod_object("low", cpu="3", node="n1"), pod_object("vip", cpu="3", priority=9)
    scheduler = scheduler_of(node_object("n1", cpu="4"), low, vip)

    (explanation,) = _explanations(evaluate_each, scheduler, _pods(vip))

    assert explanation["preemption"] == {
        "candidates": {"n1": {"victims": ["default/low"], "pdbViolations": 0}},
        "nominated": ["n1"],
    }
    assert scheduler.cache.snapshot().requested["cpu"].tolist() == [3000]


def test_capacity_held_by_a_nominated_pod_is_reported() -> None:
    vip = pod_object("vip", cpu="3", priority=10, status={"nominatedNodeName": "n1"})
    late = pod_object("late", cpu="3")
    scheduler = scheduler_of(node_object("n1", cpu="4"), vip, late)

    (explanation,) = _explanations(evaluate_each, scheduler, _pods(late))

    assert explanation["nodes"]["n1"]["details"] == [
        "needs 3 cpu, 1 free of 4",
        "including the pods nominated to this node: default/vip",
    ]


class Flat(ScorePlugin):
    """Gives all nodes the same score."""

    name = "Flat"
    api_version = 1


def test_the_smallest_name_of_equal_nodes_is_chosen() -> None:
    config = profile_with("Flat").replace(
        "    multiPoint:", "    score: {disabled: [{name: '*'}]}\n    multiPoint:"
    )
    objects = [pod_object("a", cpu="1")]
    scheduler = scheduler_of(
        *(node_object(name) for name in ("n9", "n10", "n2")), *objects, config=config, plugins=(Flat,)
    )

    (explanation,) = _explanations(evaluate_in_sequence, scheduler, _pods(*objects))

    assert explanation["best"] == ["n10", "n2", "n9"]
    assert explanation["chosen"] == "n10"


def test_a_gated_pod_uses_no_capacity() -> None:
    objects = [
        pod_object("gated", cpu="3", priority=9, gates=("example.com/quota",)),
        pod_object("b", cpu="3"),
    ]
    scheduler = scheduler_of(node_object("n1", cpu="4"), *objects)

    gated, other = _explanations(evaluate_in_sequence, scheduler, _pods(*objects))

    assert (gated["result"], gated["message"]) == (
        "gated",
        "waiting for scheduling gates: [example.com/quota]",
    )
    assert other["chosen"] == "n1"


def test_capacity_is_kept_for_nominated_pods_of_equal_or_higher_priority() -> None:
    vip = pod_object("vip", cpu="3", priority=10, status={"nominatedNodeName": "n1"})
    same, higher = pod_object("same", cpu="3", priority=10), pod_object("higher", cpu="3", priority=11)
    scheduler = scheduler_of(node_object("n1", cpu="4"), vip, same, higher)

    results = {
        explanation["pod"]: explanation["result"]
        for explanation in _explanations(evaluate_each, scheduler, _pods(vip, same, higher))
    }

    assert results == {
        "default/vip": "schedulable",
        "default/same": "unschedulable",
        "default/higher": "schedulable",
    }


def test_a_nominated_pod_is_evaluated_on_all_nodes() -> None:
    vip = pod_object("vip", status={"nominatedNodeName": "n1"})
    scheduler = scheduler_of(node_object("n1"), node_object("n2"), vip)

    (explanation,) = _explanations(evaluate_each, scheduler, _pods(vip))

    assert [name for name, verdict in explanation["nodes"].items() if "total" in verdict] == ["n1", "n2"]


def test_in_a_sequence_a_nominated_pod_goes_to_its_node() -> None:
    vip = pod_object("vip", cpu="1", status={"nominatedNodeName": "n2"})
    busy = pod_object("busy", cpu="2", node="n2")
    scheduler = scheduler_of(node_object("n1", cpu="4"), node_object("n2", cpu="4"), vip, busy)

    (explanation,) = _explanations(evaluate_in_sequence, scheduler, _pods(vip))

    totals = {name: verdict["total"] for name, verdict in explanation["nodes"].items()}
    assert totals["n1"] > totals["n2"]
    assert (explanation["best"], explanation["chosen"]) == (["n2"], "n2")


class Licences(ReservePlugin):
    """Has one licence."""

    name = "Licences"
    api_version = 1

    def __init__(self) -> None:
        self.left = 1
        self.log: list[str] = []

    def reserve(self, state: Any, pod: PodInfo, node_name: str) -> Status | None:
        self.log.append(f"reserve {pod.name}@{pod.node_name}")
        self.left -= 1
        return Status.unschedulable("no licence left") if self.left < 0 else None

    def unreserve(self, state: Any, pod: PodInfo, node_name: str) -> None:
        self.log.append(f"unreserve {pod.name}")
        self.left += 1


def _licences(scheduler: OfflineScheduler) -> Licences:
    plugins = scheduler.frameworks["custom-scheduler"].plugins.all()
    return next(plugin for plugin in plugins if isinstance(plugin, Licences))


def test_a_pod_rejected_at_reserve_uses_no_capacity_and_has_the_reason() -> None:
    objects = [pod_object("a", cpu="1"), pod_object("b", cpu="1"), pod_object("c", cpu="1")]
    scheduler = scheduler_of(
        node_object("n1"), *objects, config=profile_with("Licences"), plugins=(Licences,)
    )

    first, second, third = _explanations(evaluate_in_sequence, scheduler, _pods(*objects))

    assert first["chosen"] == "n1"
    for refused in (second, third):
        assert (refused["result"], refused["message"]) == ("unschedulable", "no licence left")
        assert "chosen" not in refused
    assert scheduler.cache.snapshot().requested["cpu"].tolist() == [1000]
    assert _licences(scheduler).log == [
        "reserve a@n1",
        "reserve b@n1",
        "unreserve b",
        "reserve c@n1",
        "unreserve c",
    ]
