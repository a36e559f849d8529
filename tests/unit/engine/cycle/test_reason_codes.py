"""Reason codes of rejected pods: in the annotations of events, in the queue and in explanations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from plugins.scheduling_gates import SchedulingGates
from scheduler.engine.cycle.explanation import explain, explain_gated
from scheduler.engine.cycle.reporting import CAUSES, GROUP_CAUSES, Reporter
from scheduler.framework import (
    FilterPlugin,
    PermitPlugin,
    PostFilterPlugin,
    PostFilterResult,
    Reason,
    Status,
)
from scheduler.framework.reasons import Cause, GroupCause
from tests.support.builders import pod
from tests.unit.engine.cycle.cluster import PROFILE, Cluster

if TYPE_CHECKING:
    import pytest

    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo

NO_SEAT = Reason("node(s) had no free seat", "NoFreeSeat")


class Rooms(FilterPlugin):
    """Rejects nodes for one reason or two; only one of them has a code."""

    name = "Rooms"
    api_version = 1

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return (
            Status.unschedulable(NO_SEAT, "node(s) were dark")
            if node.name == "n1"
            else Status.unschedulable(NO_SEAT)
        )


class Guard(PermitPlugin):
    name = "Guard"
    api_version = 1

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.unschedulable(Reason("closed today", "ClosedToday"))


class Events:
    """Records the annotations of events."""

    def __init__(self) -> None:
        self.annotations: list[dict[str, Any]] = []

    def of(self, scheduler_name: str) -> Events:
        return self

    def record(self, regarding: object, *, annotations: Any, **_: Any) -> None:
        self.annotations.append({name: json.loads(text) for name, text in annotations.items()})

    def patch_pod_status(self, *_: Any, **__: Any) -> bool:
        return True


async def tried(cluster: Cluster) -> Events:
    """Let the pod `web` be tried once; return the annotations of its events."""
    events = Events()
    cluster.reporter._recorders = events
    cluster.api.create(pod("web"))
    async with cluster.running():
        await cluster.until(lambda: events.annotations)
    return events


async def test_the_event_of_a_rejected_pod_has_the_causes_with_their_nodes() -> None:
    cluster = Cluster(Rooms(), nodes=("n1", "n2"))

    events = await tried(cluster)

    assert events.annotations == [
        {
            CAUSES: [
                {"code": "NoFreeSeat", "plugin": "Rooms", "nodes": 2},
                {"code": "Rooms", "plugin": "Rooms", "nodes": 1},
            ]
        }
    ]
    assert cluster.queue.rejections_by_code == {
        ("NoFreeSeat", "Rooms", "default", PROFILE): 1,
        ("Rooms", "Rooms", "default", PROFILE): 1,
    }


async def test_the_condition_and_the_note_of_a_rejected_pod_stay_those_of_kube_scheduler() -> None:
    cluster = Cluster(Rooms(), nodes=("n1", "n2"))
    cluster.api.create(pod("web"))
    async with cluster.running():
        await cluster.until(lambda: cluster.api.patches)

    [patch] = cluster.api.patches
    assert patch.condition is not None
    message = "0/2 nodes are available: 1 node(s) were dark, 2 node(s) had no free seat."
    assert (patch.condition.reason, patch.condition.message) == ("Unschedulable", message)
    assert cluster.notes("web") == [message]


async def test_a_rejection_after_the_choice_of_a_node_has_its_cause() -> None:
    events = await tried(Cluster(Guard()))

    assert events.annotations == [{CAUSES: [{"code": "ClosedToday", "plugin": "Guard"}]}]


async def test_a_pod_without_any_node_in_the_cluster_has_a_cause() -> None:
    events = await tried(Cluster(nodes=()))

    assert events.annotations == [{CAUSES: [{"code": "NoNodes", "plugin": ""}]}]


async def test_an_error_has_the_plugin_as_its_cause() -> None:
    class Broken(Rooms):
        name = "Broken"

        def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
            raise ValueError("odd")

    cluster = Cluster(Broken())
    events = await tried(cluster)

    assert events.annotations == [{CAUSES: [{"code": "PluginError", "plugin": "Broken"}]}]
    assert cluster.queue.rejections_by_code == {("PluginError", "Broken", "default", PROFILE): 1}
    [decision] = cluster.counts.decisions
    assert explain(decision, ["n1"])["causes"] == [{"code": "PluginError", "plugin": "Broken"}]


class Asks(PostFilterPlugin):
    """Finds no node for some reasons."""

    name = "Asks"
    api_version = 1
    reasons: ClassVar[tuple[str, ...]] = ()

    def post_filter(self, *_: Any) -> PostFilterResult:
        return PostFilterResult(Status.unschedulable(*self.reasons))


class AsksToo(Asks):
    name = "AsksToo"
    reasons = ("nothing to do",)


async def test_the_causes_of_post_filter_follow_and_only_reasons_with_codes_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Asks, "reasons", (Reason("asked in vain", "AskedInVain"), "nothing else"))
    events = await tried(Cluster(Rooms(), Asks(), AsksToo(), nodes=("n2",)))

    assert events.annotations[0][CAUSES] == [
        {"code": "NoFreeSeat", "plugin": "Rooms", "nodes": 1},
        {"code": "AskedInVain", "plugin": "Asks"},
    ]


async def test_an_error_of_post_filter_is_a_cause_of_the_rejection() -> None:
    class Fails(Asks):
        def post_filter(self, *_: Any) -> PostFilterResult:
            raise ValueError("odd")

    events = await tried(Cluster(Rooms(), Fails(), nodes=("n2",)))
    assert events.annotations[0][CAUSES][1] == {"code": "PluginError", "plugin": "Asks"}


def test_a_failure_before_the_leadership_is_reported_with_its_causes() -> None:
    events, web, leader = Events(), pod("web"), []
    reporter = Reporter(events, events, is_leading=lambda: bool(leader), newest={web.key: web}.get)
    causes, members = [Cause("NoFreeSeat", "Rooms", 2)], [GroupCause("NoFreeSeat", "Rooms", 3)]
    reporter.failed(PROFILE, web, Status.unschedulable("no"), causes=causes, group_causes=members)
    assert events.annotations == []

    leader.append("this process")
    reporter.catch_up()

    assert events.annotations == [
        {
            CAUSES: [{"code": "NoFreeSeat", "plugin": "Rooms", "nodes": 2}],
            GROUP_CAUSES: [{"code": "NoFreeSeat", "plugin": "Rooms", "members": 3}],
        }
    ]


def test_an_annotation_has_at_most_twenty_causes() -> None:
    events = Events()
    reporter = Reporter(events, events, is_leading=lambda: True, newest={}.get)
    causes = [Cause(f"Code{number}", "Rooms", 1) for number in range(50)]
    reporter.failed(PROFILE, pod("web"), Status.unschedulable("no"), causes=causes)

    assert len(events.annotations[0][CAUSES]) == 20


async def test_an_explanation_has_the_causes_and_the_codes_of_each_node() -> None:
    cluster = Cluster(Rooms(), nodes=("n1", "n2"))
    await tried(cluster)
    [decision] = cluster.counts.decisions

    found = json.loads(msgspec.json.encode(explain(decision, ["n1", "n2"])))

    assert found["causes"][0] == {"code": "NoFreeSeat", "plugin": "Rooms", "nodes": 2}
    assert found["nodes"]["n1"]["reasonCodes"] == ["NoFreeSeat", "Rooms"]
    assert found["nodes"]["n2"]["reasonCodes"] == ["NoFreeSeat"]


def test_the_explanation_of_a_gated_pod_has_the_cause_of_its_gate() -> None:
    gated = pod("web", gates=("example.com/quota",))
    status = SchedulingGates().pre_enqueue(gated)
    assert status is not None

    found = explain_gated(gated, status.by("SchedulingGates"))

    assert found["causes"] == [{"code": "SchedulingGated", "plugin": "SchedulingGates"}]
