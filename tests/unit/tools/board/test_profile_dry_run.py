"""Dry runs of a changed profile: which pods get another node, and that nothing else changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import default
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.profile_dry_run import ProfileChange, ProfileChangeError, ProfileDryRun, change_in
from scheduler.tools.whatif.cluster_file import ClusterFile
from tests.support.builders import node, node_object, pod, pod_object
from tests.unit.tools.board.test_hub import shown

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.tools.board.subject import Subject

PREFERS = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
            }
        ]
    }
}


def subject() -> Subject:
    """A cluster in which NodeAffinity prefers one node, and all other plugins the other."""
    nodes = [node("empty", cpu="8"), node("fast", cpu="8", labels={"disk": "ssd"})]
    pods = [
        pod("there", node="fast", cpu="3", memory="1Gi"),
        pod("web", cpu="1", memory="1Gi", affinity=PREFERS),
        pod("big", cpu="99"),
    ]
    return FileBoard(ClusterFile(nodes, pods), default(), refresh=False).subject


async def tried(given: Subject, *changes: str) -> dict[str, tuple[Any, Any]]:
    dry_run = ProfileDryRun(given, "custom-scheduler", [change_in(each) for each in changes])
    found = await dry_run.run()
    return {each["pod"]: (each["before"]["node"], each["after"]["node"]) for each in found["pods"]}


async def test_a_dry_run_shows_the_pods_that_would_get_another_node() -> None:
    assert (await tried(subject(), "NodeAffinity=off"))["default/web"] == ("fast", "empty")
    assert (await tried(subject(), "NodeAffinity=1", "NodeResourcesFit=100"))["default/web"] == (
        "fast",
        "empty",
    )
    assert (await tried(subject(), "NodeResourcesFit=off"))["default/big"][0] is None
    assert (await tried(subject(), "NodeResourcesFit=off"))["default/big"][1] is not None


async def test_a_dry_run_does_not_preempt() -> None:
    found = await ProfileDryRun(subject(), "custom-scheduler", [change_in("ImageLocality=5")]).run()

    [big] = [each for each in found["pods"] if each["pod"] == "default/big"]
    assert big["after"]["message"] == "0/2 nodes are available: 2 Insufficient cpu."


async def test_a_placed_pod_stays_on_its_node_for_the_pods_after_it() -> None:
    pods = [pod("first", cpu="3", priority=1), pod("second", cpu="3")]
    given = FileBoard(ClusterFile([node("n", cpu="4")], pods), default(), refresh=False).subject

    assert await tried(given, "ImageLocality=5") == {
        "default/first": ("n", "n"),
        "default/second": (None, None),
    }


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (["Nothing=on"], "no in-tree plugin Nothing"),
        (["Nothing=off"], "has no plugin Nothing"),
        (["NodeName=5"], "has no scores"),
        (["CapacityScheduling=on"], "reads scheduling.x-k8s.io/v1alpha1/elasticquotas"),
        (["NodeName=0"], "PLUGIN=on, PLUGIN=off or PLUGIN=WEIGHT"),
        (["NodeName=101"], "PLUGIN=on, PLUGIN=off or PLUGIN=WEIGHT"),
        (["NodeName"], "PLUGIN=on, PLUGIN=off or PLUGIN=WEIGHT"),
        (["NodeName=off"] * 51, "at most 50 changes"),
    ],
)
def test_changes_that_cannot_be_tried_are_rejected(changes: list[str], problem: str) -> None:
    with pytest.raises(ProfileChangeError, match=problem):
        ProfileDryRun(subject(), "custom-scheduler", [change_in(each) for each in changes])


def test_an_unknown_profile_is_rejected() -> None:
    with pytest.raises(ProfileChangeError, match="no profile other"):
        ProfileDryRun(subject(), "other", [ProfileChange("NodeName", is_enabled=False)])


async def test_a_dry_run_writes_nothing_and_changes_nothing_in_the_scheduler(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, given, _):
        it.add_nodes(node_object("n1", cpu="4"))
        it.add_pods(pod_object("there", cpu="3"))
        await it.until(lambda: it.node_of("there"))
        it.add_pods(pod_object("urgent", cpu="3", priority=-1), pod_object("gated", gates=["g"]))
        await it.until(lambda: given.attempts.last("default/urgent"))
        pods, attempts = it.pods(), given.attempts.noted
        frameworks = dict(given.parts.profiles.frameworks)

        found = await tried(given, "NodeResourcesFit=off")

        assert found == {"default/urgent": (None, "n1")}
        assert it.pods() == pods
        assert given.attempts.noted == attempts
        assert dict(given.parts.profiles.frameworks) == frameworks
