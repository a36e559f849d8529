"""Groups as in Kubernetes 1.37: checked first, counted, and rejected with one message; time is virtual.

The expected messages follow from kube-scheduler v1.37, schedule_one_podgroup.go and plugins/gangscheduling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.groups.test_pod_groups import (
    POD_GROUPS,
    condition,
    member,
    members,
    placed,
    pod_group,
    told,
)
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time_test import virtually

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


def add_group(it: Cluster, name: str, min_count: int = 0, **spec: Any) -> None:
    if "priority" in spec:
        value = spec.pop("priority")
        class_ = f"class-{value}"
        it.server.store.create(
            "priorityclasses.scheduling.k8s.io", {"metadata": {"name": class_}, "value": value}
        )
        spec["priorityClassName"] = class_
    it.server.store.create(POD_GROUPS, pod_group(name, min_count, **spec))


@virtually
async def test_members_of_a_rejected_gang_get_its_message_if_they_fit_or_were_not_reached(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="1"))
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


@virtually
async def test_no_member_is_tried_if_too_few_can_be_tried_at_all(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="4"))
        add_group(it, "g", 3)
        gated = member("g", "g-gated")
        gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
        it.add_pods(gated, *members("g", 2))
        await it.until(lambda: condition(it, "g")[0] == "False")

        message = "pod group is unschedulable, minCount (3) cannot be satisfied: 0 scheduled, 2 remaining"
        assert [told(it, "g-0"), told(it, "g-1")] == [message, message]


@virtually
async def test_a_basic_group_of_which_no_pod_fits_is_unschedulable(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="1"))
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


@virtually
async def test_more_pods_than_needed_are_placed_too(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="3"))
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
def test_pods_that_differ_from_their_group_are_errors(
    group: dict[str, Any], pods: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    @virtually
    async def play() -> None:
        async with cluster(tmp_path) as it, it.daemon(AS_1_37):
            it.add_nodes(node_object("n", cpu="4"))
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

    play()


@virtually
async def test_a_placed_pod_that_differs_from_the_group_is_an_error_too(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="4"))
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


@virtually
async def test_members_that_were_not_reached_are_nominated_too_when_the_group_preempts(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="2"))
        it.add_pods(*(pod_object(f"low-{number}", cpu="1") for number in range(2)))
        await it.until(lambda: len(placed(it)) == 2)
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


@virtually
async def test_members_keep_the_nodes_that_they_get_without_all_victims(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(AS_1_37):
        it.add_nodes(*(node_object(name, cpu="2", labels={"name": name}) for name in ("n", "m")))
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


@virtually
async def test_victims_leave_for_all_members_that_fit_and_not_only_for_min_count(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="3"))
        it.add_pods(*(pod_object(f"low-{number}", cpu="1", priority=number) for number in range(3)))
        await it.until(lambda: len(placed(it)) == 3)
        higher_members(it, "g", 2, min_count=1)
        await it.until(lambda: {"g-0", "g-1"} <= placed(it))
        assert placed(it) == {"g-0", "g-1", "low-2"}


@virtually
async def test_the_reason_why_preemption_does_not_help_is_that_of_the_last_search(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="2"))
        it.add_pods(pod_object("low", cpu="1"))
        await it.until(lambda: placed(it) == {"low"})
        higher_members(it, "g", 3, min_count=3)
        await it.until(lambda: condition(it, "g")[0] == "False")
        assert condition(it, "g")[2] == (
            f"{TOO_FEW}, pod group preemption: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
        )
        assert placed(it) == {"low"}


@virtually
async def test_pods_left_over_by_a_placed_group_are_tried_again_at_once_and_may_preempt(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="3"))
        it.add_pods(pod_object("low", cpu="1"))
        await it.until(lambda: placed(it) == {"low"})
        higher_members(it, "g", 3, min_count=2)
        await it.until(lambda: len(placed(it)) == 3)
        await it.until(lambda: it.pod("low")["metadata"].get("deletionTimestamp"), seconds=0.5)
        await it.until(lambda: placed(it) == {"g-0", "g-1", "g-2"})


@virtually
async def test_a_group_tried_again_while_its_victims_terminate_keeps_its_nominations(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37):
        it.add_nodes(node_object("n", cpu="2"))
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
