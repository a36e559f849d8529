"""Preemption in a running daemon: victims, conditions and events, and the use of the freed capacity."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.queue.pod_places import Place
from scheduler.framework import PermitPlugin, PreBindPlugin, Wait
from scheduler.tools.simulator.faults import requests
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo
    from tests.support.daemon_harness import Cluster

FULL = (
    "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
    "0/1 nodes are available: 1 No preemption victims found for incoming pod."
)

NEVER = (
    "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
    "not eligible due to preemptionPolicy=Never."
)


def important(name: str = "important", cpu: str = "2", priority: int = 10, **fields: Any) -> dict[str, Any]:
    return pod_object(name, cpu=cpu, priority=priority, **fields)


def evictions(it: Cluster) -> Counter[str]:
    """Pod -> how often the daemon asked to delete it."""
    return Counter(
        request.path.rpartition("/")[2]
        for request in it.server.requests.matching(method="DELETE")
        if "/pods/" in request.path
    )


def events_of(it: Cluster, name: str, reason: str) -> list[dict[str, Any]]:
    events = it.server.store.list("events.events.k8s.io")
    return [each for each in events if each["regarding"]["name"] == name and each["reason"] == reason]


def is_there(it: Cluster, name: str) -> bool:
    return any(pod["metadata"]["name"] == name for pod in it.pods())


def value(daemon: Daemon, name: str, **labels: str) -> float:
    """One series of the daemon's metrics; 0 if it is not told."""
    return daemon.metrics.registry.get_sample_value(name, labels) or 0.0


async def settle_on(it: Cluster, *pods: dict[str, Any]) -> None:
    """Add pods, and wait until each is on a node."""
    it.add_pods(*pods)
    await it.until(lambda: all(it.node_of(pod["metadata"]["name"]) for pod in pods))


async def test_a_victim_gets_a_condition_and_the_preemptor_takes_its_place(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="2"))
        await settle_on(it, pod_object("victim", cpu="2"))
        it.add_pods(important())
        await it.until(lambda: it.condition("victim", "DisruptionTarget"))

        reported = it.condition("victim", "DisruptionTarget")
        assert (reported["status"], reported["reason"]) == ("True", "PreemptionByScheduler")
        assert reported["message"] == "custom-scheduler: preempting to accommodate a higher priority pod"
        await it.until(lambda: it.pod("important").get("status", {}).get("nominatedNodeName"))
        assert it.pod("important")["status"]["nominatedNodeName"] == "n"
        refused = it.condition("important")
        assert (refused["status"], refused["reason"]) == ("False", "Unschedulable")
        assert refused["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert it.node_of("important") == ""

        await it.until(lambda: it.node_of("important"))
        assert not is_there(it, "victim")
        assert evictions(it) == {"victim": 1}
        await it.until(lambda: events_of(it, "victim", "Preempted"))
        [event] = events_of(it, "victim", "Preempted")
        uid = it.pod("important")["metadata"]["uid"]
        assert event["note"] == f"Preempted by pod {uid} on node n"
        assert (event["type"], event["action"]) == ("Normal", "Preempting")
        assert event["reportingController"] == "custom-scheduler"
        assert event["related"]["uid"] == uid


@pytest.mark.parametrize(
    ("victim_priority", "policy", "expected"),
    [
        (10, "PreemptLowerPriority", FULL),
        (
            0,
            "Never",
            NEVER,
        ),
    ],
    ids=["equal priority", "policy Never"],
)
async def test_no_pod_is_evicted_for_a_pod_that_may_not_preempt(
    tmp_path: Path, victim_priority: int, policy: str, expected: str
) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        class_ = {"metadata": {"name": "priority-10"}, "value": 10, "preemptionPolicy": policy}
        it.server.store.create("priorityclasses.scheduling.k8s.io", class_)
        it.add_nodes(node_object("n", cpu="2"))
        await settle_on(it, pod_object("there", cpu="2", priority=victim_priority))
        it.add_pods(important("late", preemptionPolicy=policy))
        await it.until(lambda: it.notes("late", "FailedScheduling"))

        assert it.notes("late", "FailedScheduling")[0] == expected
        assert not evictions(it)


async def test_the_capacity_of_victims_goes_to_the_preemptor_only(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="2"))
        await settle_on(it, pod_object("victim", cpu="2", terminationGracePeriodSeconds=20))
        it.add_pods(important())
        await it.until(lambda: it.pod("victim")["metadata"].get("deletionTimestamp"))
        it.add_pods(pod_object("meanwhile", cpu="2", priority=1))
        await it.until(lambda: it.node_of("important"), seconds=120)

        assert it.node_of("meanwhile") == ""
        assert evictions(it) == {"victim": 1}


async def test_several_preemptors_never_evict_more_than_they_need(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(*(node_object(f"n{number}", cpu="4") for number in range(3)))
        await settle_on(it, *(pod_object(f"low-{number}", cpu="1") for number in range(12)))
        it.add_pods(*(important(f"high-{number}", cpu="1") for number in range(5)))
        await it.until(lambda: all(it.node_of(f"high-{number}") for number in range(5)), seconds=300)

        # One that has been told a moment ago may be told again, which changes nothing; nobody else has to leave.
        assert len(evictions(it)) == 5
        assert len(it.pods()) == 12


@pytest.mark.parametrize("code", [500, 429])
@pytest.mark.parametrize(
    "refused",
    [requests(verb="delete", resource="pods"), requests(verb="patch", subresource="status", name="victim")],
    ids=["delete", "patch"],
)
async def test_a_preemption_that_failed_is_tried_again(tmp_path: Path, refused: Any, code: int) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="2"))
        await settle_on(it, pod_object("victim", cpu="2"))
        it.server.faults.refuse(code, match=refused, times=12)
        it.add_pods(important())
        await it.until(lambda: it.node_of("important"), seconds=900)

        assert not is_there(it, "victim")


async def test_without_binding_nobody_is_evicted_and_the_preemptor_backs_off(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, kubelet=True) as it:
        it.add_nodes(node_object("n", cpu="2"))
        it.add_pods(pod_object("victim", cpu="2", node="n"))
        async with it.daemon(no_bind=True) as daemon:
            it.add_pods(important())
            await asyncio.sleep(120)
            assert 1 <= value(daemon, "scheduler_preemption_attempts_total") < 20

        assert not evictions(it)
        assert not it.condition("victim", "DisruptionTarget")
        assert not it.condition("important")


async def test_preemptions_are_counted(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="2"))
        await settle_on(it, pod_object("a", cpu="1"), pod_object("b", cpu="1"))
        it.add_pods(important())
        await it.until(lambda: it.node_of("important"))

        assert value(daemon, "scheduler_preemption_attempts_total") >= 1
        assert value(daemon, "scheduler_preemption_victims_count") == 1
        assert value(daemon, "scheduler_preemption_victims_sum") == 2
        reported = "scheduler_preemption_goroutines"
        assert value(daemon, f"{reported}_execution_total", result="success") == 1
        assert value(daemon, f"{reported}_duration_seconds_count", result="success") == 1


async def test_a_budget_is_kept_if_another_node_fits_and_violated_otherwise(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(node_object("a", cpu="2"), node_object("b", cpu="2"))
        budget = {
            "metadata": {"name": "guard", "namespace": "default"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}},
        }
        it.server.store.create("poddisruptionbudgets.policy", budget)
        guarded = pod_object("guarded", cpu="2", labels={"app": "guarded"})
        await settle_on(it, guarded, pod_object("free", cpu="2", priority=1))  # free would matter more
        it.add_pods(important("first"))
        await it.until(lambda: it.node_of("first"))
        assert evictions(it) == {"free": 1}

        it.add_pods(important("second"))
        await it.until(lambda: it.node_of("second"))
        assert evictions(it) == {"free": 1, "guarded": 1}


async def test_a_pod_with_anti_affinity_to_the_preemptor_is_a_victim(tmp_path: Path) -> None:
    shuns = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "important"}},
                }
            ]
        }
    }
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="8", labels={"kubernetes.io/hostname": "n"}))
        await settle_on(it, pod_object("shunning", affinity=shuns), pod_object("friendly"))
        it.add_pods(important(labels={"app": "important"}))
        await it.until(lambda: it.node_of("important"))

        assert evictions(it) == {"shunning": 1}


class Holding(PermitPlugin):
    name = "Holding"
    api_version = 1

    def permit(self, state: Any, pod: PodInfo, node_name: str) -> Any:
        return Wait(600.0) if pod.name == "held" else None


class Preparing(PreBindPlugin):
    name = "Preparing"
    api_version = 1

    async def pre_bind(self, state: Any, pod: PodInfo, node_name: str) -> Any:
        if pod.name == "held":
            await asyncio.sleep(600)


@pytest.mark.parametrize("plugin", [Holding, Preparing], ids=["at Permit", "in PreBind"])
async def test_an_assumed_victim_is_requeued_and_not_deleted(tmp_path: Path, plugin: type[Plugin]) -> None:
    configuration = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {{multiPoint: {{enabled: [{{name: {plugin.name}}}]}}}}
"""
    async with (
        cluster(tmp_path, kubelet=True) as it,
        it.daemon(configuration, plugins={plugin.name: plugin}),
    ):
        it.add_nodes(node_object("n", cpu="2"))
        it.add_pods(pod_object("held", cpu="2"))
        await asyncio.sleep(5)
        assert it.node_of("held") == ""
        it.add_pods(important())
        await it.until(lambda: it.node_of("important"))
        await it.until(lambda: events_of(it, "held", "Preempted"))

        uid = it.pod("important")["metadata"]["uid"]
        assert it.notes("held", "Preempted") == [
            f"Preempted by pod {uid} on node n (in kube-scheduler memory)."
        ]
        assert not evictions(it)
        assert is_there(it, "held")
        assert it.node_of("held") == ""


@pytest.mark.parametrize("code", [404, 409])
async def test_a_victim_that_is_already_gone_is_no_failure(tmp_path: Path, code: int) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="2"))
        await settle_on(it, pod_object("victim", cpu="2"))
        it.server.faults.refuse(code, match=requests(verb="delete", resource="pods"))
        it.add_pods(important())
        series = "scheduler_preemption_goroutines_execution_total"
        await it.until(lambda: value(daemon, series, result="success"))
        assert value(daemon, series, result="error") == 0

        it.server.store.delete("pods", "victim")
        await it.until(lambda: it.node_of("important"), seconds=600)


async def test_a_preemptor_whose_victims_leave_before_their_eviction_is_retried(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="2"))
        await settle_on(it, pod_object("a", cpu="1"), pod_object("b", cpu="1"))
        it.server.faults.delay(5.0, match=requests(verb="patch", subresource="status"))
        it.add_pods(important())
        await asyncio.sleep(2)
        for name in ("a", "b"):
            it.server.store.delete("pods", name, grace_period_seconds=0)
        await asyncio.sleep(1)
        assert daemon.parts.queue.place_of(it.pod("important")["metadata"]["uid"]) is Place.GATED

        await it.until(lambda: it.node_of("important"), seconds=60)


async def test_a_preemptor_of_higher_priority_takes_a_nomination_away(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="2"))
        await settle_on(it, pod_object("victim", cpu="2", terminationGracePeriodSeconds=30))
        it.add_pods(important("first"))
        await it.until(lambda: it.pod("first").get("status", {}).get("nominatedNodeName"))
        it.add_pods(important("second", priority=20))
        await it.until(lambda: it.node_of("second"), seconds=120)

        assert it.node_of("first") == ""
        assert evictions(it) == {"victim": 1}


async def test_a_deleted_preemptor_evicts_nobody(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="40"))
        await settle_on(it, *(pod_object(f"low-{number}", cpu="1") for number in range(40)))
        it.server.faults.delay(5.0, match=requests(verb="patch", subresource="status"))
        it.add_pods(important(cpu="40"))
        await asyncio.sleep(2)
        it.server.store.delete("pods", "important")
        await asyncio.sleep(60)

        assert len(evictions(it)) <= 16  # those that were being told at that moment
        assert not it.server.requests.matching(method="POST", path="/pods/important/binding")
