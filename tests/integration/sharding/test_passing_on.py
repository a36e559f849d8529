"""Replicas that pass pods on to each other; the tests say which buckets each of them may use."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from scheduler.engine.cycle.binding import BindingCycle
from scheduler.engine.cycle.shard_changes import ShardChanges
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.sharding.buckets import BUCKETS, bucket_of
from scheduler.engine.sharding.shards import WAITS_FOR_NODES, OwnShard
from scheduler.framework import PermitPlugin, ReservePlugin, Wait
from scheduler.tools.simulator.faults import requests
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.fair_queues import DEFINITION, QUEUES, queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from scheduler.engine.cycle.attempt import AssumedPod
    from scheduler.framework.status import Status
    from tests.support.daemon_harness import Cluster

ZONE = "topology.kubernetes.io/zone"
HALVES = [frozenset(range(BUCKETS // 2)), frozenset(range(BUCKETS // 2, BUCKETS))]
THIRDS = [frozenset(range(BUCKETS)[third::3]) for third in range(3)]
NAMESPACE = next(half for half in (0, 1) if bucket_of("namespace/default") in HALVES[half])
"""The half with the pods whose required constraints count each other."""
GROUPS = next(third for third in range(3) if bucket_of("groups/default") in THIRDS[third])
"""The third with the groups."""


class Hold(ReservePlugin, PermitPlugin):
    """Holds pods with the label `held` for a minute."""

    name = "Hold"
    reserved: ClassVar[list[str]] = []

    def reserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.reserved.append(pod.name)

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None: ...

    def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        return Wait(60.0) if "held" in pod.labels else None


HOLDING = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: Hold}]}}
"""
FAIR_QUEUES = "".join(
    [
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n",
        *(
            f"""\
- schedulerName: {name}
  plugins:
    multiPoint: {{enabled: [{{name: FairQueues}}, {{name: Hold}}]}}
    postFilter: {{enabled: [{{name: FairQueues}}], disabled: [{{name: "*"}}]}}
"""
            for name in ("custom-scheduler", "second-scheduler")
        ),
    ]
)


class Replica:
    """A daemon that may use some buckets."""

    def __init__(self, daemon: Any, name: str, tasks: asyncio.TaskGroup) -> None:
        self.daemon = daemon
        self.shard = OwnShard(daemon.parts.profiles.has_quota)
        self.changes = ShardChanges(
            daemon.parts, self.shard, lambda work, name: tasks.create_task(work, name=name)
        )
        daemon.parts.profiles.shards = self.shard
        self.user_agent = daemon.connection.user_agent = name
        self.running = tasks.create_task(self.changes.run())

    def use(self, buckets: Iterable[int]) -> None:
        self.changes.change(buckets)

    def waits_for(self, name: str) -> bool:
        return any(queued.pod.name == name for queued in self.daemon.parts.queue.pods())


@asynccontextmanager
async def replicas(
    it: Cluster, number: int = 2, configuration: str = HOLDING
) -> AsyncIterator[list[Replica]]:
    """Run daemons; each of the first two may use a half of the buckets."""
    Hold.reserved.clear()
    plugins = {"Hold": Hold}
    async with asyncio.TaskGroup() as tasks:
        daemons, made = [it.daemon(configuration, plugins=plugins, seed=seed) for seed in range(number)], []
        for each in daemons:
            made += [Replica(await each.__aenter__(), f"replica-{len(made)}", tasks)]
        for replica, half in zip(made, HALVES, strict=False):
            replica.use(half)
        try:
            await it.until(lambda: all(each.daemon.has_synced for each in made))
            await asyncio.sleep(0.1)
            yield made
        finally:
            for each, replica in zip(reversed(daemons), reversed(made), strict=True):
                replica.running.cancel()
                await each.__aexit__(None, None, None)


def nodes_of(half: int, number: int, **fields: Any) -> list[dict[str, Any]]:
    return nodes_in(HALVES[half], number, **fields)


def nodes_in(buckets: frozenset[int], number: int, **fields: Any) -> list[dict[str, Any]]:
    names = [f"n-{each}" for each in range(100)]
    return [node_object(name, **fields) for name in names if bucket_of(name) in buckets][:number]


def pod_of(half: int, name: str, **fields: Any) -> dict[str, Any]:
    """Return a pod whose controller is in a half of the buckets."""
    return pod_in(HALVES[half], name, **fields)


def pod_in(buckets: frozenset[int], name: str, **fields: Any) -> dict[str, Any]:
    """Return a pod whose controller is in some buckets."""
    uids = (f"c-{each}" for each in range(100))
    uid = next(uid for uid in uids if bucket_of(f"controller/{uid}") in buckets)
    obj = pod_object(name, **fields)
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": uid, "uid": uid, "controller": True}
    obj["metadata"]["ownerReferences"] = [reference]
    return obj


async def in_thirds(three: list[Replica]) -> None:
    """Let each of three replicas use a third of the buckets."""
    for each, third in zip(three, THIRDS, strict=True):
        each.use(third)
    await asyncio.sleep(0.1)


def name_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def binders(it: Cluster, name: str) -> list[str]:
    """Return the user agents that asked to bind a pod."""
    path = f"/api/v1/namespaces/default/pods/{name}/binding"
    return [each.user_agent for each in it.server.requests.matching(method="POST", path=path)]


def writes(it: Cluster, name: str) -> list[tuple[str, str]]:
    """Return the method of each write about a pod, and its user agent."""
    return [
        (each.method, each.user_agent)
        for each in it.server.requests.matching()
        if each.method in {"PATCH", "POST", "DELETE"} and f"/pods/{name}" in each.path
    ]


async def test_a_change_of_buckets_is_applied_when_the_pods_have_moved(tmp_path: Path) -> None:
    """No file of a recording begins meanwhile."""
    async with cluster(tmp_path) as it, replicas(it) as (first, _):
        it.add_pods(pod_of(1, "waits", cpu="1000"))
        await asyncio.sleep(0.1)
        assert not first.waits_for("waits")
        assert not first.changes.is_applying

        first.use(range(BUCKETS))
        assert first.changes.is_applying
        await it.until(lambda: not first.changes.is_applying)

        assert first.waits_for("waits")


async def test_a_replica_places_its_pods_on_its_nodes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it) as both:
        it.add_nodes(*nodes_of(0, 3, cpu="4"), *nodes_of(1, 3, cpu="4"))
        it.add_pods(*(pod_of(half, f"p-{half}-{each}", cpu="1") for half in (0, 1) for each in range(6)))
        await it.until(lambda: all(pod["spec"].get("nodeName") for pod in it.pods()))

        for pod in it.pods():
            half = int(name_of(pod)[2])
            assert bucket_of(pod["spec"]["nodeName"]) in HALVES[half]
            assert writes(it, name_of(pod)) == [("POST", both[half].user_agent)]


async def test_a_pod_that_fits_only_on_a_node_of_another_replica_is_bound_by_that_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it) as (first, second):
        (small,), (large,) = nodes_of(0, 1, cpu="1"), nodes_of(1, 1, cpu="4")
        it.add_nodes(small, large)
        it.add_pods(pod_of(0, "p", cpu="2"))
        await it.until(lambda: it.node_of("p"))

        assert it.node_of("p") == name_of(large)
        assert binders(it, "p") == [second.user_agent]
        assert writes(it, "p") == [("PATCH", first.user_agent), ("POST", second.user_agent)]
        await it.until(lambda: not first.waits_for("p"))
        for each in (first, second):
            each.daemon.parts.cache.check()
            assert each.daemon.parts.cache.counts()["assumed_pods"] == 0
        await it.until(lambda: it.notes("p", "Scheduled"))
        assert it.notes("p", "FailedScheduling") == []
        assert Hold.reserved == ["p"]  # by the second one


async def test_a_pod_that_fits_nowhere_is_reported_once_for_all_nodes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it) as (first, second):
        it.add_nodes(*nodes_of(0, 2, cpu="1"), *nodes_of(1, 3, cpu="1"))
        it.add_pods(pod_of(1, "p", cpu="2"))
        await it.until(lambda: it.condition("p") and it.notes("p", "FailedScheduling"))

        message = it.condition("p")["message"]
        assert message.startswith("0/5 nodes are available: 5 Insufficient cpu.")
        assert it.notes("p", "FailedScheduling") == [message]
        assert {agent for _, agent in writes(it, "p")} == {second.user_agent}
        assert not first.waits_for("p")

        it.add_nodes(nodes_of(0, 3, cpu="4")[2])
        await it.until(lambda: it.node_of("p"))
        assert binders(it, "p") == [first.user_agent]


async def test_a_pod_that_does_not_fit_any_more_is_returned_and_decided_about_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it) as (first, second):
        (large,) = nodes_of(1, 1, cpu="4")
        it.add_nodes(large)
        # The first replica does not know this pod on the node, because it is not bound while Permit holds it.
        it.add_pods(pod_of(1, "held", cpu="3", labels={"held": "yes"}))
        await it.until(lambda: second.daemon.parts.cache.counts()["assumed_pods"])
        patch = {"status": {"nominatedNodeName": ""}}
        await it.until(lambda: it.pod("held").get("status", {}).get("nominatedNodeName"))
        it.server.store.patch("pods", "held", patch, subresource="status")
        await asyncio.sleep(0.5)
        it.add_pods(pod_of(0, "p", cpu="2", priority=9))
        await it.until(lambda: it.condition("p").get("reason") == "Unschedulable")

        # The second replica preempts no pod, and says nothing.
        assert all(
            each.json == {"status": {"nominatedNodeName": None}}
            for each in it.server.requests.matching(method="PATCH", path="/pods/p/status")
            if each.user_agent == second.user_agent
        )
        assert ("PATCH", second.user_agent) in writes(it, "p")
        assert writes(it, "held") == [("PATCH", second.user_agent)]
        assert first.waits_for("p")
        assert not second.waits_for("p")
        assert not it.pod("p")["status"].get("nominatedNodeName")
        assert second.daemon.parts.cache.counts()["assumed_pods"] == 1  # the held one
        it.server.store.delete("pods", "held")
        await it.until(lambda: it.node_of("p"))
        assert binders(it, "p") == [second.user_agent]


async def test_a_pod_preempts_pods_on_nodes_of_another_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, replicas(it) as (_, second):
        it.add_nodes(*nodes_of(0, 1, cpu="1"), *nodes_of(1, 1, cpu="4"))
        it.add_pods(pod_of(1, "low", cpu="3"))
        await it.until(lambda: it.node_of("low"))
        it.add_pods(pod_of(0, "high", cpu="2", priority=9))
        await it.until(lambda: any(name_of(pod) == "high" and it.node_of("high") for pod in it.pods()))

        assert "low" not in {name_of(pod) for pod in it.pods()}
        assert binders(it, "high") == [second.user_agent]
        assert len([each for each in writes(it, "low") if each[0] == "DELETE"]) == 1


async def test_pods_move_with_their_buckets(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it) as (first, second):
        it.add_pods(pod_of(0, "p", cpu="1"))
        await it.until(lambda: first.waits_for("p"))
        first.use(())
        second.use(range(BUCKETS))
        await it.until(lambda: second.waits_for("p") and not first.waits_for("p"))

        it.add_nodes(*nodes_of(0, 1, cpu="4"))
        await it.until(lambda: it.node_of("p"))
        assert binders(it, "p") == [second.user_agent]


def apart(half: int, name: str, **fields: Any) -> dict[str, Any]:
    """Return a pod that must be in another zone than all others with its label."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    labels = {"app": "a", **fields.pop("labels", {})}
    return pod_of(half, name, affinity=rule, labels=labels, **fields)


@pytest.mark.parametrize("is_new_owner", [False, True])
async def test_a_pod_that_was_passed_on_counts_until_it_is_bound_also_for_a_new_owner(
    tmp_path: Path, *, is_new_owner: bool
) -> None:
    keys, nodes = NAMESPACE, 1 - NAMESPACE
    async with cluster(tmp_path, kubelet=True) as it, replicas(it, 3) as three:
        owner, other, third = three[keys], three[nodes], three[2]
        labels = {ZONE: "z"}
        it.add_nodes(*nodes_of(nodes, 2, cpu="4", labels=labels))
        it.add_pods(apart(0, "first", cpu="1", labels={"held": "yes"}))
        await it.until(lambda: other.daemon.parts.cache.counts()["assumed_pods"])
        assert it.condition("first")["reason"] == "PassedOn"
        if is_new_owner:
            owner.use(())
        # It is tried first.
        priority = {"metadata": {"name": "first"}, "value": 9, "preemptionPolicy": "Never"}
        it.server.store.create("priorityclasses.scheduling.k8s.io", priority)
        second = apart(0, "second", cpu="1", priorityClassName="first")
        del second["spec"]["priority"], second["spec"]["preemptionPolicy"]
        it.server.store.create("pods", second)
        if is_new_owner:
            await asyncio.sleep(0.1)
            third.use(HALVES[keys])
            owner = third
        await it.until(lambda: it.condition("second"))

        assert "node(s) didn't match pod anti-affinity rules" in it.condition("second")["message"]
        assert it.node_of("first") == ""
        for waiting in list(other.daemon.parts.waiting_pods.waiting()):
            other.daemon.parts.waiting_pods.allow(waiting.uid, "Hold")
        await it.until(lambda: it.node_of("first"))
        await it.until(lambda: owner.daemon.parts.cache.counts()["assumed_pods"] == 0)
        it.server.store.delete("pods", "first")
        await it.until(lambda: it.node_of("second"))


async def test_a_pod_that_was_passed_on_stays_with_its_replica_if_the_node_comes_to_it(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, replicas(it) as (first, second):
        (large,) = nodes_of(1, 1, cpu="4")
        it.add_nodes(large)
        second.use(())  # nobody binds the pod
        await asyncio.sleep(0.1)
        it.add_pods(pod_of(0, "p", cpu="2"))
        await it.until(lambda: it.condition("p").get("reason") == "PassedOn")
        await asyncio.sleep(5.0)
        assert it.node_of("p") == ""
        first.use(range(BUCKETS))
        await it.until(lambda: it.node_of("p"))

        assert binders(it, "p") == [first.user_agent]


async def test_a_pod_that_was_passed_on_is_not_lost_if_its_replica_loses_its_buckets_for_a_while(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, replicas(it) as (first, second):
        it.add_nodes(*nodes_of(1, 1, cpu="4"))
        second.use(())
        await asyncio.sleep(0.1)
        it.add_pods(pod_of(0, "p", cpu="2"))
        await it.until(lambda: it.condition("p").get("reason") == "PassedOn")
        first.use(())
        await asyncio.sleep(0.1)
        it.server.store.patch("pods", "p", {"metadata": {"labels": {"changed": "yes"}}})
        await asyncio.sleep(0.1)
        first.use(range(BUCKETS))
        await it.until(lambda: it.node_of("p"))

        assert binders(it, "p") == [first.user_agent]


async def test_a_new_owner_counts_no_pod_that_is_being_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it, 3) as (first, second, third):
        it.add_nodes(*nodes_of(1, 1, cpu="4"))
        second.use(())
        await asyncio.sleep(0.1)
        pod = pod_of(0, "p", cpu="2")
        pod["metadata"]["finalizers"] = ["example.com/hold"]
        it.add_pods(pod)
        await it.until(lambda: it.condition("p").get("reason") == "PassedOn")
        it.server.store.delete("pods", "p")
        first.use(())
        await asyncio.sleep(0.1)
        third.use(HALVES[0])
        await asyncio.sleep(1.0)

        assert third.shard.in_use == HALVES[0]
        assert third.daemon.parts.cache.counts()["assumed_pods"] == 0


@pytest.mark.parametrize("owns_node", [False, True])
async def test_a_deleted_pod_is_not_counted_while_its_nomination_has_no_answer(
    tmp_path: Path, *, owns_node: bool
) -> None:
    async with cluster(tmp_path) as it, replicas(it) as (first, second):
        it.add_nodes(*nodes_of(1, 1, cpu="4"))
        second.use(())
        await asyncio.sleep(0.1)
        it.server.faults.delay(20.0, requests(resource="pods", subresource="status"))
        it.add_pods(pod_of(0, "p", cpu="2"))
        await it.until(lambda: first.daemon.parts.cache.counts()["assumed_pods"])
        if owns_node:
            first.use(range(BUCKETS))
            await asyncio.sleep(0.1)
        it.server.store.delete("pods", "p")
        await asyncio.sleep(0.1)

        assert first.daemon.parts.cache.counts()["assumed_pods"] == 0


async def test_one_of_two_pods_that_are_passed_on_to_the_same_capacity_at_once_is_bound(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        it.add_nodes(*nodes_in(THIRDS[2], 1, cpu="4"))
        it.add_pods(*(pod_in(THIRDS[third], f"p-{third}", cpu="3") for third in (0, 1)))
        await asyncio.sleep(60.0)

        assert sorted(bool(it.node_of(f"p-{third}")) for third in (0, 1)) == [False, True]


async def test_the_replica_that_binds_a_pod_does_not_limit_its_queue(tmp_path: Path) -> None:
    """It does not know the pods that wait, from which the shares follow; the replica that decides does."""
    quotas = next(half for half in (0, 1) if bucket_of("quotas") in HALVES[half])
    async with cluster(tmp_path) as it:
        await it.define(DEFINITION)
        it.server.store.create(QUEUES, queue("default"))
        async with replicas(it, configuration=FAIR_QUEUES):
            it.add_nodes(*nodes_of(1 - quotas, 1, cpu="4"))
            names = ("custom-scheduler", "second-scheduler")
            it.add_pods(*(pod_object(name, cpu="1", scheduler_name=name) for name in names))
            await asyncio.sleep(0.5)

            assert all(it.node_of(name) for name in names)


async def test_a_pod_that_is_passed_on_counts_once_in_its_queue(tmp_path: Path) -> None:
    """If it counted as a pending pod too, its queue would keep a share for it that another queue could use."""
    quotas = next(half for half in (0, 1) if bucket_of("quotas") in HALVES[half])
    async with cluster(tmp_path) as it:
        await it.define(DEFINITION)
        for name in ("a", "b"):
            it.server.store.create("namespaces", {"metadata": {"name": name}})
            it.server.store.create(QUEUES, queue(name))
        async with replicas(it, configuration=FAIR_QUEUES) as both:
            it.add_nodes(*nodes_of(1 - quotas, 1, cpu="4"))
            it.add_pods(pod_object("held", namespace="a", cpu="1", labels={"held": "yes"}))
            await it.until(lambda: both[1 - quotas].daemon.parts.cache.counts()["assumed_pods"])
            it.add_pods(*(pod_object(f"b-{each}", namespace="b", cpu="1") for each in range(3)))
            await asyncio.sleep(30.0)

            assert all(it.pod(f"b-{each}", "b")["spec"].get("nodeName") for each in range(3))
            assert not it.pod("held", "a")["spec"].get("nodeName")


async def test_a_pod_that_is_deleted_while_it_is_passed_on_leaves_nothing_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it) as (first, second):
        it.add_nodes(*nodes_of(1, 1, cpu="4"))
        second.use(())
        await asyncio.sleep(0.1)
        it.add_pods(pod_of(0, "p", cpu="2"))
        await it.until(lambda: it.condition("p").get("reason") == "PassedOn")
        it.server.store.delete("pods", "p")
        await it.until(lambda: not first.waits_for("p"))

        assert first.daemon.parts.cache.counts()["assumed_pods"] == 0
        assert list(first.daemon.parts.waiting_pods.waiting()) == []


async def test_a_pod_that_is_created_again_before_it_is_passed_on_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_on, uids = BindingCycle._pass_on, []

    async def pass_on_late(cycle: BindingCycle, assumed: AssumedPod) -> Status:
        uids.append(assumed.pod.uid)
        if len(uids) == 1:
            it.server.store.delete("pods", "p")
            it.add_pods(pod_of(0, "p", cpu="2"))
            await asyncio.sleep(0.1)
        return await pass_on(cycle, assumed)

    monkeypatch.setattr(BindingCycle, "_pass_on", pass_on_late)
    async with cluster(tmp_path) as it, replicas(it) as (first, _):
        it.add_nodes(*nodes_of(1, 1, cpu="4"))
        it.add_pods(pod_of(0, "p", cpu="2"))
        await it.until(lambda: it.node_of("p"))
        await asyncio.sleep(1.0)

        assert len(set(uids)) == 2
        assert list(first.daemon.parts.waiting_pods.waiting()) == []
        assert first.daemon.parts.queue.count(Place.IN_FLIGHT) == 0


def member(number: int, cpu: str) -> dict[str, Any]:
    obj = pod_of(0, f"m-{number}", cpu=cpu)
    obj["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return obj


def create_gang(it: Cluster, least: int) -> None:
    policy = {"gang": {"minCount": least}}
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"schedulingPolicy": policy}}
    it.server.store.create("podgroups.scheduling.k8s.io", group)


async def test_the_members_of_a_gang_are_bound_by_the_replicas_of_their_nodes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it) as both:
        it.add_nodes(*nodes_of(0, 1, cpu="4"), *nodes_of(1, 1, cpu="4"))
        create_gang(it, 3)
        it.add_pods(*(member(number, "2") for number in range(3)))
        await it.until(lambda: all(pod["spec"].get("nodeName") for pod in it.pods()))

        for pod in it.pods():
            (binder,) = binders(it, name_of(pod))
            owner = next(half for half in (0, 1) if bucket_of(pod["spec"]["nodeName"]) in HALVES[half])
            assert binder == both[owner].user_agent
        assert {bucket_of(pod["spec"]["nodeName"]) in HALVES[0] for pod in it.pods()} == {True, False}


def add_gang_on_thirds(it: Cluster, min_count: int) -> None:
    """Add a node for each replica, and a gang of three pods that fill them."""
    it.add_nodes(*(node for third in THIRDS for node in nodes_in(third, 1, cpu="2")))
    create_gang(it, min_count)
    it.add_pods(*(member(number, "2") for number in range(3)))


async def test_no_member_of_a_gang_waits_for_those_that_other_replicas_bind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        add_gang_on_thirds(it, min_count=3)
        await asyncio.sleep(1.0)

        assert all(pod["spec"].get("nodeName") for pod in it.pods())


async def test_a_gang_is_not_passed_on_while_it_waits_for_a_replica_with_all_nodes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        asked: list[str] = []
        for each in three:
            each.shard.asks_for_all = lambda gang: not asked.append(gang) and len(asked) < 3
        add_gang_on_thirds(it, min_count=3)
        await asyncio.sleep(1.0)
        assert [it.condition(f"m-{number}")["message"] for number in range(3)] == [WAITS_FOR_NODES] * 3
        assert not any(it.node_of(f"m-{number}") for number in range(3))
        await asyncio.sleep(10.0)

        assert asked == ["default/g"] * 3, "it is tried again after each backoff"
        assert all(it.node_of(f"m-{number}") for number in range(3))


async def test_a_gang_that_waits_is_tried_as_soon_as_its_replica_has_all_nodes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        for each in three:
            each.shard.asks_for_all = lambda _: True
        add_gang_on_thirds(it, min_count=3)
        await asyncio.sleep(0.5)  # and the backoff is longer
        for each in three:
            each.use(range(BUCKETS) if each is three[GROUPS] else ())
        await asyncio.sleep(0.1)

        assert [binders(it, f"m-{number}") for number in range(3)] == [[three[GROUPS].user_agent]] * 3


async def test_members_that_a_gang_does_not_need_are_tried_on_all_nodes_before_anything_is_reported(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        for each in three:
            each.shard.asks_for_all = lambda _: True
        add_gang_on_thirds(it, min_count=1)
        it.add_pods(member(3, "2"))
        await it.until(lambda: it.condition("m-3") and it.notes("m-3", "FailedScheduling"))
        await it.until(lambda: all(it.node_of(f"m-{number}") for number in range(3)))

        assert [it.notes(f"m-{number}", "FailedScheduling") for number in range(3)] == [[]] * 3
        (told,) = it.notes("m-3", "FailedScheduling")
        assert told.startswith("0/3 nodes are available: 3 Insufficient cpu.")


async def test_a_gang_of_which_too_few_members_fit_is_passed_on_to_nobody(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        it.add_nodes(*nodes_in(THIRDS[(GROUPS + 1) % 3], 1, cpu="2"))
        create_gang(it, 2)
        it.add_pods(*(member(number, "2") for number in range(2)))
        await it.until(lambda: all(it.condition(f"m-{number}") for number in range(2)))

        assert [it.condition(f"m-{number}")["reason"] for number in range(2)] == ["Unschedulable"] * 2


async def test_the_nomination_of_a_member_does_not_keep_another_member_of_its_group_away(
    tmp_path: Path,
) -> None:
    """The replica that decides leaves it out as well: it decides about the members together."""
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        it.add_nodes(*nodes_in(THIRDS[(GROUPS + 1) % 3], 1, cpu="2"))
        (node,) = it.server.store.list("nodes")
        create_gang(it, 1)
        nominated = member(0, "2")
        nominated["spec"]["nodeSelector"] = {"no": "node"}
        it.add_pods(nominated)
        await it.until(lambda: it.condition("m-0"))
        nomination = {"status": {"nominatedNodeName": name_of(node)}}
        it.server.store.patch("pods", "m-0", nomination, subresource="status")
        it.add_pods(member(1, "2"))
        await asyncio.sleep(1.0)

        assert it.node_of("m-1") == name_of(node)


async def test_a_new_owner_decides_about_members_together_also_if_one_of_them_was_passed_on(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        decider, other = three[GROUPS], three[(GROUPS + 1) % 3]
        it.add_nodes(*nodes_in(THIRDS[(GROUPS + 1) % 3], 1, cpu="4"))
        other.use(())
        await asyncio.sleep(0.1)
        create_gang(it, 2)
        it.add_pods(*(member(number, "2") for number in range(2)))
        await it.until(
            lambda: all(it.condition(f"m-{number}").get("reason") == "PassedOn" for number in range(2))
        )
        decider.use(())
        it.server.store.patch("pods", "m-0", {"status": {"nominatedNodeName": None}}, subresource="status")
        await asyncio.sleep(1.0)
        other.use(THIRDS[GROUPS] | THIRDS[(GROUPS + 1) % 3])
        await asyncio.sleep(1.0)

        assert all(pod["spec"].get("nodeName") for pod in it.pods())


@pytest.mark.parametrize("is_killed", ["decides", "binds"])
@pytest.mark.parametrize("next_owner", [1, 2])
async def test_a_gang_of_which_a_replica_ends_is_completed_by_the_next_owner_of_its_buckets(
    tmp_path: Path, is_killed: str, next_owner: int
) -> None:
    places = [(GROUPS + place) % 3 for place in range(3)]
    if is_killed == "binds":
        places = [places[1], places[0], places[2]]
    async with cluster(tmp_path) as it, replicas(it, 3) as three:
        await in_thirds(three)
        killed, owner = three[places[0]], three[places[next_owner]]
        last = three[places[1]] if is_killed == "decides" else killed
        last.use(())
        await asyncio.sleep(0.1)
        add_gang_on_thirds(it, min_count=3)
        await asyncio.sleep(1.0)
        assert sum(bool(pod["spec"].get("nodeName")) for pod in it.pods()) == 2
        if last is not killed:
            killed.use(())
            last.use(THIRDS[three.index(last)])
        owner.use(THIRDS[places[0]] | THIRDS[places[next_owner]])
        await asyncio.sleep(5.0)

        assert all(pod["spec"].get("nodeName") for pod in it.pods())
