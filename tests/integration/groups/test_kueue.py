"""Kueue in front of the daemon: it admits by gates, selectors and tolerations; the daemon places the pods."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.live_explain import live_explanation
from scheduler.tools.simulator.node_agents.kubelet import KubeletOptions
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.kueue import ADMISSION_GATE, HOSTNAME, OWNER_TOKEN, TOPOLOGY_GATE, Flavor, gates_of, kueue
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster
    from tests.support.kueue import Kueue

RACK = "example.com/rack"
SPOT_TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
SPOT = Flavor(
    {"pool": "spot"}, ({"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},)
)
RACKS = Flavor({"pool": "racks"}, topology=True)
HOSTS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
"""Node of the pool with a topology -> its rack."""


@asynccontextmanager
async def queued(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[Cluster, Kueue, Daemon]]:
    """A cluster with Kueue and the daemon: racks, a spot node, and a large one that no flavor names."""
    async with (
        cluster(tmp_path, token=OWNER_TOKEN, **options) as it,
        it.daemon() as daemon,
        kueue(it) as queues,
    ):
        for host, rack in HOSTS.items():
            it.add_nodes(node_object(host, cpu="2", labels={"pool": "racks", RACK: rack}))
        it.add_nodes(
            node_object("spot", cpu="2", labels={"pool": "spot"}, taints=[SPOT_TAINT]),
            node_object("large", cpu="64", memory="256Gi"),
        )
        await it.until(lambda: daemon.parts.cache.table.n_nodes == 6)
        yield it, queues, daemon


def submit(it: Cluster, queues: Kueue, *names: str, **fields: Any) -> None:
    """Create pods of one CPU as a user does, by way of Kueue's webhook."""
    it.add_pods(*(queues.queued_pod(pod_object(name, **{"cpu": "1", **fields})) for name in names))


def are_placed(it: Cluster, names: Iterable[str]) -> bool:
    return all(map(it.node_of, names))


def written_by_the_daemon(it: Cluster) -> list[str]:
    return [
        request.path
        for request in it.server.requests
        if request.method != "GET" and request.user_agent.startswith("custom-scheduler")
    ]


def explained(daemon: Daemon, name: str) -> dict[str, Any]:
    reported = live_explanation(daemon, f"default/{name}", LoopClock())
    assert reported is not None
    return dict(reported)


async def test_a_pod_waits_for_admission_without_a_write_and_with_a_reason(tmp_path: Path) -> None:
    async with queued(tmp_path) as (it, queues, daemon):
        submit(it, queues, "train")
        as_submitted = it.pod("train")
        await asyncio.sleep(3000)

        assert it.condition("train")["reason"] == "SchedulingGated"
        assert explained(daemon, "train")["place"] == "gated"
        gated_by = f"waiting for scheduling gates: [{ADMISSION_GATE} {TOPOLOGY_GATE}]"
        assert gated_by in explained(daemon, "train")["history"][-1]["why"]
        assert written_by_the_daemon(it) == []

        await queues.admit([as_submitted], SPOT)  # by the version of an hour ago: nobody came in between


async def test_admission_sends_a_pod_to_the_nodes_of_its_flavor_at_once(tmp_path: Path) -> None:
    async with queued(tmp_path) as (it, queues, _):
        submit(it, queues, "train")
        await asyncio.sleep(60)

        await queues.admit([it.pod("train")], SPOT)

        await it.until(lambda: it.node_of("train") == "spot", seconds=0.5)


async def test_a_pod_of_a_topology_waits_again_between_admission_and_its_domain(tmp_path: Path) -> None:
    async with queued(tmp_path) as (it, queues, daemon):
        submit(it, queues, "train")
        await queues.admit([it.pod("train")], RACKS)
        await asyncio.sleep(3000)

        assert gates_of(it.pod("train")) == [TOPOLOGY_GATE]
        assert it.condition("train")["reason"] == "SchedulingGated"
        assert written_by_the_daemon(it) == []
        reported = explained(daemon, "train")
        assert (reported["place"], reported["schedulingGates"]) == ("gated", [TOPOLOGY_GATE])

        await queues.ungate([it.pod("train")], {HOSTNAME: "b2"})
        await it.until(lambda: it.node_of("train") == "b2", seconds=0.5)


async def test_the_daemon_chooses_the_node_within_a_rack(tmp_path: Path) -> None:
    async with queued(tmp_path) as (it, queues, _):
        submit(it, queues, *"pqrs")
        await queues.admit(it.pods(), RACKS)
        await queues.ungate(it.pods(), {RACK: "b"})
        await it.until(partial(are_placed, it, "pqrs"), seconds=0.5)

        assert sorted(it.node_of(name) for name in "pqrs") == ["b1", "b1", "b2", "b2"]


async def test_gates_come_off_in_batches_and_each_pod_goes_to_its_own_host(tmp_path: Path) -> None:
    async with queued(tmp_path) as (it, queues, daemon):
        ranks = [f"rank-{number}" for number in range(8)]
        submit(it, queues, *ranks)
        await queues.admit(it.pods(), RACKS)
        hosts = dict(zip(ranks, [host for host in HOSTS for _ in range(2)], strict=True))
        for batch in (ranks[:2], ranks[2:5], ranks[5:]):
            left = [name for name in ranks if not it.node_of(name) and name not in batch]
            for name in batch:
                await queues.ungate([it.pod(name)], {HOSTNAME: hosts[name]})
            await it.until(partial(are_placed, it, batch), seconds=0.5)
            await asyncio.sleep(60)

            assert [name for name in ranks if not it.node_of(name)] == left
            assert {explained(daemon, name)["place"] for name in left} <= {"gated"}

        assert {name: it.node_of(name) for name in ranks} == hosts


async def test_a_pod_whose_host_is_full_reports_the_reason_and_waits_for_that_host(tmp_path: Path) -> None:
    async with queued(tmp_path) as (it, queues, _):
        it.add_pods(pod_object("other", cpu="2", node="a1"))
        submit(it, queues, "train")
        await queues.admit([it.pod("train")], RACKS)
        await queues.ungate([it.pod("train")], {HOSTNAME: "a1"})
        await it.until(lambda: it.condition("train").get("reason") == "Unschedulable")

        assert it.condition("train")["message"].startswith(
            "0/6 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
            "4 node(s) didn't match Pod's node affinity/selector."
        )

        it.server.store.delete("pods", "other", grace_period_seconds=0)
        await it.until(lambda: it.node_of("train") == "a1")


async def test_evicted_pods_free_their_capacity_when_they_end_though_kueue_holds_them(
    tmp_path: Path,
) -> None:
    async with queued(tmp_path, kubelet=KubeletOptions(stop_seconds=5)) as (it, queues, _):
        submit(it, queues, "low", "next", cpu="2", terminationGracePeriodSeconds=30)
        await queues.admit([it.pod("low")], SPOT)
        await it.until(lambda: it.pod("low")["status"]["phase"] == "Running")

        await queues.stop(it.pods())
        assert "deletionTimestamp" not in it.pod("next")["metadata"]
        await queues.admit([it.pod("next")], SPOT)
        await asyncio.sleep(3)
        assert it.node_of("next") == ""
        await it.until(lambda: it.node_of("next") == "spot", seconds=10)

        assert it.pod("low")["status"]["phase"] in {"Failed", "Succeeded"}
        ended = it.condition("low", "TerminationTarget")
        assert (ended["status"], ended["reason"]) == ("True", "WorkloadEvictedDueToPreempted")


async def test_a_pod_evicted_while_it_waits_for_capacity_is_not_placed(tmp_path: Path) -> None:
    async with queued(tmp_path) as (it, queues, _):
        it.add_pods(pod_object("other", cpu="2", node="a1"))
        submit(it, queues, "train")
        await queues.admit([it.pod("train")], RACKS)
        await queues.ungate([it.pod("train")], {HOSTNAME: "a1"})
        await it.until(lambda: it.condition("train").get("reason") == "Unschedulable")
        await queues.stop([it.pod("train")])
        it.server.store.delete("pods", "other", grace_period_seconds=0)
        await asyncio.sleep(600)

        assert not [path for path in written_by_the_daemon(it) if path.endswith("/binding")]
        conditions = {each["type"]: each["reason"] for each in it.pod("train")["status"]["conditions"]}
        assert conditions == {
            "PodScheduled": "Unschedulable",
            "TerminationTarget": "WorkloadEvictedDueToPreempted",
        }


async def test_a_recreated_pod_is_gated_until_admitted_to_its_new_flavor(
    tmp_path: Path,
) -> None:
    async with queued(tmp_path, kubelet=KubeletOptions()) as (it, queues, daemon):
        submit(it, queues, "train")
        await queues.admit([it.pod("train")], SPOT)
        await it.until(lambda: it.node_of("train") == "spot")
        await queues.stop([it.pod("train")])
        await it.until(lambda: it.pod("train")["status"]["phase"] in {"Failed", "Succeeded"})
        await queues.let_go([it.pod("train")])
        submit(it, queues, "train", uid="anew")
        await asyncio.sleep(3000)
        assert it.node_of("train") == ""
        assert explained(daemon, "train")["place"] == "gated"

        await queues.admit([it.pod("train")], RACKS)
        await queues.ungate([it.pod("train")], {HOSTNAME: "a2"})
        await it.until(lambda: it.node_of("train") == "a2", seconds=0.5)


async def test_a_job_is_started_evicted_and_started_again_on_another_flavor(tmp_path: Path) -> None:
    options = {"controllers": True, "kubelet": KubeletOptions(job_seconds=900)}
    async with queued(tmp_path, **options) as (it, queues, _):
        template = pod_object("", cpu="1", restart_policy="Never")["spec"]
        it.server.store.create(
            "jobs.batch", queues.queued_job(job_object("train", pods=2, template=template))
        )

        def job() -> dict[str, Any]:
            return it.server.store.get("jobs.batch", "train")

        original = job()
        await asyncio.sleep(60)
        assert it.pods() == []

        await queues.start_job(job(), RACKS)
        await it.until(lambda: len(it.pods()) == 2)
        await asyncio.sleep(60)
        assert [gates_of(pod) for pod in it.pods()] == [[TOPOLOGY_GATE]] * 2
        assert written_by_the_daemon(it) == []
        for pod, host in zip(it.pods(), ("a1", "b1"), strict=True):
            await queues.ungate([pod], {HOSTNAME: host})
        await it.until(lambda: [pod["status"]["phase"] for pod in it.pods()] == ["Running"] * 2)
        assert [pod["spec"]["nodeName"] for pod in it.pods()] == ["a1", "b1"]

        await queues.suspend_job(job())
        await it.until(lambda: it.pods() == [] and "startTime" not in job()["status"])
        await queues.restore_job(job(), original)
        await asyncio.sleep(60)
        assert it.pods() == []

        await queues.start_job(job(), SPOT)
        await it.until(lambda: [pod["spec"].get("nodeName") for pod in it.pods()] == ["spot"] * 2, seconds=2)


def job_object(name: str, *, pods: int, template: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"parallelism": pods, "completions": pods, "template": {"metadata": {}, "spec": template}},
    }
