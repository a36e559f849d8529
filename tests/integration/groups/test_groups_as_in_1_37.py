"""Groups as in Kubernetes 1.37: checked first, counted, and rejected with one message; time is virtual.

The expected messages follow from kube-scheduler v1.37, schedule_one_podgroup.go and plugins/gangscheduling.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.queue import Place
from tests.integration.groups.gangs import (
    POD_GROUPS,
    add_gang,
    add_group,
    condition,
    fill,
    member,
    members,
    placed,
    running,
    told,
)
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

AS_1_37 = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
emulatedVersion: '1.37'
profiles:
- schedulerName: custom-scheduler
- schedulerName: other
"""
NO_CPU = "0/1 nodes are available: 1 Insufficient cpu."
NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"
TOO_FEW = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"


as_in_1_37 = partial(running, configuration=AS_1_37)


async def test_members_of_a_rejected_gang_get_its_message_if_they_fit_or_were_not_reached(
    tmp_path: Path,
) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="1")) as (it, _):
        add_group(it, "g", 3)
        it.add_pods(*members("g", 4))
        await it.until(lambda: condition(it, "g")[0] == "False")
        await it.until(lambda: all(told(it, f"g-{number}") for number in range(4)))

        assert not placed(it)
        assert [told(it, f"g-{number}") for number in range(4)] == [
            f"{TOO_FEW}, {NO_VICTIMS}",
            NO_CPU,
            NO_CPU,
            TOO_FEW,
        ]
        assert condition(it, "g") == ("False", "Unschedulable", f"{TOO_FEW}, {NO_VICTIMS}")
        nominated = [pod["status"].get("nominatedNodeName", "") for pod in it.pods()]
        assert nominated == ["", "", "", ""]


def gated(group: str, name: str) -> dict[str, Any]:
    pod = member(group, name)
    pod["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    return pod


async def test_one_gated_pod_keeps_its_gang_waiting_without_a_message(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="4")) as (it, daemon):
        add_group(it, "g", 2)
        it.add_pods(*members("g", 2), gated("g", "g-gated"))
        await asyncio.sleep(30)
        assert not placed(it)
        assert told(it, "g-0") == told(it, "g-1") == ""
        assert condition(it, "g") == ("", "", "")
        assert daemon.parts.queue.count(Place.GATED) == 3

        it.server.store.patch("pods", "g-gated", {"spec": {"schedulingGates": None}})
        await it.until(lambda: placed(it) == {"g-0", "g-1", "g-gated"}, seconds=1)


async def test_a_gang_is_tried_when_its_gated_pod_is_deleted(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="4")) as (it, _):
        add_group(it, "g", 2)
        it.add_pods(gated("g", "g-gated"), *members("g", 2))
        await asyncio.sleep(5)
        assert not placed(it)
        it.server.store.delete("pods", "g-gated", grace_period_seconds=0)
        await it.until(lambda: placed(it) == {"g-0", "g-1"}, seconds=1)


async def test_pods_whose_pod_group_was_deleted_wait_for_it_without_a_message(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="1")) as (it, daemon):
        add_gang(it, "g", 3)
        await it.until(lambda: condition(it, "g")[0] == "False")
        it.add_nodes(node_object("m", cpu="1"))
        await it.until(lambda: daemon.parts.queue.count(Place.BACKOFF) == 3)
        it.server.store.delete(POD_GROUPS, "g", "default")
        it.server.store.patch(POD_GROUPS, "g", {"metadata": {"finalizers": None}}, "default")
        await it.until(lambda: daemon.parts.queue.count(Place.GATED) == 3, seconds=5)
        await asyncio.sleep(1)
        assert {it.condition(f"g-{number}")["reason"] for number in range(3)} == {"Unschedulable"}

        add_group(it, "g", 2)
        await it.until(lambda: len(placed(it)) == 2, seconds=5)


@pytest.mark.parametrize(("version", "waits"), [("1.36", False), ("1.37", True)])
async def test_a_new_pod_of_a_rejected_gang_waits_for_the_backoff_since_1_37(
    version: str, waits: bool, tmp_path: Path
) -> None:
    configuration = AS_1_37.replace("1.37", version)
    async with running(tmp_path, node_object("n", cpu="2"), configuration=configuration) as (it, daemon):
        add_gang(it, "g", 3)
        await it.until(lambda: condition(it, "g")[0] == "False")
        it.add_pods(member("g", "late"))
        await asyncio.sleep(0.5)
        assert (told(it, "late") == "") is waits
        assert (daemon.parts.queue.count(Place.BACKOFF) > 0) is waits
        await it.until(lambda: told(it, "late"), seconds=2)


async def test_the_backoff_of_a_gang_doubles_with_its_attempts_and_is_that_of_new_pods(
    tmp_path: Path,
) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="1")) as (it, daemon):
        add_gang(it, "g", 2)
        for seconds in (1, 2, 4, 8, 10):
            await it.until(lambda: daemon.parts.queue.count(Place.UNSCHEDULABLE) > 1)
            it.add_pods(member("g", f"late-{seconds}"))
            began = asyncio.get_running_loop().time()
            await it.until(lambda: told(it, f"late-{seconds}"))  # noqa: B023
            assert seconds - 1 <= asyncio.get_running_loop().time() - began <= seconds + 1.1


async def test_a_basic_group_of_which_no_pod_fits_is_unschedulable(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="1")) as (it, _):
        add_group(it, "g")
        it.add_pods(member("g", "g-0"))
        await it.until(lambda: placed(it) == {"g-0"})
        it.add_pods(member("g", "g-1"))
        await it.until(lambda: told(it, "g-1"))
        assert told(it, "g-1") == NO_CPU
        assert condition(it, "g") == ("True", "Scheduled", "")

        add_group(it, "h")
        it.add_pods(*members("h", 2))
        await it.until(lambda: condition(it, "h")[0] == "False")
        assert condition(it, "h")[2] == (
            f"minCount (1) cannot be satisfied: 0 scheduled, 0 remaining, {NO_VICTIMS}"
        )


async def test_more_pods_than_needed_are_placed_too(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="3")) as (it, _):
        add_group(it, "g", 2)
        it.add_pods(*members("g", 4))
        await it.until(lambda: len(placed(it)) == 3)
        assert condition(it, "g") == ("True", "Scheduled", "")


@pytest.mark.parametrize(
    ("group", "pods", "message"),
    [
        pytest.param(
            {"priority": 7},
            [{}, {}],
            "all pods in a single pod group should have the same priority as the pod group's priority, got 0 and 7",
            id="priority",
        ),
        pytest.param(
            {"priority": 7},
            [{}, {"scheduler": "other"}],
            "all pods in a single pod group should have the same priority as the pod group's priority, got 0 and 7",
            id="priority of the first pod, before the schedulerName of the second",
        ),
        pytest.param(
            {},
            [{"scheduler": "custom-scheduler"}, {"scheduler": "other"}],
            'all pods in a single pod group should have the same .spec.schedulerName set, got: "other" and '
            '"custom-scheduler"',
            id="schedulerName",
        ),
        pytest.param(
            {},
            [{}, {"preemption_policy": "Never"}],
            "all pods in a single pod group should have the same preemption policy, got Never and "
            "PreemptLowerPriority",
            id="preemptionPolicy",
        ),
    ],
)
async def test_pods_that_differ_from_their_group_are_errors(
    group: dict[str, Any], pods: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="4")) as (it, _):
        it.server.store.create(
            "priorityclasses.scheduling.k8s.io",
            {"metadata": {"name": "never"}, "value": 0, "preemptionPolicy": "Never"},
        )
        add_group(it, "g", 2, **group)
        for number, fields in enumerate(pods):
            pod = member("g", f"g-{number}")
            if "scheduler" in fields:
                pod["spec"]["schedulerName"] = fields["scheduler"]
            if "preemption_policy" in fields:
                pod["spec"] |= {"priorityClassName": "never", "preemptionPolicy": "Never"}
            it.server.store.create("pods", pod)
        await it.until(lambda: condition(it, "g")[0] == "False")
        await it.until(lambda: told(it, "g-0") and told(it, "g-1"))
        assert condition(it, "g") == ("False", "SchedulerError", message)
        assert {it.condition(f"g-{number}")["reason"] for number in range(2)} == {"SchedulerError"}
        assert told(it, "g-0") == told(it, "g-1") == message
        assert not placed(it)


async def test_a_placed_pod_that_differs_from_the_group_is_an_error_too(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="4")) as (it, _):
        add_group(it, "g", 2)
        other = member("g", "g-there", priority=7)
        other["spec"]["nodeName"] = "n"
        it.add_pods(other, member("g", "g-0"))
        await it.until(lambda: told(it, "g-0"))
        assert told(it, "g-0") == (
            "all pods in a single pod group should have the same priority as the pod group's priority, got 7 and 0"
        )


PRIORITY = 1000


def told_of_group(it: Cluster, group: str) -> list[str]:
    """Return the messages of the conditions that were written to a group."""
    return [
        each.json["status"]["conditions"][0].get("message", "")
        for each in it.server.requests
        if each.method == "PATCH" and each.path.endswith(f"/podgroups/{group}/status")
    ]


def higher_members(it: Cluster, group: str, count: int, min_count: int, **fields: Any) -> None:
    """Create a gang of higher priority."""
    add_group(it, group, min_count, priority=PRIORITY)
    it.add_pods(*members(group, count, priority=PRIORITY, **fields))


async def test_members_that_were_not_reached_are_nominated_too_when_the_group_preempts(
    tmp_path: Path,
) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="2")) as (it, daemon):
        await fill(it, 2)
        higher_members(it, "g", 2, min_count=2)
        await it.until(lambda: condition(it, "g")[0] == "False")
        await it.until(
            lambda: all(it.pod(f"g-{each}")["status"].get("nominatedNodeName") for each in range(2))
        )

        assert condition(it, "g")[2] == (
            "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, "
            "pod group preemption: found a placement for podgroup, preempting 2 victims"
        )
        assert {told(it, "g-0"), told(it, "g-1")} == {
            NO_CPU,
            "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining",
        }
        [past] = daemon.cycles.past_preemptions
        assert (past.kind, past.preemptor, past.message) == ("podgroup", "default/g", NO_CPU)


async def test_members_keep_the_nodes_that_they_get_without_all_victims(tmp_path: Path) -> None:
    async with as_in_1_37(
        tmp_path, *(node_object(name, cpu="2", labels={"name": name}) for name in ("n", "m")), kubelet=True
    ) as (it, _):
        for name, priority in (("n", 1), ("m", 5)):
            low = pod_object(f"low-{name}", cpu="2", priority=priority)
            low["spec"]["nodeSelector"] = {"name": name}
            it.add_pods(low)
        await it.until(lambda: len(placed(it)) == 2)
        terms = [{"key": "name", "operator": "In", "values": ["m"]}]
        prefers = {"weight": 100, "preference": {"matchExpressions": terms}}
        add_group(it, "g", 1, priority=PRIORITY)
        pod = member("g", "g-0", cpu="2", priority=PRIORITY)
        pod["spec"]["affinity"] = {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefers]}
        }
        it.add_pods(pod)
        await it.until(lambda: "g-0" in placed(it))

        assert placed(it) == {"g-0", "low-n"}
        assert it.node_of("g-0") == "m"


async def test_victims_leave_for_all_members_that_fit_and_not_only_for_min_count(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="3"), kubelet=True) as (it, _):
        it.add_pods(*(pod_object(f"low-{number}", cpu="1", priority=number) for number in range(3)))
        await it.until(lambda: len(placed(it)) == 3)
        higher_members(it, "g", 2, min_count=1)
        await it.until(lambda: {"g-0", "g-1"} <= placed(it))
        assert placed(it) == {"g-0", "g-1", "low-2"}


async def test_the_reason_why_preemption_does_not_help_is_that_of_the_last_search(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="2"), kubelet=True) as (it, _):
        it.add_pods(pod_object("low", cpu="1"))
        await it.until(lambda: placed(it) == {"low"})
        higher_members(it, "g", 3, min_count=3)
        await it.until(lambda: condition(it, "g")[0] == "False")
        assert condition(it, "g")[2] == (
            f"{TOO_FEW}, pod group preemption: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
        )
        assert placed(it) == {"low"}


async def test_pods_left_over_by_a_placed_group_are_tried_again_at_once_and_may_preempt(
    tmp_path: Path,
) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="3"), kubelet=True) as (it, _):
        it.add_pods(pod_object("low", cpu="1"))
        await it.until(lambda: placed(it) == {"low"})
        higher_members(it, "g", 3, min_count=2)
        await it.until(lambda: len(placed(it)) == 3)
        await it.until(lambda: it.pod("low")["metadata"].get("deletionTimestamp"), seconds=0.5)
        await it.until(lambda: placed(it) == {"g-0", "g-1", "g-2"})


async def test_a_group_tried_again_while_its_victims_terminate_keeps_its_nominations(tmp_path: Path) -> None:
    async with as_in_1_37(tmp_path, node_object("n", cpu="2")) as (it, _):
        low = [pod_object(f"low-{number}", cpu="1", termination_grace_period_seconds=60) for number in (0, 1)]
        it.add_pods(*low)
        await it.until(lambda: len(placed(it)) == 2)
        higher_members(it, "g", 2, min_count=2)
        await it.until(lambda: all(it.pod(f"g-{each}")["status"].get("nominatedNodeName") for each in (0, 1)))
        await it.until(lambda: it.pod("low-1")["metadata"].get("deletionTimestamp"))
        it.add_nodes(node_object("small", cpu="1"))
        await it.until(lambda: len(told_of_group(it, "g")) > 1, seconds=30)

        assert told_of_group(it, "g")[-1].endswith(
            "pod group preemption: ongoing preemption on nominated nodes"
        )
        assert {it.pod(f"g-{each}")["status"]["nominatedNodeName"] for each in (0, 1)} == {"n"}
