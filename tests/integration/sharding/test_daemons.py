"""Several daemons that place pods at the same time, on the simulated API server."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.daemon.sharding.replica import ShardReplica
from scheduler.engine.sharding.buckets import BUCKETS, bucket_of
from scheduler.engine.sharding.holding import BucketState
from scheduler.tools.simulator.faults import binds
from tests.integration.sharding.shard_replicas import CRDS, DEFINITION, KIND
from tests.support import frozen_processes as freezing
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.replicas import replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.daemon_harness import Cluster
    from tests.support.replicas import Replica

pytestmark = pytest.mark.run(by=freezing.run)

SHARDED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
sharding: {enabled: true}
"""


def in_use(it: Replica) -> set[int]:
    leadership = it.daemon.leadership
    assert isinstance(leadership, ShardReplica)
    return set(leadership.buckets_in(BucketState.IN_USE)) & set(it.daemon.parts.profiles.shards.in_use)  # type: ignore[union-attr]


def all_in_use(*replicas: Replica) -> bool:
    return sorted(bucket for each in replicas for bucket in in_use(each)) == list(range(BUCKETS))


@asynccontextmanager
async def sharded(
    folder: Path, number: int, prepare: Callable[[Cluster], None] = lambda _: None
) -> AsyncIterator[tuple[Cluster, list[Replica]]]:
    """Run daemons, which hold all buckets together at the start."""
    async with cluster(folder) as it, AsyncExitStack() as stack:
        it.server.store.create(CRDS, DEFINITION)
        prepare(it)
        names = [f"replica-{each}" for each in range(number)]
        replicas = [
            await stack.enter_async_context(replica(it, name, configuration=SHARDED)) for name in names
        ]
        await touch_until(it, lambda: all_in_use(*replicas))
        yield it, replicas


async def touch_until(it: Cluster, holds: Any, *, seconds: float = 60.0) -> None:
    """Wait until something holds, while pods change, as they do in a cluster at work."""
    loop, number = asyncio.get_running_loop(), 0
    if not any(pod["metadata"]["name"] == "other" for pod in it.pods()):
        it.add_pods(pod_object("other", schedulerName="another"))
    deadline = loop.time() + seconds
    while not holds():
        assert loop.time() < deadline, f"it does not hold after {seconds} s"
        number += 1
        it.label_pod("other", number=str(number))
        await asyncio.sleep(0.25)


def add_work(it: Cluster, first: int, number: int) -> list[str]:
    names = [f"p-{each}" for each in range(first, first + number)]
    it.add_pods(*(pod_object(name, cpu="100m") for name in names))
    return names


def binders(it: Cluster) -> dict[str, list[str]]:
    """Return pod -> the daemons that bound it."""
    found: dict[str, list[str]] = {}
    for each in it.server.requests.matching(method="POST", path="/binding"):
        if each.status == 201:
            found.setdefault(each.path.split("/")[-2], []).append(each.user_agent)
    return found


async def test_all_replicas_place_pods_on_their_own_nodes(tmp_path: Path) -> None:
    async with sharded(tmp_path, 3) as (it, replicas):
        it.add_nodes(*(node_object(f"n-{each}", cpu="8") for each in range(30)))
        names = add_work(it, 0, 60)
        await it.until(lambda: all(it.node_of(name) for name in names))

        bound = binders(it)
        assert sorted(bound) == sorted(names)
        assert all(len(each) == 1 for each in bound.values())
        assert len(Counter(each for (each,) in bound.values())) == 3
        for name in names:
            owner = next(each for each in replicas if bucket_of(it.node_of(name)) in in_use(each))
            assert bound[name] == [owner.name]


async def test_active_replicas_read_several_events_at_a_time(tmp_path: Path) -> None:
    async with sharded(tmp_path, 2) as (_, replicas):
        assert [each.daemon.connection.watch_interval for each in replicas] == [0.05, 0.05]


async def test_a_replica_that_is_killed_stops_only_its_own_pods_and_for_its_lease_duration(
    tmp_path: Path,
) -> None:
    async with sharded(tmp_path, 3) as (it, replicas):
        it.add_nodes(*(node_object(f"n-{each}", cpu="8") for each in range(30)))
        killed, *others = replicas
        lost = in_use(killed)
        await killed.kill()
        began = asyncio.get_running_loop().time()
        names = add_work(it, 0, 60)
        waiting = lambda: [name for name in names if not it.node_of(name)]  # noqa: E731
        await asyncio.sleep(2.0)
        # Their own pods are placed, on nodes that are not those of the killed one.
        placed = set(names) - set(waiting())
        assert 0.5 < len(placed) / len(names) < 0.85
        assert all(bucket_of(it.node_of(name)) not in lost for name in placed)
        await touch_until(it, lambda: not waiting(), seconds=30.0)

        assert 12.0 < asyncio.get_running_loop().time() - began < 18.0
        assert all_in_use(*others)
        assert all(len(each) == 1 for each in binders(it).values())


async def test_the_buckets_of_a_pod_that_is_deleted_while_it_is_bound_are_kept_until_the_answer(
    tmp_path: Path,
) -> None:
    async with sharded(tmp_path, 1) as (it, (only,)):
        it.add_nodes(node_object("n-0", cpu="8"))
        leadership = only.daemon.leadership
        assert isinstance(leadership, ShardReplica)
        it.server.faults.delay(4.0, binds)
        (name,) = add_work(it, 0, 1)
        await it.until(lambda: only.daemon.cycles.binding.under_way)
        it.server.store.delete("pods", name, "default")
        await it.until(lambda: not list(only.daemon.parts.cache.assumed()))

        assert bucket_of("n-0") in leadership.holder.under_way()
        await it.until(lambda: not only.daemon.cycles.binding.under_way)
        assert not leadership.holder.under_way()


async def test_a_binding_that_the_server_does_not_begin_in_time_is_never_carried_out(tmp_path: Path) -> None:
    async with sharded(tmp_path, 1) as (it, _):
        it.add_nodes(node_object("n-0", cpu="8"))
        it.server.faults.delay(20.0, binds, times=1)
        (name,) = add_work(it, 0, 1)
        began = asyncio.get_running_loop().time()
        await touch_until(it, lambda: it.node_of(name))
        assert 5.0 < asyncio.get_running_loop().time() - began < 15.0
        await asyncio.sleep(20.0)

        (sent,) = it.server.requests.matching(method="POST", path=f"/{name}/binding")
        assert (sent.status, sent.query["timeout"]) == (201, "5s")


async def test_a_replica_that_is_stopped_gives_its_buckets_to_others_at_once(tmp_path: Path) -> None:
    async with sharded(tmp_path, 2) as (it, (first, second)):
        it.add_nodes(*(node_object(f"n-{each}", cpu="8") for each in range(10)))
        await first.stop()
        began = asyncio.get_running_loop().time()
        names = add_work(it, 0, 20)
        await touch_until(it, lambda: all(it.node_of(name) for name in names))

        assert asyncio.get_running_loop().time() - began < 3.0
        assert all_in_use(second)
        (assignment,) = it.server.store.list(KIND)
        assert [each["name"] for each in assignment["spec"]["replicas"]] == [
            second.daemon.leadership.name  # type: ignore[attr-defined]
        ]


async def test_a_replica_that_joins_gets_its_share_and_the_pods_that_wait(tmp_path: Path) -> None:
    async with sharded(tmp_path, 1) as (it, (first,)):
        names = add_work(it, 0, 20)
        async with replica(it, "replica-1", configuration=SHARDED) as second:
            await touch_until(it, lambda: in_use(second) and all_in_use(first, second))
            waiting = [
                {queued.pod.name for queued in each.daemon.parts.queue.pods()} for each in (first, second)
            ]
            assert sorted([*waiting[0], *waiting[1]]) == sorted(names)
            assert all(waiting)
            it.add_nodes(*(node_object(f"n-{each}", cpu="8") for each in range(10)))
            await it.until(lambda: all(it.node_of(name) for name in names))

            assert {name for (name,) in binders(it).values()} == {"replica-0", "replica-1"}


def nodes_of_each(replicas: list[Replica]) -> list[dict[str, Any]]:
    """Return a node of each replica, with two cpus."""
    names = [f"n-{number}" for number in range(100)]
    own = [next(name for name in names if bucket_of(name) in in_use(each)) for each in replicas]
    return [node_object(name, cpu="2") for name in own]


def add_gang(it: Cluster, name: str, number: int) -> list[str]:
    policy = {"gang": {"minCount": number}}
    group = {"metadata": {"name": name, "namespace": "default"}, "spec": {"schedulingPolicy": policy}}
    it.server.store.create("podgroups.scheduling.k8s.io", group)
    pods = [pod_object(f"{name}-{each}", cpu="2") for each in range(number)]
    for pod in pods:
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
    it.add_pods(*pods)
    return [pod["metadata"]["name"] for pod in pods]


def in_pods(it: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the replicas show their buckets in the status of a pod."""
    it.server.store.create("pods", pod_object("scheduler", namespace="kube-system", schedulerName="another"))
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    monkeypatch.setenv("POD_NAME", "scheduler")


async def test_a_gang_that_needs_nodes_of_several_replicas_is_placed_by_the_leader_which_gives_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharded(tmp_path, 3, lambda it: in_pods(it, monkeypatch)) as (it, replicas):
        it.add_nodes(*nodes_of_each(replicas))
        names = add_gang(it, "g", 3)
        began = asyncio.get_running_loop().time()
        await it.until(lambda: all(it.node_of(name) for name in names))
        assert asyncio.get_running_loop().time() - began < 0.5

        (leader,) = [each for each in replicas if each.daemon.leadership.assigns()]
        assert binders(it) == {name: [leader.name] for name in names}
        await it.until(lambda: all_in_use(*replicas) and all(map(in_use, replicas)))
        assert asyncio.get_running_loop().time() - began < 1.0
        assert sorted(len(in_use(each)) for each in replicas) == [85, 85, 86]
        (assignment,) = it.server.store.list(KIND)
        assert not any("gang" in each for each in assignment["spec"]["replicas"])


LEADING = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


async def test_a_leader_without_sharding_waits_until_replicas_have_stopped(tmp_path: Path) -> None:
    async with sharded(tmp_path, 2) as (it, (first, second)):
        it.add_nodes(*(node_object(f"n-{each}", cpu="8") for each in range(10)))
        assigner, other = (first, second) if first.daemon.leadership.assigns() else (second, first)
        async with replica(it, "leader", configuration=LEADING) as leader:
            before = add_work(it, 0, 20)
            await it.until(lambda: all(it.node_of(name) for name in before))
            other.freezer.freeze()  # it would take the leader Lease
            await assigner.stop()
            await it.until(lambda: leader.is_leading)
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(3.0)
            other.freezer.thaw()
            names = add_work(it, 20, 20)
            await touch_until(it, lambda: all(it.node_of(name) for name in names))

            assert 15.0 <= asyncio.get_running_loop().time() - began < 20.0
            bound = binders(it)
            assert all(len(each) == 1 for each in bound.values())
            assert {name for pod in names for name in bound[pod]} <= {"leader", other.name}
            times = {
                each.path.split("/")[-2]: each.at_seconds
                for each in it.server.requests.matching(method="POST", path="/binding")
            }
            by_leader = [times[pod] for pod in names if bound[pod] == ["leader"]]
            by_other = [times[pod] for pod in names if bound[pod] != ["leader"]]
            assert min(by_leader) >= max(by_other, default=0.0)
            assert not in_use(other)
            (assignment,) = it.server.store.list(KIND)
            assert not assignment["spec"]["replicas"]


async def test_replicas_place_pods_after_a_leader_without_sharding_ended(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.server.store.create(CRDS, DEFINITION)
        it.add_nodes(*(node_object(f"n-{each}", cpu="8") for each in range(10)))
        async with (
            replica(it, "leader", configuration=LEADING) as leader,
            replica(it, "replica-0", configuration=SHARDED) as first,
        ):
            await it.until(lambda: leader.is_leading)
            before = add_work(it, 0, 20)
            await it.until(lambda: all(it.node_of(name) for name in before))
            assert {name for (name,) in binders(it).values()} == {"leader"}
            await leader.stop()
            await touch_until(it, lambda: all_in_use(first))
            names = add_work(it, 20, 20)
            await it.until(lambda: all(it.node_of(name) for name in names))

            bound = binders(it)
            assert all(len(each) == 1 for each in bound.values())
            assert {name for pod in names for name in bound[pod]} == {"replica-0"}
