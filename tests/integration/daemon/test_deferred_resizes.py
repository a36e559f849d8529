"""Preemption for resizes of pods on nodes, in a running daemon of 1.37; time is virtual.

Most tests write what a kubelet reports of a resize, so the simulated one leaves that to them.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from plugins.deferred_pod_scheduling import DISABLED, FITS
from scheduler.configuration.load import parse
from scheduler.daemon.app.consistency.state_check import StateCheck
from scheduler.daemon.app.live_explain import live_explanation
from scheduler.engine.queue.pod_places import Place
from scheduler.framework import FilterPlugin, PermitPlugin, PreEnqueuePlugin, Status
from scheduler.tools.simulator.faults import requests
from scheduler.tools.simulator.node_agents.kubelet import KubeletOptions
from tests.integration.daemon.test_preemption import evictions, is_there, value
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.framework import CycleState, Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo
    from tests.support.daemon_harness import Cluster

AS_1_37 = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
emulatedVersion: '1.37'
featureGates: {InPlacePodVerticalScalingSchedulerPreemption: %s}
"""
ON, OFF = AS_1_37 % "true", AS_1_37 % "false"
RESIZES = {"InPlacePodVerticalScalingSchedulerPreemption": True}
REPORTED = KubeletOptions(resizes=False)
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}


def running(name: str, cpu: str, *, priority: int = 0, node: str = "n", **spec: Any) -> dict[str, Any]:
    return pod_object(name, cpu=cpu, priority=priority, node=node, **spec)


def resize(it: Cluster, name: str, cpu: str) -> None:
    """Request another size."""
    [container] = it.pod(name)["spec"]["containers"]
    changed = {**container, "resources": {"requests": {"cpu": cpu}}}
    it.server.store.patch("pods", name, {"spec": {"containers": [changed]}}, subresource="resize")


def report(it: Cluster, name: str, *pending: dict[str, Any], cpu: str) -> None:
    """Write what the kubelet reports: the conditions of a resize that pends, and what the pod has."""
    others = [
        each
        for each in it.pod(name).get("status", {}).get("conditions", ())
        if each["type"] != DEFERRED["type"]
    ]
    has = {"name": "main", "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
    status = {"conditions": [*others, *pending], "containerStatuses": [has]}
    it.server.store.patch("pods", name, {"status": status}, subresource="status")


def defer(it: Cluster, name: str, *, has: str, wants: str) -> None:
    resize(it, name, wants)
    report(it, name, DEFERRED, cpu=has)


def shrink(it: Cluster, name: str, cpu: str) -> None:
    resize(it, name, cpu)
    report(it, name, cpu=cpu)


def place(it: Cluster, daemon: Daemon, name: str) -> Place:
    return daemon.parts.queue.place_of(it.pod(name)["metadata"]["uid"])


def explained(daemon: Daemon) -> dict[str, Any]:
    found = live_explanation(daemon, "default/grows", LoopClock())
    assert found is not None
    return found


def attempts(it: Cluster, daemon: Daemon, name: str) -> int:
    queued = daemon.parts.queue.get(it.pod(name)["metadata"]["uid"])
    return 0 if queued is None else queued.attempts


def bindings(it: Cluster) -> int:
    return len(it.server.requests.matching(method="POST", path="/binding"))


async def test_a_pod_preempts_for_its_resize_until_the_kubelet_has_resized_it(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, version="1.37", feature_gates=RESIZES, kubelet=REPORTED) as it,
        it.daemon(ON) as daemon,
    ):
        it.add_nodes(node_object("n", cpu="4"), node_object("free", cpu="8"))
        it.add_pods(running("low", "2"), running("grows", "2", priority=10))
        await it.until(lambda: it.condition("grows", "Ready"))
        defer(it, "grows", has="2", wants="4")
        await it.until(lambda: not is_there(it, "low"))
        await it.until(lambda: place(it, daemon, "grows") is Place.UNSCHEDULABLE)
        await asyncio.sleep(30)

        assert evictions(it) == {"low": 1}
        assert value(daemon, "custom_scheduler_deferred_resizes") == 1
        assert place(it, daemon, "grows") is Place.UNSCHEDULABLE
        told = explained(daemon)
        assert (told["node"], told["place"], told["attempt"]["message"]) == ("n", "unschedulable", FITS)

        report(it, "grows", cpu="4")
        await it.until(lambda: place(it, daemon, "grows") is Place.OUTSIDE)
        assert value(daemon, "custom_scheduler_deferred_resizes") == 0
        assert not list(daemon.parts.queue.pods())
        assert not it.condition("grows")  # a new condition would say that it is not scheduled
        assert "nominatedNodeName" not in it.pod("grows")["status"]
        assert not it.notes("grows", "FailedScheduling")
        assert bindings(it) == 0
        assert it.node_of("grows") == "n"


@pytest.mark.parametrize("version", ["1.36", "1.37"])
async def test_the_kubelet_resizes_the_pod_once_victims_have_left(tmp_path: Path, version: str) -> None:
    gates = RESIZES if version == "1.37" else {}
    async with (
        cluster(tmp_path, version=version, feature_gates=gates, kubelet=True) as it,
        it.daemon(ON) as daemon,
    ):
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(running("low", "2"), running("grows", "2", priority=10))
        await it.until(lambda: it.condition("grows", "Ready"))
        resize(it, "grows", "4")
        await it.until(lambda: not is_there(it, "low"))
        await it.until(lambda: not it.condition("grows", DEFERRED["type"]))
        await it.until(lambda: place(it, daemon, "grows") is Place.OUTSIDE)

        (status,) = it.pod("grows")["status"]["containerStatuses"]
        assert status["allocatedResources"] == {"cpu": "4"}
        assert evictions(it) == {"low": 1}


async def test_the_explanation_has_the_victims_of_a_resize_but_evicts_none(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="4"), node_object("m", cpu="8"))
        it.add_pods(
            running("low", "2"), running("high", "1", priority=20), running("grows", "1", priority=10)
        )
        await it.until(lambda: it.condition("grows", "Ready"))
        resize(it, "grows", "3")
        await it.until(lambda: it.condition("grows", DEFERRED["type"]))

        found = explained(daemon)
        assert found["now"]["resize"]["missing"] == {"cpu": "2"}
        assert found["now"]["resize"]["allocated"] == {"cpu": "1"}
        assert found["now"]["resize"]["requested"] == {"cpu": "3"}
        assert found["verdict"].startswith(
            "Pod default/grows is on node n, which lacks 2 cpu for its resize. "
            "It would fit without default/low. If it were pending, it fits on 1 of 2 nodes; best: m"
        )
        await asyncio.sleep(30)
        assert is_there(it, "low")
        assert not evictions(it)
        assert value(daemon, "scheduler_preemption_victims_count") == 0


async def test_the_freed_capacity_is_kept_for_the_resize(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, version="1.37", feature_gates=RESIZES, kubelet=REPORTED) as it,
        it.daemon(ON),
    ):
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(running("low", "2"), running("grows", "2", priority=10))
        await it.until(lambda: it.condition("grows", "Ready"))
        defer(it, "grows", has="2", wants="4")
        it.add_pods(pod_object("late", cpu="1", priority=5))
        await it.until(lambda: not is_there(it, "low"))
        await asyncio.sleep(60)

        assert it.node_of("late") == ""


@pytest.mark.parametrize(
    ("gate", "policy", "owners"),
    [
        pytest.param(OFF, "PreemptLowerPriority", [], id="the gate is off"),
        pytest.param(ON, "Never", [], id="the pod may not preempt"),
        pytest.param(ON, "PreemptLowerPriority", ["example.com/autoscaler"], id="its node disables it"),
    ],
)
async def test_no_pod_is_evicted_for_a_resize_that_may_not_preempt(
    tmp_path: Path, gate: str, policy: str, owners: list[str]
) -> None:
    async with (
        cluster(tmp_path, version="1.37", feature_gates=RESIZES, kubelet=REPORTED) as it,
        it.daemon(gate) as daemon,
    ):
        class_ = {"metadata": {"name": "priority-10"}, "value": 10, "preemptionPolicy": policy}
        it.server.store.create("priorityclasses.scheduling.k8s.io", class_)
        it.add_nodes(node_object("n", cpu="4", no_resize_preemption=owners))
        it.add_pods(running("low", "2"), running("grows", "2", priority=10, preemptionPolicy=policy))
        await it.until(lambda: it.condition("grows", "Ready"))
        defer(it, "grows", has="2", wants="4")
        await asyncio.sleep(60)

        assert not evictions(it)
        assert place(it, daemon, "grows") is (Place.OUTSIDE if gate is OFF else Place.UNSCHEDULABLE)


async def test_a_resize_preempts_once_its_node_allows_it(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, version="1.37", feature_gates=RESIZES, kubelet=REPORTED) as it,
        it.daemon(ON) as daemon,
    ):
        it.add_nodes(node_object("n", cpu="4", no_resize_preemption=["example.com/autoscaler"]))
        it.add_pods(running("low", "2"), running("grows", "2", priority=10))
        await it.until(lambda: it.condition("grows", "Ready"))
        defer(it, "grows", has="2", wants="4")
        await it.until(lambda: place(it, daemon, "grows") is Place.UNSCHEDULABLE)
        verdict = explained(daemon)["attempt"]["nodes"]["n"]
        assert verdict["reasons"] == [DISABLED]
        assert verdict["details"] == ["disabled by example.com/autoscaler"]
        assert value(daemon, "scheduler_preemption_victims_count") == 0

        it.server.store.patch("nodes", "n", {"spec": {"podPreemptionPolicy": None}})
        await it.until(lambda: not is_there(it, "low"), seconds=20)


async def test_a_new_daemon_finds_deferred_resizes_and_a_deleted_pod_leaves(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=RESIZES) as it:
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(running("other", "2", priority=20), running("grows", "2", priority=10))
        defer(it, "grows", has="2", wants="4")
        async with it.daemon(ON) as daemon:
            await it.until(lambda: place(it, daemon, "grows") is Place.UNSCHEDULABLE)
        async with it.daemon(ON) as daemon:
            await it.until(lambda: place(it, daemon, "grows") is Place.UNSCHEDULABLE)
            it.server.store.delete("pods", "grows", grace_period_seconds=0)
            await it.until(lambda: not list(daemon.parts.queue.pods()))

        assert not evictions(it)


@pytest.mark.parametrize(
    ("change", "tries_again"),
    [
        pytest.param(lambda it: resize(it, "other", "1"), False, id="another pod asks for less"),
        pytest.param(lambda it: shrink(it, "other", "1"), True, id="another pod takes less"),
        pytest.param(lambda it: resize(it, "other", "3"), True, id="another pod takes more"),
        pytest.param(lambda it: resize(it, "elsewhere", "3"), False, id="on another node more is taken"),
        pytest.param(lambda it: resize(it, "grows", "3"), True, id="it asks for less"),
        pytest.param(lambda it: resize(it, "grows", "5"), True, id="it asks for more"),
        pytest.param(lambda it: it.label_pod("other", a="b"), False, id="a label"),
        pytest.param(
            lambda it: it.server.store.delete("pods", "other", grace_period_seconds=0), True, id="a deletion"
        ),
        pytest.param(
            lambda it: it.server.store.delete("pods", "elsewhere", grace_period_seconds=0),
            False,
            id="a deletion on another node",
        ),
    ],
)
async def test_changes_on_its_node_requeue_a_pod_that_waits_for_its_resize(
    tmp_path: Path, change: Any, tries_again: bool
) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=RESIZES) as it, it.daemon(ON) as daemon:
        it.add_nodes(node_object("n", cpu="5"), node_object("m", cpu="5"))
        it.add_pods(running("other", "2", priority=20), running("elsewhere", "2", node="m"))
        it.add_pods(running("grows", "2", priority=10))
        report(it, "other", cpu="2")
        defer(it, "grows", has="2", wants="4")
        await it.until(lambda: place(it, daemon, "grows") is Place.UNSCHEDULABLE)
        await asyncio.sleep(20)
        before = attempts(it, daemon, "grows")
        change(it)
        await asyncio.sleep(20)

        assert (attempts(it, daemon, "grows") > before) is tries_again


class RefusesAll(PreEnqueuePlugin, FilterPlugin, PermitPlugin):
    """Rejects every pod that it is called for."""

    name = "RefusesAll"
    api_version = 1

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return Status.unschedulable("no")

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        return Status.unschedulable("no", resolvable=False)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.unschedulable("no")


async def test_only_plugins_for_resizes_are_called_as_the_pod_keeps_its_node(tmp_path: Path) -> None:
    profiles = "profiles: [{plugins: {multiPoint: {enabled: [{name: RefusesAll}]}}}]"
    plugins: dict[str, type[Plugin]] = {"RefusesAll": RefusesAll}
    async with (
        cluster(tmp_path, version="1.37", feature_gates=RESIZES, kubelet=REPORTED) as it,
        it.daemon(f"{ON}{profiles}", plugins=plugins) as daemon,
    ):
        it.add_nodes(
            node_object("n", cpu="4", labels={"a": "b"}, taints=["a:NoSchedule"], unschedulable=True)
        )
        it.add_pods(running("low", "2"), running("grows", "2", priority=10, nodeSelector={"a": "b"}))
        await it.until(lambda: it.condition("grows", "Ready"))
        it.server.store.patch("nodes", "n", {"metadata": {"labels": {"a": None}}})
        defer(it, "grows", has="2", wants="4")
        await it.until(lambda: not is_there(it, "low"))
        await it.until(lambda: explained(daemon)["attempt"]["message"] == FITS)


async def test_no_further_pod_is_evicted_for_a_resize_that_is_withdrawn(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=RESIZES) as it, it.daemon(ON):
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(running("a", "1"), running("b", "1"), running("grows", "2", priority=10))
        patches = requests(verb="patch", resource="pods", subresource="status")
        it.server.faults.delay(5.0, match=patches)
        defer(it, "grows", has="2", wants="4")
        await asyncio.sleep(2)
        shrink(it, "grows", "2")
        await asyncio.sleep(30)

        assert evictions(it).total() == 1


async def test_the_consistency_check_finds_a_deferred_resize_that_is_not_queued(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=RESIZES) as it, it.daemon(ON) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(running("other", "2", priority=20), running("grows", "2"))
        defer(it, "grows", has="2", wants="4")
        await it.until(lambda: place(it, daemon, "grows") is Place.UNSCHEDULABLE)
        check = StateCheck(daemon.parts, daemon.cycles, daemon.watches, Random(1))

        def findings() -> list[str]:
            found = [finding for _, step in check.checks() for finding in step()]
            for finding in found:
                assert finding.repair is not None
                finding.repair()
            return [str(finding) for finding in found]

        assert findings() == []
        daemon.parts.queue.delete(daemon.parts.pods["default/grows"])
        assert findings() == ["pending default/grows: its resize is deferred, and it is not in the queue"]
        assert findings() == []


async def test_a_pending_pod_gets_the_capacity_that_a_resize_frees(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(running("shrinks", "4"))
        report(it, "shrinks", cpu="4")
        it.add_pods(pod_object("waits", cpu="2"))
        await it.until(lambda: it.notes("waits", "FailedScheduling"))
        resize(it, "shrinks", "2")
        await asyncio.sleep(30)
        assert it.node_of("waits") == ""

        report(it, "shrinks", cpu="2")
        await it.until(lambda: it.node_of("waits"), seconds=20)


async def test_members_of_groups_on_nodes_are_resized_one_by_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=RESIZES) as it, it.daemon(ON) as daemon:
        gang = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        it.server.store.create("podgroups.scheduling.k8s.io", gang)
        in_group = {"schedulingGroup": {"podGroupName": "g"}}
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(running("other", "2", priority=20), running("grows", "2", **in_group))
        defer(it, "grows", has="2", wants="4")
        await it.until(lambda: place(it, daemon, "grows") is Place.UNSCHEDULABLE)

        group = daemon.parts.pods["default/grows"].group
        assert group is not None
        assert attempts(it, daemon, "grows") == 1
        assert daemon.cycles.group_attempts.last(group) is None


async def test_a_reload_begins_and_ends_to_preempt_for_resizes(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37", feature_gates=RESIZES) as it, it.daemon(OFF) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(running("other", "2", priority=20), running("grows", "2", priority=10))
        defer(it, "grows", has="2", wants="4")
        await asyncio.sleep(5)
        assert place(it, daemon, "grows") is Place.OUTSIDE

        await daemon.reload(parse(ON))
        await it.until(lambda: place(it, daemon, "grows") is Place.UNSCHEDULABLE)
        await daemon.reload(parse(OFF))
        assert place(it, daemon, "grows") is Place.OUTSIDE
