"""Reason codes of groups: how many members miss what, in explanations, events and the metric; time is virtual."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.live_explain import live_groups
from scheduler.engine.cycle.reporting import CAUSES, GROUP_CAUSES
from scheduler.engine.queue import Place
from tests.integration.groups.gangs import (
    POD_GROUPS,
    add_gang,
    add_group,
    condition,
    in_one_rack,
    members,
    racks,
    running,
)
from tests.integration.groups.test_group_metrics import shown
from tests.support.builders import node_object

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster

METRIC = "custom_scheduler_rejected_pods"


def explained(daemon: Daemon) -> dict[str, Any]:
    found = live_groups(daemon.parts, daemon.cycles.group_attempts, "default/g")
    assert found is not None
    [group] = found["groups"]
    return group


def annotations(it: Cluster, name: str) -> dict[str, Any]:
    """Return the annotations of the FailedScheduling event of a pod, decoded."""
    [event] = [
        each
        for each in it.server.store.list("events.events.k8s.io")
        if each["regarding"]["name"] == name and each["reason"] == "FailedScheduling"
    ]
    return {key: json.loads(text) for key, text in event["metadata"]["annotations"].items()}


async def test_a_gang_reports_how_many_of_its_members_miss_what(tmp_path: Path) -> None:
    async with running(tmp_path, node_object("n1", cpu="2"), node_object("n2", cpu="0")) as (it, daemon):
        add_gang(it, "g", 5)
        await it.until(lambda: condition(it, "g")[0] == "False")
        await it.until(lambda: daemon.parts.queue.count(Place.UNSCHEDULABLE) == 5)

        missing = {"code": "InsufficientCPU", "plugin": "NodeResourcesFit"}
        alone = {"code": "PreemptionOfGroupOnly", "plugin": "DefaultPreemption"}
        of_member = [{**missing, "nodes": 2}, alone]
        of_group = [
            {**missing, "members": 3},
            {**alone, "members": 3},
            {"code": "NoPreemptionVictims", "plugin": "DefaultPreemption", "members": 5},
        ]
        group = explained(daemon)
        assert group["causes"] == of_group
        assert [member["causes"] for member in group["members"]] == [[], [], *[of_member] * 3]
        assert condition(it, "g")[1] == "Unschedulable"

        await it.until(lambda: it.notes("g-4", "FailedScheduling"))
        assert annotations(it, "g-4") == {CAUSES: of_member, GROUP_CAUSES: of_group}
        assert annotations(it, "g-0") == {
            CAUSES: [{"code": "WaitingForGroup", "plugin": "GangScheduling"}],
            GROUP_CAUSES: of_group,
        }
        labels = 'namespace="default",plugin="{}",profile="custom-scheduler"}}'
        assert shown(daemon, METRIC) == {
            f'{{code="InsufficientCPU",{labels.format("NodeResourcesFit")}': 3,
            f'{{code="PreemptionOfGroupOnly",{labels.format("DefaultPreemption")}': 3,
            f'{{code="WaitingForGroup",{labels.format("GangScheduling")}': 2,
        }


async def test_a_gated_gang_reports_that_its_members_wait_for_further_pods(tmp_path: Path) -> None:
    async with running(tmp_path, node_object("n", cpu="8")) as (it, daemon):
        add_group(it, "g", 3)
        it.add_pods(*members("g", 2))
        await it.until(lambda: daemon.parts.queue.count(Place.GATED) == 2)

        cause = {"code": "TooFewPodsOfGroup", "plugin": "GangScheduling"}
        assert explained(daemon)["causes"] == [{**cause, "members": 2}]
        assert explained(daemon)["members"][0]["causes"] == [cause]


async def test_a_gang_without_any_domain_reports_it_for_all_members(tmp_path: Path) -> None:
    async with running(tmp_path, node_object("n", cpu="8")) as (it, daemon):
        it.server.store.create(POD_GROUPS, in_one_rack("g", 3))
        it.add_pods(*members("g", 3))
        await it.until(lambda: condition(it, "g")[0] == "False")

        assert explained(daemon)["causes"] == [{"code": "NoPlacement", "plugin": "", "members": 3}]


async def test_a_gang_that_is_placed_has_no_causes(tmp_path: Path) -> None:
    async with running(tmp_path, *racks(a="4")) as (it, daemon):
        add_gang(it, "g", 3)
        await it.until(lambda: condition(it, "g")[0] == "True")

        assert explained(daemon)["causes"] == []
        assert shown(daemon, METRIC) == {}
