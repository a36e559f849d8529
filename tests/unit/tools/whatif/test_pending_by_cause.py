"""Pending pods, grouped by the causes in their messages."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.whatif.pending_causes import by_cause
from tests.support.builders import pod

_PREEMPTION = "preemption: 0/9 nodes are available: 9 Preemption is not helpful for scheduling."


def waiting(name: str, message: str = "", *, nominated: str = "", **fields: Any) -> Any:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    status: dict[str, Any] = {"conditions": [condition]} if message else {}
    return pod(name, status={**status, "nominatedNodeName": nominated}, **fields)


@pytest.mark.parametrize(
    ("message", "causes", "of"),
    [
        pytest.param(
            "0/9 nodes are available: 2 Insufficient example.com/gpu, 7 node(s) had untolerated taint(s). "
            + _PREEMPTION,
            {"Insufficient example.com/gpu": 2, "node(s) had untolerated taint(s)": 7},
            9,
            id="nodes",
        ),
        pytest.param(
            "0/9 nodes are available: 9 Insufficient cpu. no new claims to deallocate, " + _PREEMPTION,
            {"Insufficient cpu": 9},
            9,
            id="capacity reasons of several plugins",
        ),
        pytest.param(
            '0/9 nodes are available: persistentvolumeclaim "data" not found.',
            {'persistentvolumeclaim "data" not found': 0},
            9,
            id="a reason of the pod for every node",
        ),
        pytest.param("binding volumes: timed out", {"binding volumes: timed out": 0}, 0, id="no nodes"),
        pytest.param("", {"no message yet: is their scheduler running?": 0}, 0, id="nothing"),
    ],
)
def test_causes_are_read_from_the_message(message: str, causes: dict[str, int], of: int) -> None:
    (group,) = by_cause([waiting("a", message)])

    assert dict(zip(group.causes, group.nodes, strict=True)) == {
        cause: (count, count) for cause, count in causes.items()
    }
    assert group.of == of


def test_a_pod_of_a_group_without_message_names_the_command_for_its_group() -> None:
    (found,) = by_cause([waiting("train-0", scheduling_group={"podGroupName": "train"})])

    assert found.causes == ("no message yet: --group default/train shows their group",)


def test_pods_are_grouped_by_cause_and_the_largest_group_is_first() -> None:
    groups = by_cause(
        [
            waiting("gated", gates=("example.com/quota",)),
            waiting("a", "0/9 nodes are available: 2 Insufficient cpu, 7 full."),
            waiting("b", "0/8 nodes are available: 3 full, 5 Insufficient cpu."),
            waiting("expected", "0/9 nodes are available: 2 Insufficient cpu, 7 full.", nominated="n1"),
            waiting("other", "0/9 nodes are available: 2 Insufficient cpu, 7 full.", scheduler_name="x"),
        ]
    )

    assert groups[0].pods == ["default/a", "default/b"]
    assert (groups[0].causes, groups[0].nodes, groups[0].of) == (
        ("Insufficient cpu", "full"),
        [(2, 5), (3, 7)],
        9,
    )
    rest = {(group.scheduler, group.is_expected, group.causes): group.pods for group in groups[1:]}
    assert rest == {
        ("custom-scheduler", False, ("scheduling gate example.com/quota",)): ["default/gated"],
        ("custom-scheduler", True, ("Insufficient cpu", "full")): ["default/expected"],
        ("x", False, ("Insufficient cpu", "full")): ["default/other"],
    }
