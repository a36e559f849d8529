"""Two independent schedulers on the same nodes: accounting, races, and pauses of nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from scheduler.configuration.load import parse
from scheduler.daemon.app.live_explain import live_explanation
from scheduler.tools.simulator.faults import binds
from scheduler.tools.simulator.node_agents.pod_status import RUN_SECONDS
from scheduler.tools.simulator.server import KubeletOptions
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OURS, THEIRS = "custom-scheduler", "default-scheduler"
REJECTIONS = "custom_scheduler_kubelet_rejections_total"


def packing(profile: str, pause_seconds: int) -> str:
    """A configuration that fills one node after the other."""
    return f"""{HEAD}
nodePauseInitialSeconds: {pause_seconds}
profiles:
- schedulerName: {profile}
  pluginConfig:
  - name: NodeResourcesFit
    args: {{scoringStrategy: {{type: MostAllocated, resources: [{{name: cpu, weight: 1}}]}}}}
  plugins:
    score: {{disabled: [{{name: NodeResourcesBalancedAllocation}}]}}
"""


def job(name: str, profile: str, seconds: int, **fields: Any) -> dict[str, Any]:
    """A pod that takes one CPU for a while; nobody makes it again if it fails."""
    runs = {RUN_SECONDS: str(seconds)}
    return pod_object(
        name, cpu="1", scheduler_name=profile, annotations=runs, restart_policy="Never", **fields
    )


def metric(daemon: Daemon, name: str, **labels: str) -> float:
    """One series of the daemon's metrics; 0 if it is not told."""
    return daemon.metrics.registry.get_sample_value(name, labels) or 0.0


class Rejected(NamedTuple):
    """How many pods kubelets rejected."""

    ours: int
    theirs: int


async def race(folder: Path, *, pause_seconds: int) -> Rejected:
    """Let the other scheduler bind a pod to the node that our scheduler has chosen, ten times.

    A Binding of ours takes the API server a second. The other scheduler does not see it meanwhile, and its Binding
    arrives half a second earlier or later. All pods have ended when the next two are created.
    """
    async with (
        cluster(folder, kubelet=KubeletOptions()) as it,
        it.daemon(packing(OURS, pause_seconds)) as daemon,
    ):
        it.add_nodes(node_object("n1", cpu="1"), node_object("spare", cpu="8"))
        it.server.faults.delay(1.0, binds)
        for number in range(10):
            it.add_pods(job(f"ours-{number}", OURS, 1))
            is_earlier = number % 2 == 0
            await asyncio.sleep(0.5 if is_earlier else 1.5)
            it.add_pods(job(f"theirs-{number}", THEIRS, 1, node="n1"))
            await asyncio.sleep(4.5 if is_earlier else 3.5)
        assert {pod["status"]["phase"] for pod in it.pods()} <= {"Succeeded", "Failed"}
        ends = Counter(
            pod["spec"]["schedulerName"] for pod in it.pods() if pod["status"].get("reason") == "OutOfcpu"
        )
        assert metric(daemon, REJECTIONS, reason="OutOfcpu") == ends[OURS]
        return Rejected(ends[OURS], ends[THEIRS])


@pytest.mark.parametrize(
    ("pause_seconds", "rejected"),
    [(0, Rejected(5, 5)), (60, Rejected(1, 0))],
    ids=["without pauses", "with a pause of a minute"],
)
async def test_node_pauses_reduce_the_number_of_pods_that_kubelets_reject(
    tmp_path: Path, pause_seconds: int, rejected: Rejected
):
    assert await race(tmp_path, pause_seconds=pause_seconds) == rejected


async def overfill(it: Cluster) -> None:
    """Let a pod of ours be bound to n1 in the moment in which somebody else takes n1's last CPU."""
    delay = it.server.faults.delay(1.0, binds)
    it.add_pods(pod_object("web", cpu="1"))
    await asyncio.sleep(0.5)
    it.add_pods(pod_object("theirs", cpu="1", scheduler_name=THEIRS, node="n1"))
    await it.until(lambda: it.pod("web")["status"].get("reason") == "OutOfcpu")
    it.server.faults.remove(delay)


async def test_a_kubelet_rejection_is_counted_recorded_explained_and_avoided(tmp_path: Path):
    async with cluster(tmp_path, kubelet=KubeletOptions()) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="1"))
        await overfill(it)
        await it.until(lambda: it.notes("web", "RejectedByKubelet"))

        assert metric(daemon, REJECTIONS, reason="OutOfcpu") == 1
        assert metric(daemon, "custom_scheduler_paused_nodes") == 1
        problem = "Node didn't have enough resource: cpu, requested: 1000, used: 1000, capacity: 1000"
        reported = f"node n1 rejected the pod after it was bound: OutOfcpu: {problem}; "
        assert it.notes("web", "RejectedByKubelet") == [reported + "other nodes are preferred for 5 s"]

        it.server.store.delete("pods", "theirs", "default", grace_period_seconds=0)
        it.add_nodes(node_object("n2", cpu="1"))
        await asyncio.sleep(0.5)
        it.add_pods(pod_object("next", cpu="1"))
        await it.until(lambda: it.node_of("next"))

        assert it.node_of("next") == "n2"
        explained = live_explanation(daemon, "default/next", LoopClock())
        assert explained is not None
        assert explained["attempt"]["nodes"]["n1"] == {
            "feasible": True,
            "avoided": f"its kubelet rejected pod default/web: OutOfcpu: {problem}",
        }


async def test_a_pod_created_on_a_node_under_our_name_does_not_pause_the_node(tmp_path: Path):
    async with cluster(tmp_path, kubelet=KubeletOptions()) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="1"))
        it.add_pods(pod_object("evil", cpu="5", node="n1"))
        await it.until(lambda: it.pod("evil")["status"].get("reason") == "OutOfcpu")
        await asyncio.sleep(5)

        assert metric(daemon, REJECTIONS, reason="OutOfcpu") == 0
        assert metric(daemon, "custom_scheduler_paused_nodes") == 0


async def test_the_only_node_of_a_cluster_is_used_while_it_is_paused(tmp_path: Path):
    async with cluster(tmp_path, kubelet=KubeletOptions()) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="1"))
        await overfill(it)
        await it.until(lambda: metric(daemon, "custom_scheduler_paused_nodes") == 1)
        it.server.store.delete("pods", "theirs", "default", grace_period_seconds=0)
        it.add_pods(pod_object("next", cpu="1"))

        await it.until(lambda: it.node_of("next") == "n1", seconds=1)
        assert metric(daemon, "custom_scheduler_paused_nodes") == 1


async def test_pauses_follow_a_changed_configuration(tmp_path: Path):
    async with cluster(tmp_path, kubelet=KubeletOptions()) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="1"))
        await overfill(it)
        await it.until(lambda: metric(daemon, "custom_scheduler_paused_nodes") == 1)

        await daemon.reload(parse(f"{HEAD}nodePauseInitialSeconds: 0\n"))

        assert metric(daemon, "custom_scheduler_paused_nodes") == 0


@pytest.mark.parametrize(
    ("priority", "node"), [(5, ""), (50, "n1")], ids=["less important", "more important"]
)
async def test_capacity_that_the_other_scheduler_preempted_belongs_to_it_by_priority(
    tmp_path: Path, priority: int, node: str
):
    async with (
        cluster(tmp_path, kubelet=KubeletOptions(stop_seconds=20)) as it,
        it.daemon(),
        it.daemon(f"{HEAD}profiles: [{{schedulerName: {THEIRS}}}]", seed=2),
    ):
        it.add_nodes(node_object("n1", cpu="1"))
        it.add_pods(pod_object("victim", cpu="1", node="n1"))
        it.add_pods(pod_object("theirs", cpu="1", priority=10, scheduler_name=THEIRS))
        await it.until(lambda: it.pod("theirs")["status"].get("nominatedNodeName") == "n1")
        delay = it.server.faults.delay(1.0, binds)

        it.add_pods(pod_object("ours", cpu="1", priority=priority))
        await asyncio.sleep(60)

        it.server.faults.remove(delay)
        assert it.node_of("ours") == node
        assert it.node_of("theirs") == ("" if node else "n1")
        assert it.pod("theirs")["status"].get("reason") is None


async def one_full_node(it: Cluster) -> None:
    """A node whose only pod takes half a minute to stop."""
    it.add_nodes(node_object("n1", cpu="1"))
    it.add_pods(pod_object("victim", cpu="1", node="n1", terminationGracePeriodSeconds=30))
    await it.until(lambda: it.pod("victim")["status"]["phase"] == "Running")


def nominated(it: Cluster, name: str) -> str:
    return it.pod(name)["status"].get("nominatedNodeName", "")


async def test_a_nomination_of_another_scheduler_is_not_cleared(tmp_path: Path):
    async with cluster(tmp_path, kubelet=KubeletOptions(stop_seconds=20)) as it, it.daemon() as daemon:
        await one_full_node(it)
        theirs = pod_object("theirs", cpu="1", priority=5, scheduler_name=THEIRS)
        it.add_pods(theirs | {"status": {"phase": "Pending", "nominatedNodeName": "n1"}})
        it.server.store.patch("pods", "theirs", {"status": {"nominatedNodeName": "n1"}}, subresource="status")
        await it.until(lambda: daemon.parts.nominator.node_of(it.pod("theirs")["metadata"]["uid"]) == "n1")

        it.add_pods(pod_object("ours", cpu="1", priority=10))
        await it.until(lambda: nominated(it, "ours") == "n1")
        await asyncio.sleep(5)

        assert nominated(it, "theirs") == "n1"


async def test_capacity_nominated_for_a_pod_stays_after_its_profile_is_removed(tmp_path: Path):
    both = f"{HEAD}profiles: [{{schedulerName: {OURS}}}, {{schedulerName: {THEIRS}}}]"
    async with cluster(tmp_path, kubelet=KubeletOptions(stop_seconds=20)) as it, it.daemon(both) as daemon:
        await one_full_node(it)
        it.add_pods(pod_object("theirs", cpu="1", priority=10, scheduler_name=THEIRS))
        await it.until(lambda: nominated(it, "theirs") == "n1")

        await daemon.reload(parse(HEAD))
        it.add_pods(pod_object("ours", cpu="1", priority=5))
        await asyncio.sleep(60)

        assert {pod["metadata"]["name"] for pod in it.pods()} == {"theirs", "ours"}
        assert it.node_of("ours") == ""


TWO_POOLS = f"""{HEAD}
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{{key: pool, operator: In, values: [ours]}}]
- schedulerName: leftovers
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{{key: pool, operator: DoesNotExist}}]
"""


async def test_added_affinity_divides_the_nodes_between_profiles(tmp_path: Path):
    async with cluster(tmp_path) as it, it.daemon(TWO_POOLS):
        it.add_nodes(node_object("mine", cpu="2", labels={"pool": "ours"}), node_object("rest", cpu="2"))
        for number in range(3):
            it.add_pods(pod_object(f"ours-{number}", cpu="1"))
            it.add_pods(pod_object(f"left-{number}", cpu="1", scheduler_name="leftovers"))
        await it.until(lambda: it.condition("ours-2") and it.condition("left-2"))

        placed = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in it.pods()}
        assert placed == {
            **{f"ours-{number}": "mine" for number in range(2)},
            **{f"left-{number}": "rest" for number in range(2)},
            "ours-2": None,
            "left-2": None,
        }
        assert it.condition("ours-2")["message"].startswith(
            "0/2 nodes are available: 1 Insufficient cpu, "
            "1 node(s) didn't match scheduler-enforced node affinity."
        )


LICENCE = '''"""Nodes with a licence."""

from collections.abc import Mapping
from typing import ClassVar

from scheduler.framework import FilterPlugin, Status


class Licence(FilterPlugin):
    """Lets pods run on nodes that have a licence."""

    name: ClassVar[str] = "Licence"
    api_version = 1

    def filter_node(self, state, pod, node):
        return None if "licence" in node.labels else Status.unschedulable("node(s) had no licence")
'''


async def test_two_profiles_use_their_own_plugins_and_event_reporters(tmp_path: Path):
    plugin = tmp_path / "licence.py"
    plugin.write_text(LICENCE)
    configuration = f"""{HEAD}
profiles:
- schedulerName: licensed
  plugins:
    multiPoint:
      enabled: [{{name: "{plugin}"}}]
- schedulerName: careless
  plugins:
    multiPoint:
      disabled: [{{name: TaintToleration}}]
"""
    async with cluster(tmp_path) as it, it.daemon(configuration):
        taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
        it.add_nodes(
            node_object("licensed-tainted", cpu="8", labels={"licence": "1"}, taints=[taint]),
            node_object("licensed", cpu="2", labels={"licence": "1"}),
        )
        for profile in ("licensed", "careless"):
            it.add_pods(
                pod_object(f"{profile}-small", cpu="1", scheduler_name=profile),
                pod_object(f"{profile}-big", cpu="8", scheduler_name=profile),
            )
        it.add_nodes(node_object("plain", cpu="8", taints=[taint]))
        await it.until(lambda: it.condition("licensed-big") and it.notes("careless-big", "Scheduled"))
        await it.until(lambda: it.notes("licensed-small", "Scheduled"))

        assert it.node_of("licensed-small") == "licensed"
        assert it.node_of("careless-big")
        assert it.condition("licensed-big")["status"] == "False"
        signed = {
            (event["regarding"]["name"].split("-")[0], event["reportingController"])
            for event in it.server.store.list("events.events.k8s.io")
            if event["reason"] in {"Scheduled", "FailedScheduling"}
        }
        assert signed == {("licensed", "licensed"), ("careless", "careless")}
