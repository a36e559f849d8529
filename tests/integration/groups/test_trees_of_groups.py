"""Trees of groups in a running daemon: a CompositePodGroup is placed as one; time is virtual.

The expected messages follow from kube-scheduler v1.37, schedule_one_podgroup.go and plugins/gangscheduling.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.daemon.app.live_explain import live_groups
from scheduler.engine.queue.pod_places import Place
from scheduler.framework import PreBindPlugin, Status
from tests.integration.groups.gangs import POD_GROUPS, condition, members, placed, told
from tests.integration.groups.test_groups_as_in_1_37 import NO_CPU, NO_VICTIMS
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster

COMPOSITES = "compositepodgroups.scheduling.k8s.io"
WITH_TREES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
emulatedVersion: '1.37'
featureGates: {CompositePodGroup: true}
profiles:
- schedulerName: custom-scheduler
"""
RACK = "example.com/rack"
TREES = {"CompositePodGroup": True}


def _of(name: str, policy: dict[str, Any], parent: str, **spec: Any) -> dict[str, Any]:
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if "topology" in spec:
        spec["schedulingConstraints"] = {"topology": [{"key": spec.pop("topology")}]}
    reference = {"workloadName": "w", "templateName": "t"}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, "workloadRef": reference, **spec},
    }


def add_composite(it: Cluster, name: str, min_groups: int = 0, parent: str = "", **spec: Any) -> None:
    policy = {"gang": {"minGroupCount": min_groups}} if min_groups else {"basic": {}}
    it.server.store.create(COMPOSITES, _of(name, policy, parent, **spec))


def add_leaf(it: Cluster, name: str, min_count: int = 0, parent: str = "", **spec: Any) -> None:
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    it.server.store.create(POD_GROUPS, _of(name, policy, parent, **spec))


def add_class(it: Cluster, value: int) -> str:
    name = f"class-{value}"
    it.server.store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": name}, "value": value})
    return name


def two_gangs(it: Cluster, min_groups: int, **spec: Any) -> None:
    """Add a root with two gangs `a` and `b` of two pods each."""
    add_composite(it, "root", min_groups, **spec)
    for leaf in ("a", "b"):
        add_leaf(it, leaf, 2, "root", **{key: value for key, value in spec.items() if key != "topology"})


def where(it: Cluster) -> dict[str, str]:
    """Return pod -> node of all pods on nodes."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in it.pods() if pod["spec"].get("nodeName")
    }


def gate(daemon: Daemon, name: str) -> str:
    return daemon.parts.profiles.run_pre_enqueue(daemon.parts.pods[f"default/{name}"]).message


def at_once(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod that is gone as soon as it is deleted."""
    pod["spec"]["terminationGracePeriodSeconds"] = 0
    return pod


async def test_no_pod_of_a_tree_is_tried_before_enough_pods_of_enough_groups_exist(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES) as daemon:
        it.add_nodes(node_object("n", cpu="8"))
        add_leaf(it, "a", 2, "root")
        it.add_pods(*members("a", 2))
        await asyncio.sleep(5)
        assert gate(daemon, "a-0") == (
            "failed to build hierarchy snapshot: composite pod group object not found in state for "
            "compositepodgroup/default/root"
        )

        add_composite(it, "root", 2)
        add_leaf(it, "b", 2, "root")
        it.add_pods(*members("b", 1))
        await asyncio.sleep(5)
        assert not placed(it)
        assert {daemon.parts.queue.place_of(pod["metadata"]["uid"]) for pod in it.pods()} == {Place.GATED}
        assert gate(daemon, "a-0") == 'waiting for composite pod group "root" tree to meet quorum'

        it.add_pods(members("b", 2)[1])
        await it.until(lambda: len(placed(it)) == 4)
        await it.until(lambda: condition(it, "b")[0] == "True")
        assert condition(it, "a") == ("True", "Scheduled", "")


async def test_no_group_is_placed_if_too_few_groups_fit(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(node_object("n", cpu="3"))
        two_gangs(it, 2)
        it.add_pods(*members("a", 2), *members("b", 2))
        await it.until(lambda: condition(it, "b")[0] == "False" and condition(it, "a")[0] == "False")
        await it.until(lambda: all(told(it, name) for name in ("a-0", "a-1", "b-0", "b-1")))

        available = "0/1 placements are available, first placement status: "
        of_root = f"{available}minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        of_b = f"{available}minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        assert not placed(it)
        assert condition(it, "a") == ("False", "Unschedulable", f"{of_root}, {NO_VICTIMS}")
        assert condition(it, "b") == ("False", "Unschedulable", f"{of_b}, {NO_VICTIMS}")
        assert [told(it, name) for name in ("a-0", "a-1", "b-0", "b-1")] == [
            f"{of_root}, {NO_VICTIMS}",
            f"{of_root}, {NO_VICTIMS}",
            f"{of_b}, {NO_VICTIMS}",
            NO_CPU,
        ]

        it.add_nodes(node_object("m", cpu="1"))
        await it.until(lambda: len(placed(it)) == 4)


async def test_enough_groups_are_placed_and_the_others_wait(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(node_object("n", cpu="3"))
        two_gangs(it, 1)
        it.add_pods(*members("a", 2), *members("b", 2))
        await it.until(lambda: condition(it, "b")[0] == "False" and condition(it, "a")[0] == "True")
        assert placed(it) == {"a-0", "a-1"}

        it.add_nodes(node_object("m", cpu="1"))
        await it.until(lambda: len(placed(it)) == 4)
        await it.until(lambda: condition(it, "b")[0] == "True")


async def test_a_group_whose_pods_fit_nowhere_ends_the_attempt_early(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES) as daemon:
        it.add_nodes(node_object("n", cpu="3"))
        two_gangs(it, 2)
        it.add_pods(*members("a", 2, cpu="4"), *members("b", 2))
        await it.until(lambda: condition(it, "b")[0] == "False" and condition(it, "a")[0] == "False")
        of_root = (
            "0/1 placements are available, first placement status: "
            "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
        )
        assert told(it, "b-0") == of_root
        assert condition(it, "b")[2] == f"{of_root}, {NO_VICTIMS}"

        groups = live_groups(daemon.parts, daemon.cycles.group_attempts, "default/root")
        assert groups is not None
        (root,) = groups["groups"]
        assert root["message"] == f"{of_root}, {NO_VICTIMS}"
        assert [(each["group"], each["result"]) for each in root["groups"]] == [
            ("default/a", "unschedulable"),
            ("default/b", "unschedulable"),
        ]


async def test_the_groups_of_a_tree_stay_in_one_domain_and_each_in_one_below_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        zone = "topology.kubernetes.io/zone"
        for name, of_zone, rack, cpu in (
            ("x1", "x", "x1", "3"),
            ("y1", "y", "y1", "2"),
            ("y2", "y", "y2", "2"),
        ):
            it.add_nodes(node_object(name, labels={zone: of_zone, RACK: rack}, cpu=cpu))
        add_composite(it, "root", 2, topology=zone)
        for leaf in ("a", "b"):
            add_leaf(it, leaf, 2, "root", topology=RACK)
        it.add_pods(*members("a", 2), *members("b", 2))
        await it.until(lambda: len(placed(it)) == 4)

        found = where(it)
        assert found["a-0"] == found["a-1"]
        assert found["b-0"] == found["b-1"]
        assert set(found.values()) == {"y1", "y2"}


async def test_a_later_pod_joins_the_domain_of_its_tree(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(
            node_object("x", labels={RACK: "x"}, cpu="2"), node_object("y", labels={RACK: "y"}, cpu="4")
        )
        two_gangs(it, 2, topology=RACK)
        it.add_pods(*members("a", 2), *members("b", 2))
        await it.until(lambda: len(placed(it)) == 4)
        assert set(where(it).values()) == {"y"}

        it.add_pods(members("a", 3)[2])
        await it.until(lambda: bool(told(it, "a-2")))
        assert "a-2" not in placed(it), "the other rack is free, but it is not that of the tree"
        it.add_nodes(node_object("y-2", labels={RACK: "y"}, cpu="1"))
        await it.until(lambda: len(placed(it)) == 5)
        assert where(it)["a-2"] == "y-2"


async def test_a_group_is_not_placed_outside_the_domain_of_its_parent(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        zone = "topology.kubernetes.io/zone"
        # The racks have the same names in both zones. Together they have room for both gangs, but no zone has.
        for of_zone in "xy":
            for rack, cpu in (("1", "2"), ("2", "1")):
                it.add_nodes(node_object(of_zone + rack, labels={zone: of_zone, RACK: rack}, cpu=cpu))
        add_composite(it, "root", 2, topology=zone)
        for leaf in ("a", "b"):
            add_leaf(it, leaf, 2, "root", topology=RACK)
        it.add_pods(*members("a", 2), *members("b", 2))
        await it.until(lambda: condition(it, "a")[0] == "False" and condition(it, "b")[0] == "False")
        assert not placed(it)

        it.add_nodes(node_object("y3", labels={zone: "y", RACK: "2"}, cpu="1"))
        await it.until(lambda: len(placed(it)) == 4)
        found = where(it)
        assert sorted(found.values()) == ["y1", "y1", "y2", "y3"]
        assert found["a-0"] == found["a-1"] or found["b-0"] == found["b-1"]


async def test_an_error_of_a_group_is_one_of_its_tree(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(*(node_object(name, labels={RACK: name}, cpu="8") for name in "xy"))
        add_composite(it, "root", 2)
        add_leaf(it, "a", 2, "root", topology=RACK)
        add_leaf(it, "b", 2, "root")
        running = members("a", 2)
        for pod, node in zip(running, "xy", strict=True):
            pod["spec"]["nodeName"] = node
        it.add_pods(*running, members("a", 3)[2], *members("b", 2))
        await it.until(lambda: condition(it, "a")[0] == "False" and condition(it, "b")[0] == "False")

        error = (
            "cannot determine domain for already scheduled pods: more than 1 domain found for pod group: x, y"
        )
        of_root = f"composite pod group evaluation failed due to child error: {error}"
        assert condition(it, "a") == ("False", "SchedulerError", error)
        assert condition(it, "b") == ("False", "SchedulerError", of_root)
        assert [told(it, name) for name in ("a-2", "b-0", "b-1")] == [error, of_root, of_root]


async def test_groups_of_groups_need_a_quorum_at_each_level(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(node_object("n", cpu="3"))
        add_composite(it, "root", 1)
        for middle in ("one", "two"):
            add_composite(it, middle, 2, "root")
            for leaf in ("a", "b"):
                add_leaf(it, f"{middle}-{leaf}", 1, middle)
        # Only one pod of `one-b` is too large, so that `one` does not fit and its other pod is taken back.
        it.add_pods(*members("one-a", 1, cpu="2"), *members("one-b", 1, cpu="2"))
        it.add_pods(*members("two-a", 1), *members("two-b", 1, cpu="2"))
        await it.until(lambda: len(placed(it)) == 2)

        assert placed(it) == {"two-a-0", "two-b-0"}
        await it.until(lambda: condition(it, "one-a")[0] == "False")
        assert condition(it, "two-b")[0] == "True"


async def test_a_tree_preempts_as_one_with_the_priority_of_its_root(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(*(at_once(pod_object(f"low-{number}", cpu="1")) for number in range(4)))
        await it.until(lambda: len(placed(it)) == 4)
        name = add_class(it, 7)
        two_gangs(it, 2, priorityClassName=name)
        pods = [*members("a", 2), *members("b", 2)]
        for pod in pods:
            pod["spec"] |= {"priorityClassName": name, "priority": 7}
        it.add_pods(*pods)
        await it.until(lambda: placed(it) == {"a-0", "a-1", "b-0", "b-1"}, seconds=60)

        events = [
            each for each in it.server.store.list("events.events.k8s.io") if each["reason"] == "Preempted"
        ]
        root = it.server.store.get(COMPOSITES, "root", "default")["metadata"]["uid"]
        assert {each["note"] for each in events} == {f"Preempted by compositepodgroup {root} on node cluster"}
        assert {each["related"]["kind"] for each in events} == {"CompositePodGroup"}


async def test_a_tree_that_is_disrupted_as_a_whole_leaves_as_a_whole(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(node_object("m", cpu="3"))
        it.add_pods(at_once(pod_object("other", cpu="2")))
        await it.until(lambda: placed(it) == {"other"})
        it.add_nodes(node_object("n", cpu="3"))
        two_gangs(it, 2, disruptionMode={"all": {}})
        it.add_pods(*map(at_once, [*members("a", 2), *members("b", 2)]))
        await it.until(lambda: len(placed(it)) == 5)
        name = add_class(it, 7)
        high = pod_object("high", cpu="3")
        high["spec"] |= {"priorityClassName": name, "priority": 7}
        it.add_pods(high)
        await it.until(lambda: "high" in placed(it), seconds=60)
        assert placed(it) == {"high", "other"}


async def test_a_pod_with_another_priority_than_the_root_fails_the_whole_tree(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(node_object("n", cpu="8"))
        name = add_class(it, 7)
        two_gangs(it, 2)
        pods = [*members("a", 2), *members("b", 2)]
        pods[3]["spec"] |= {"priorityClassName": name, "priority": 7}
        it.add_pods(*pods)
        await it.until(lambda: condition(it, "a")[0] == "False" and condition(it, "b")[0] == "False")
        message = "all pods in a single pod group should have the same priority as the pod group's priority, got 7 and 0"
        assert condition(it, "a") == condition(it, "b") == ("False", "SchedulerError", message)
        assert not placed(it)


async def test_without_the_gate_the_groups_of_a_tree_are_placed_one_by_one(tmp_path: Path) -> None:
    without = WITH_TREES.replace("true", "false")
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(without):
        it.add_nodes(node_object("n", cpu="3"))
        two_gangs(it, 2)
        it.add_pods(*members("a", 2), *members("b", 2))
        await it.until(lambda: condition(it, "a")[0] == "True" or condition(it, "b")[0] == "True")
        assert len(placed(it)) == 2
        assert not [each for each in it.server.requests if "compositepodgroups" in each.path]


@pytest.mark.parametrize("cpu", ["1", "2", "3", "4"])
async def test_a_tree_of_one_group_is_placed_as_the_group_by_itself(cpu: str, tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(node_object("n", cpu=cpu, labels={"of": "tree"}))
        it.add_nodes(node_object("m", cpu=cpu, labels={"of": "group"}))
        add_composite(it, "root", 1)
        add_leaf(it, "a", 2, "root")
        add_leaf(it, "b", 2)
        it.add_pods(*members("a", 3, node_selector={"of": "tree"}))
        it.add_pods(*members("b", 3, node_selector={"of": "group"}))
        await it.until(lambda: bool(condition(it, "a")[0] and condition(it, "b")[0]))
        await it.until(lambda: all(told(it, f"{group}-{n}") for group in "ab" for n in range(int(cpu), 3)))

        assert condition(it, "a")[:2] == condition(it, "b")[:2]
        assert {name[1:] for name in placed(it) if name[0] == "a"} == {
            name[1:] for name in placed(it) if name[0] == "b"
        }


class Prepares(PreBindPlugin):
    """Takes a while; fails for one pod at first."""

    name = "Prepares"
    api_version = 1
    failures = 1

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        await asyncio.sleep(5)
        if pod.name != "b-1" or not self.failures:
            return None
        self.failures -= 1
        return Status.failed("its disk is gone")


async def test_no_pod_of_a_tree_is_bound_while_another_group_cannot_be(tmp_path: Path) -> None:
    slow = f"{WITH_TREES}  plugins: {{preBind: {{enabled: [{{name: Prepares}}]}}}}\n"
    plugins = {"Prepares": Prepares}
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(slow, plugins=plugins):
        it.add_nodes(node_object("n", cpu="8"))
        two_gangs(it, 2)
        it.add_pods(*members("a", 2), *members("b", 2))
        await it.until(lambda: "its disk is gone" in told(it, "b-1"))
        await asyncio.sleep(1)
        assert not placed(it)
        assert told(it, "a-0").endswith('pod b-1: running PreBind plugin "Prepares": its disk is gone')

        await it.until(lambda: len(placed(it)) == 4, seconds=60)


async def test_a_tree_that_grows_while_it_waits_is_placed_with_its_new_groups(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES):
        it.add_nodes(node_object("n", cpu="8"))
        add_composite(it, "root", 3)
        for leaf in ("a", "b"):
            add_leaf(it, leaf, 1, "root")
        it.add_pods(*members("a", 1), *members("b", 1))
        await asyncio.sleep(5)
        assert not placed(it)

        it.add_pods(*members("c", 1))
        await asyncio.sleep(5)
        assert not placed(it), "group c does not exist yet"
        add_leaf(it, "c", 1, "root")
        await it.until(lambda: len(placed(it)) == 3)


async def test_a_root_that_is_deleted_gates_its_pods_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=TREES) as it, it.daemon(WITH_TREES) as daemon:
        it.add_nodes(node_object("n", cpu="1"))
        two_gangs(it, 2)
        it.add_pods(*members("a", 2), *members("b", 2))
        await it.until(lambda: condition(it, "a")[0] == "False")
        it.server.store.delete(COMPOSITES, "root")
        it.add_nodes(node_object("m", cpu="8"))
        await asyncio.sleep(30)
        assert not placed(it)
        assert "composite pod group object not found" in gate(daemon, "a-0")

        add_composite(it, "root", 2)
        await it.until(lambda: len(placed(it)) == 4, seconds=30)
