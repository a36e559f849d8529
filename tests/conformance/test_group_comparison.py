"""The comparison of pod group scenarios finds each difference and nothing else."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.tools.simulator.server import LoggedRequest
from tests.conformance.group_deviations import unexpected
from tests.conformance.groups import (
    Case,
    Difference,
    cases,
    compare,
    compare_end,
    kinds_of_writes,
    state_of,
)
from tests.conformance.simulated_groups import recorded

if TYPE_CHECKING:
    from collections.abc import Callable

COMPETING = cases()["two-gangs-compete"]
TOPOLOGY = cases()["topology-prefers-fuller-rack"]
ORDINARY = cases()["gang-fits"]
EVICTING = cases()["gang-infeasible-still-evicts"]


def moment(case: Case) -> dict[str, Any]:
    return copy.deepcopy(case.stored["observed"][-1])


def as_recorded(case: Case) -> dict[str, Any]:
    """A state that is exactly one of those recorded."""
    wanted = moment(case)

    def first(entry: Any) -> Any:
        return entry["oneOf"][0] if "oneOf" in entry else entry

    return {
        "pods": {name: first(entry) for name, entry in wanted["pods"].items()},
        "podGroups": {
            name: first(entry) if isinstance(entry, dict) else entry
            for name, entry in wanted["podGroups"].items()
        },
    }


def found(case: Case, state: dict[str, Any]) -> list[str]:
    return [each.what for each in compare(case, moment(case), state)]


@pytest.mark.parametrize("case", [COMPETING, TOPOLOGY, ORDINARY], ids=lambda case: case.name)
def test_a_run_as_recorded_has_no_differences(case: Case) -> None:
    assert found(case, as_recorded(case)) == []


def _say_otherwise(state: dict[str, Any]) -> None:
    state["pods"]["b1"]["PodScheduled"]["message"] += "!"


def _give_another_reason(state: dict[str, Any]) -> None:
    state["pods"]["b1"]["PodScheduled"]["reason"] = "SchedulerError"


def _unbind(state: dict[str, Any]) -> None:
    state["pods"]["a1"] = {"node": ""}


def _nominate(state: dict[str, Any]) -> None:
    state["pods"]["b1"]["nominatedNodeName"] = "n1"


def _disrupt(state: dict[str, Any]) -> None:
    target = {"status": "True", "reason": "PreemptionByScheduler", "message": "m"}
    state["pods"]["a1"]["DisruptionTarget"] = target


def _lose(state: dict[str, Any]) -> None:
    del state["pods"]["a1"]


def _add(state: dict[str, Any]) -> None:
    state["pods"]["stranger"] = {"node": ""}


def _say_otherwise_of_a_group(state: dict[str, Any]) -> None:
    state["podGroups"]["b"][0]["message"] += "!"


def _say_nothing_of_a_group(state: dict[str, Any]) -> None:
    state["podGroups"]["b"] = []


def _lose_a_group(state: dict[str, Any]) -> None:
    del state["podGroups"]["b"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(_say_otherwise, ["end: pod b2"], id="a wrong message"),
        pytest.param(_give_another_reason, ["end: pod b1"], id="a wrong reason"),
        pytest.param(_unbind, ["end: bound pods", "end: pod a3"], id="a wrong count"),
        pytest.param(_nominate, ["end: pod b2"], id="a nominated node"),
        pytest.param(_disrupt, ["end: pod a3"], id="a victim"),
        pytest.param(_lose, ["end: bound pods", "end: pod a3"], id="a deleted pod"),
        pytest.param(_add, ["end: pod stranger"], id="a pod too many"),
        pytest.param(_say_otherwise_of_a_group, ["end: group b"], id="a wrong message of a group"),
        pytest.param(_say_nothing_of_a_group, ["end: group b"], id="a group without a condition"),
        pytest.param(_lose_a_group, ["end: group b"], id="a deleted group"),
    ],
)
def test_each_difference_is_found(change: Callable[[dict[str, Any]], None], expected: list[str]) -> None:
    state = copy.deepcopy(as_recorded(COMPETING))
    change(state)

    assert found(COMPETING, state) == expected


def test_identical_pods_are_interchangeable_and_different_pods_are_not() -> None:
    state = copy.deepcopy(as_recorded(COMPETING))
    pods = state["pods"]
    pods["b1"], pods["b3"] = pods["b3"], pods["b1"]
    alike = found(COMPETING, state)
    pods["a1"], pods["b1"] = pods["b1"], pods["a1"]

    assert alike == []
    assert found(COMPETING, state) != []


def test_the_node_of_a_pod_is_compared_only_under_a_constraint() -> None:
    elsewhere = copy.deepcopy(as_recorded(TOPOLOGY))
    elsewhere["pods"]["p1"]["node"] = "n3"
    plain = copy.deepcopy(as_recorded(ORDINARY))
    plain["pods"]["p1"]["node"] = "another"

    assert found(TOPOLOGY, elsewhere) == ["end: pod p3"]
    assert found(ORDINARY, plain) == []


@pytest.mark.parametrize(
    ("evicted", "cycles", "writes", "expected"),
    [
        pytest.param([], 1, {"bind"}, [], id="all as recorded"),
        pytest.param(["p1"], 1, {"bind"}, ["evicted"], id="an evicted pod"),
        pytest.param([], 10, {"bind"}, ["group cycles"], id="a busy loop"),
        pytest.param([], 1, set(), ["writes"], id="a missing write"),
        pytest.param([], 1, {"bind", "delete"}, ["writes"], id="a write too many"),
        pytest.param([], None, None, [], id="nothing known of the process"),
    ],
)
def test_the_whole_run_is_compared(
    evicted: list[str], cycles: float | None, writes: set[str] | None, expected: list[str]
) -> None:
    case = Case({**ORDINARY.stored, "schedulerWritesFirstRun": [{"bind": "p1"}]})

    assert [each.what for each in compare_end(case, evicted, cycles, writes)] == expected


def test_the_evicted_pods_may_differ_between_runs() -> None:
    case = Case({**EVICTING.stored, "evictedByScheduler": {"perRun": [["low"], ["high"]]}})

    assert compare_end(case, ["high"], None, None) == []
    assert compare_end(case, [], None, None) == [Difference("evicted", "nothing", ("high", "low"))]


def test_identical_evicted_pods_are_interchangeable() -> None:
    case = Case({**ORDINARY.stored, "evictedByScheduler": ["p1", "p3"]})

    assert compare_end(case, ["p2", "p3"], None, None) == []
    assert compare_end(case, ["p3"], None, None) == [Difference("evicted", "p1", ("p1, p2",))]


def _request(method: str, path: str, body: bytes = b"{}") -> LoggedRequest:
    return LoggedRequest(0, method, path, {}, 200, body)


SAID = b'{"status": {"conditions": [{"type": "T", "status": "False", "reason": "R"}]}}'
EVENT = b'{"regarding": {"name": "p"}, "type": "Normal", "reason": "R", "action": "A"}'


@pytest.mark.parametrize(
    ("request_", "kinds"),
    [
        pytest.param(_request("POST", "/api/v1/namespaces/n/pods/p/binding"), {"bind"}, id="a Binding"),
        pytest.param(_request("DELETE", "/api/v1/namespaces/n/pods/p"), {"delete"}, id="an eviction"),
        pytest.param(
            _request("PATCH", "/api/v1/namespaces/n/pods/p/status", SAID), {"T False R"}, id="of a pod"
        ),
        pytest.param(
            _request("PATCH", "/apis/s/v1/namespaces/n/podgroups/g/status", SAID),
            {"T False R"},
            id="of a group",
        ),
        pytest.param(
            _request(
                "PATCH", "/api/v1/namespaces/n/pods/p/status", b'{"status": {"nominatedNodeName": "n"}}'
            ),
            set(),
            id="a nomination alone",
        ),
        pytest.param(
            _request("POST", "/apis/events.k8s.io/v1/namespaces/n/events", EVENT),
            {"event Normal R A"},
            id="an event",
        ),
        pytest.param(
            _request("PATCH", "/apis/events.k8s.io/v1/namespaces/n/events/e", EVENT),
            set(),
            id="one more of a series",
        ),
        pytest.param(_request("GET", "/api/v1/pods"), set(), id="no write"),
    ],
)
def test_a_request_of_the_daemon_is_mapped_to_its_kind_of_write(
    request_: LoggedRequest, kinds: set[str]
) -> None:
    assert kinds_of_writes(recorded(request_)) == kinds


def test_a_case_switches_off_the_gates_that_it_does_not_name() -> None:
    assert cases()["generic-workload-only"].gates == {
        "GenericWorkload": True,
        "GangScheduling": False,
        "TopologyAwareWorkloadScheduling": False,
        "WorkloadAwarePreemption": False,
    }


def test_the_objects_of_an_api_server_become_a_state() -> None:
    scheduled = {"type": "PodScheduled", "status": "True"}
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    pods = [
        {"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {"conditions": [scheduled]}},
        {
            "metadata": {"name": "b"},
            "spec": {},
            "status": {"conditions": [waiting], "nominatedNodeName": "n"},
        },
        {"metadata": {"name": "c"}, "spec": {}},
    ]
    groups = [{"metadata": {"name": "g"}}]

    assert state_of(pods, groups) == {
        "pods": {
            "a": {"node": "n"},
            "b": {"node": "", "PodScheduled": waiting, "nominatedNodeName": "n"},
            "c": {"node": ""},
        },
        "podGroups": {"g": []},
    }


LISTED = {"case": {"evicted": ("nothing", "a reason")}, "by chance": {"evicted": (("p", "q"), "a reason")}}


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        pytest.param([Difference("evicted", "nothing", ("p",))], 0, id="as listed"),
        pytest.param([Difference("evicted", "q", ("p",))], 1, id="otherwise than listed"),
        pytest.param([], 1, id="listed and as recorded"),
        pytest.param(
            [Difference("evicted", "nothing", ("p",)), Difference("end: pod p", "gone", ("bound",))],
            1,
            id="something else besides",
        ),
    ],
)
def test_the_list_of_deviations_is_exact(differences: list[Difference], expected: int) -> None:
    assert len(unexpected("case", differences, LISTED)) == expected
    assert len(unexpected("another", differences, LISTED)) == len(differences)


@pytest.mark.parametrize(("has", "expected"), [("p", 0), ("q", 0), ("r", 1)])
def test_a_deviation_listed_as_by_chance_may_be_absent_or_present(has: str, expected: int) -> None:
    assert len(unexpected("by chance", [Difference("evicted", has, ("nothing",))], LISTED)) == expected
