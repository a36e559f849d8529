"""Groups as in Kubernetes 1.35: parts of Workloads, whose pods wait for each other at Permit; time is virtual.

The expected verdicts and messages follow from kube-scheduler v1.35, plugins/gangscheduling/gangscheduling.go and
backend/workloadmanager.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.queue.pod_places import Place
from tests.integration.groups.test_pod_groups import placed, told
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster

WORKLOADS = "workloads.scheduling.k8s.io"
AS_1_35 = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
emulatedVersion: '1.35'
"""
NO_CPU = "0/1 nodes are available: 1 Insufficient cpu."
TIMEOUT = "rejected due to timeout"


def workload(name: str, **min_counts: int) -> dict[str, Any]:
    """Return a Workload with a gang for each name, or a basic group if minCount is 0."""
    groups = [
        {"name": group, "policy": {"gang": {"minCount": least}} if least else {"basic": {}}}
        for group, least in min_counts.items()
    ]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"podGroups": groups}}


def member(name: str, group: str, replica: str = "", **fields: Any) -> dict[str, Any]:
    """Return a pod of a group of the Workload `w`."""
    pod = pod_object(name, **{"cpu": "1", **fields})
    reference = {"name": "w", "podGroup": group}
    pod["spec"]["workloadRef"] = {**reference, "podGroupReplicaKey": replica} if replica else reference
    return pod


def bindings(it: Cluster) -> int:
    return len(it.server.requests.matching(method="POST", path="/binding"))


def count_of_noted(it: Cluster, message: str) -> int:
    """Return how many of the pods a, b and c have an event with a message."""
    return sum(any(message in note for note in it.notes(name, "FailedScheduling")) for name in "abc")


def kept_back(daemon: Daemon, name: str) -> str:
    """Return why a pod is not tried yet; "" if it may be tried."""
    (pod,) = (each for each in daemon.parts.queue.pods() if each.pod.name == name)
    if daemon.parts.queue.place_of(pod.pod.uid) is not Place.GATED:
        return ""
    return daemon.parts.profiles.run_pre_enqueue(pod.pod).message


async def test_a_gang_is_tried_once_its_workload_and_all_required_pods_exist(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.35") as it, it.daemon(AS_1_35) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(member("a", "gang"), member("b", "gang"))
        await asyncio.sleep(5)
        assert kept_back(daemon, "a") == 'waiting for pods\'s workload "w" to appear in scheduling queue'

        it.server.store.create(WORKLOADS, workload("w", gang=3))
        await asyncio.sleep(5)
        waiting = "waiting for minCount pods from a gang to appear in scheduling queue"
        assert [kept_back(daemon, name) for name in "ab"] == [waiting, waiting]
        assert not placed(it)

        it.add_pods(member("c", "gang"))
        await it.until(lambda: placed(it) == {"a", "b", "c"})
        assert bindings(it) == 3


async def test_members_with_a_node_wait_for_the_others_and_keep_their_places(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.35") as it, it.daemon(AS_1_35) as daemon:
        it.add_nodes(node_object("n", cpu="2"))
        it.server.store.create(WORKLOADS, workload("w", gang=3))
        it.add_pods(*(member(name, "gang") for name in "abc"))
        await it.until(lambda: count_of_noted(it, NO_CPU) == 1)
        it.add_pods(pod_object("later", cpu="1"))
        await it.until(lambda: told(it, "later").startswith(NO_CPU))
        await asyncio.sleep(100)
        assert len(list(daemon.parts.waiting_pods.waiting())) == 2
        assert bindings(it) == 0

        it.add_nodes(node_object("m", cpu="1"))
        await it.until(lambda: placed(it) == {"a", "b", "c"})
        assert not list(daemon.parts.waiting_pods.waiting())


async def test_a_gang_that_does_not_fit_gives_its_places_back_after_five_minutes(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with cluster(tmp_path, version="1.35") as it, it.daemon(AS_1_35):
        it.add_nodes(node_object("n", cpu="2"))
        it.server.store.create(WORKLOADS, workload("w", gang=3))
        it.add_pods(*(member(name, "gang") for name in "abc"))
        began = loop.time()
        await it.until(
            lambda: count_of_noted(it, f"{TIMEOUT} after waiting 5m0s at plugin") == 2, seconds=400
        )

        assert 300 <= loop.time() - began < 302
        assert bindings(it) == 0


async def test_all_members_of_an_attempt_wait_until_the_same_time(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with cluster(tmp_path, version="1.35") as it, it.daemon(AS_1_35):
        it.add_nodes(node_object("n", cpu="1"))
        it.server.store.create(WORKLOADS, workload("w", gang=3))
        it.add_pods(*(member(name, "gang") for name in "abc"))
        await it.until(lambda: count_of_noted(it, NO_CPU) == 2)
        began = loop.time()
        await asyncio.sleep(200)
        it.add_nodes(node_object("m", cpu="1"))
        await it.until(lambda: count_of_noted(it, TIMEOUT) == 2, seconds=400)

        assert 298 < loop.time() - began < 302


async def test_replicas_of_a_group_are_gangs_of_their_own(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.35") as it, it.daemon(AS_1_35) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(WORKLOADS, workload("w", gang=2))
        it.add_pods(member("a0", "gang", "0"), member("a1", "gang", "1"), member("b0", "gang", "0"))
        await it.until(lambda: placed(it) == {"a0", "b0"})
        await asyncio.sleep(5)

        assert placed(it) == {"a0", "b0"}
        assert kept_back(daemon, "a1").startswith("waiting for minCount pods")


async def test_a_pod_of_a_group_that_the_workload_lacks_waits_for_another_workload(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.35") as it, it.daemon(AS_1_35) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(WORKLOADS, workload("w", other=1))
        it.add_pods(member("a", "basic"))
        await asyncio.sleep(5)
        assert kept_back(daemon, "a") == 'pod group "basic" doesn\'t exist for a workload "w"'

        it.server.store.delete(WORKLOADS, "w", "default")
        it.server.store.create(WORKLOADS, workload("w", basic=0))
        await it.until(lambda: placed(it) == {"a"})


async def test_a_workload_that_is_gone_when_a_member_has_a_node_is_an_error(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.35") as it, it.daemon(AS_1_35) as daemon:
        it.server.store.create(WORKLOADS, workload("w", gang=2))
        it.add_pods(member("a", "gang"), member("b", "gang"))
        await it.until(lambda: told(it, "a") and told(it, "b"))
        it.server.store.delete(WORKLOADS, "w", "default")
        await asyncio.sleep(1)
        it.add_nodes(node_object("n", cpu="4"))
        missing = 'failed to get workload default/w: workload.scheduling.k8s.io "w" not found'
        await it.until(lambda: missing in told(it, "a") and missing in told(it, "b"))
        assert bindings(it) == 0
        assert not list(daemon.parts.waiting_pods.waiting())


async def test_members_after_a_complete_gang_are_bound_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.35") as it, it.daemon(AS_1_35):
        it.add_nodes(node_object("n", cpu="4"))
        it.server.store.create(WORKLOADS, workload("w", gang=2))
        it.add_pods(member("a", "gang"), member("b", "gang"))
        await it.until(lambda: placed(it) == {"a", "b"})
        it.add_pods(member("c", "gang"))
        await it.until(lambda: placed(it) == {"a", "b", "c"}, seconds=5)


@pytest.mark.parametrize(
    ("version", "kinds"), [("1.34", []), ("1.35", ["workloads"]), ("1.36", ["podgroups"])]
)
async def test_the_daemon_reads_the_kind_of_groups_that_its_version_has(
    tmp_path: Path, version: str, kinds: list[str]
) -> None:
    configuration = AS_1_35.replace("1.35", version)
    async with cluster(tmp_path, version=version) as it, it.daemon(configuration):
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(pod_object("web"))
        await it.until(lambda: it.node_of("web"))
        asked = {
            each.path.rpartition("/")[2] for each in it.server.requests if "scheduling.k8s.io" in each.path
        }

        assert sorted(asked & {"podgroups", "workloads"}) == kinds


async def test_a_server_without_the_gate_of_groups_drops_the_reference(tmp_path: Path) -> None:
    gates = {"GenericWorkload": False}
    async with cluster(tmp_path, version="1.35", feature_gates=gates) as it, it.daemon(AS_1_35):
        it.add_nodes(node_object("n", cpu="4"))
        it.add_pods(member("a", "gang"))
        await it.until(lambda: placed(it) == {"a"})
        assert "workloadRef" not in it.pod("a")["spec"]
