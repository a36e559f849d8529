"""Pending pods, grouped by their reasons."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scheduler.configuration.load import default
from scheduler.loop_work import run_to_end
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.pending_pods import PendingPods
from scheduler.tools.whatif.cluster_file import ClusterFile
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo


def judged(*pods: PodInfo) -> FileBoard:
    board = FileBoard(
        ClusterFile([node("n1", cpu="4"), node("n2", cpu="2")], list(pods)), default(), refresh=False
    )
    asyncio.run(board.judge())
    return board


def looked(board: FileBoard) -> PendingPods:
    waiting = PendingPods(board.subject)
    for _ in waiting.steps():
        pass
    return waiting


def told(*pods: PodInfo) -> dict[str, Any]:
    return {
        " & ".join(cause["reason"] for cause in group["causes"]): group
        for group in run_to_end(looked(judged(*pods)).as_json())
    }


def test_pods_with_the_same_reasons_are_one_group_for_any_amounts() -> None:
    groups = told(pod("a", cpu="9"), pod("b", cpu="99"), pod("c", cpu="9", memory="99Gi"), pod("d"))

    assert {reasons: group["count"] for reasons, group in groups.items()} == {
        "Insufficient cpu": 2,
        "Insufficient cpu & Insufficient memory": 1,
        "none: a node fits": 1,
    }


def test_a_group_has_the_reason_codes_of_its_pods() -> None:
    groups = told(pod("a", cpu="9", memory="99Gi"), pod("b", gates=("example.com/quota",)), pod("c"))

    assert [group["reasonCodes"] for group in groups.values()] == [
        ["InsufficientCPU", "InsufficientMemory", "PreemptionNotHelpful"],
        ["SchedulingGated"],
        [],
    ]


def test_a_cause_has_its_lowest_and_highest_number_of_nodes() -> None:
    message = "0/9 nodes are available: {} Insufficient cpu."
    said = [
        {"conditions": [{"type": "PodScheduled", "status": "False", "message": message.format(nodes)}]}
        for nodes in (3, 9, 5)
    ]
    cluster = ClusterFile([], [pod(f"web-{number}", status=each) for number, each in enumerate(said)])

    [group] = run_to_end(looked(FileBoard(cluster, default(), refresh=False)).as_json())

    assert group["causes"] == [{"reason": "Insufficient cpu", "fewest": 3, "most": 9}]
    assert (group["count"], group["nodes"]) == (3, 9)


def test_pending_pods_are_listed_with_their_pod_groups() -> None:
    def member(group: str, number: int) -> PodInfo:
        return pod(f"{group}-{number}", scheduling_group={"podGroupName": group})

    members = [member(f"group-{size:02}", number) for size in range(1, 13) for number in range(size)]

    [train, alone] = told(*members, pod("alone", cpu="9")).values()

    assert (train["count"], train["podGroups"]) == (78, 12)
    assert list(train["largestPodGroups"].items())[:2] == [("default/group-12", 12), ("default/group-11", 11)]
    assert len(train["largestPodGroups"]) == 10
    assert (alone["podGroups"], alone["largestPodGroups"]) == (0, {})


def test_a_gated_pod_has_the_reason_of_its_gate() -> None:
    groups = told(pod("a", gates=("example.com/quota",)))

    assert list(groups) == ["gated by SchedulingGates: example.com/quota"]
    [group] = groups.values()
    assert group["places"] == {"gated": 1}
    assert group["requeuingEvents"] == {"SchedulingGates": [("Pod", ["scheduling gates eliminated"])]}


def test_the_smallest_of_very_many_groups_are_merged() -> None:
    pods = [
        pod(f"{number}-{each}", gates=(f"example.com/{number}",))
        for number in range(250)
        for each in range(1 + number % 2)
    ]

    groups = list(run_to_end(looked(judged(*pods)).as_json()))

    assert len(groups) == 201
    assert sum(group["count"] for group in groups) == len(pods)
    assert [cause["reason"] for cause in groups[-1]["causes"]] == ["other causes"]


def test_the_pods_of_a_group_are_listed_page_by_page_oldest_first() -> None:
    waiting = looked(judged(*(pod(f"web-{number:02}", cpu="9") for number in range(25))))
    [group] = waiting.groups

    first, last = waiting.page(group.name, 0, 20), waiting.page(group.name, 20, 20)

    assert first is not None
    assert last is not None
    names = [each["pod"] for each in first["pods"] + last["pods"]]
    assert names == [f"default/web-{number:02}" for number in range(25)]
    assert waiting.page("another", 0, 20) is None
