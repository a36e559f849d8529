"""Gangs under FairQueues and CapacityScheduling: counted, placed and reclaimed as wholes; time is virtual."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.integration.groups.gangs import POD_GROUPS, pod_group
from tests.integration.plugins import test_quotas as quotas
from tests.support.builders import pod_object
from tests.support.fair_queues import QUEUES, placed, queue, several, teams, teams_and_daemon

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster


def gang(it: Cluster, namespace: str, count: int, name: str = "g", *, cpu: str = "1", **spec: Any) -> None:
    """Create a gang of so many pods in a namespace."""
    made = pod_group(name, count, **spec)
    made["metadata"]["namespace"] = namespace
    it.server.store.create(POD_GROUPS, made)
    pods = [pod_object(f"{name}-{number}", namespace=namespace, cpu=cpu) for number in range(count)]
    for pod in pods:
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
    it.add_pods(*pods)


def most_in_gang(it: Cluster, namespace: str, name: str = "g") -> int:
    return len([each for each in placed(it, namespace) if each.startswith(f"{name}-")])


async def never_more(it: Cluster, namespace: str, most: int, *, seconds: int) -> None:
    """Look for a while that no more pods of a namespace are ever on nodes."""
    for _ in range(seconds):
        assert len(placed(it, namespace)) <= most
        await asyncio.sleep(1)


WHOLE = {"disruptionMode": "PodGroup"}


async def test_a_gang_beyond_the_max_of_its_queue_is_not_placed_at_all(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a", max={"cpu": 3})) as it:
        gang(it, "a", 2, cpu="2")
        await never_more(it, "a", 0, seconds=180)  # also when it is overdue, and its share in its way no more
        it.server.store.patch(QUEUES, "a", {"spec": {"max": {"cpu": 4}}})
        await it.until(lambda: most_in_gang(it, "a") == 2)


async def test_a_gang_reclaims_its_share_and_no_more(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a"), queue("b"), longest_wait_seconds=3600) as it:
        it.add_pods(*several("b", 14))
        await it.until(lambda: len(placed(it, "b")) == 12)
        gang(it, "a", 7, "large")
        await never_more(it, "a", 0, seconds=60)
        assert len(placed(it, "b")) == 12
        gang(it, "a", 6, "right")
        await it.until(lambda: most_in_gang(it, "a", "right") == 6)
        assert len(placed(it, "b")) == 6


async def test_past_preemptions_have_the_queue_of_their_gang_or_pod(tmp_path: Path) -> None:
    queues = queue("a"), queue("b")
    async with teams_and_daemon(tmp_path, *queues, longest_wait_seconds=3600) as (it, daemon):
        it.add_pods(*several("b", 14))
        await it.until(lambda: len(placed(it, "b")) == 12)
        gang(it, "a", 5)
        await it.until(lambda: most_in_gang(it, "a") == 5)
        it.add_pods(*several("a", 1))
        await it.until(lambda: len(placed(it, "a")) == 6)

        past = [(each.kind, each.preemptor, each.quota) for each in daemon.cycles.past_preemptions]
        assert past == [("podgroup", "a/g", "a"), ("pod", "a/a0", "a")]


async def test_a_gang_that_preempts_never_exceeds_max(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a", max={"cpu": 4}), queue("b")) as it:
        it.add_pods(*several("b", 14))
        await it.until(lambda: len(placed(it, "b")) == 12)
        it.add_pods(*several("a", 1))
        await it.until(lambda: len(placed(it, "a")) == 1)
        gang(it, "a", 2, cpu="2")
        await never_more(it, "a", 1, seconds=180)
        assert len(placed(it, "b")) == 11
        it.server.store.delete("pods", "a0", "a")
        await it.until(lambda: most_in_gang(it, "a") == 2)
        assert len(placed(it, "b")) == 8


async def test_a_pod_reclaims_a_whole_gang_on_all_its_nodes(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a"), queue("b")) as it:
        gang(it, "a", 3, cpu="4", **WHOLE)
        await it.until(lambda: most_in_gang(it, "a") == 3)
        it.server.store.patch(QUEUES, "a", {"spec": {"max": {"cpu": 0}}})
        it.add_pods(*several("b", 1))
        await it.until(lambda: len(placed(it, "b")) == 1)
        assert not placed(it, "a")


async def test_a_gang_that_is_not_fully_borrowed_stays(tmp_path: Path) -> None:
    async with teams(tmp_path, queue("a"), queue("b")) as it:
        gang(it, "a", 3, cpu="4", **WHOLE)
        await it.until(lambda: most_in_gang(it, "a") == 3)
        it.add_pods(*several("b", 6))
        await asyncio.sleep(50)
        assert most_in_gang(it, "a") == 3
        assert not placed(it, "b")


async def test_a_gang_beyond_the_max_of_its_quota_is_not_placed_at_all(tmp_path: Path) -> None:
    async with quotas.teams(tmp_path, a=(2, 2), b=(8, 8)) as it:
        gang(it, "a", 3)
        await never_more(it, "a", 0, seconds=180)
        it.server.store.patch(quotas.QUOTAS, "a", {"spec": {"max": {"cpu": 3}}}, namespace="a")
        await it.until(lambda: most_in_gang(it, "a") == 3)


async def test_a_gang_reclaims_the_min_of_its_quota_and_never_exceeds_max(tmp_path: Path) -> None:
    async with quotas.teams(tmp_path, a=(4, 4), b=(6, 10)) as it:
        it.add_pods(*several("b", 10))
        await it.until(lambda: len(placed(it, "b")) == 10)
        gang(it, "a", 5, "large")
        await never_more(it, "a", 0, seconds=60)
        assert len(placed(it, "b")) == 10
        gang(it, "a", 4, "right")
        await it.until(lambda: most_in_gang(it, "a", "right") == 4)
        assert len(placed(it, "b")) == 6


async def test_a_pod_reclaims_a_whole_gang_of_another_quota(tmp_path: Path) -> None:
    async with quotas.teams(tmp_path, a=(0, 12), b=(12, 12)) as it:
        gang(it, "a", 3, cpu="4", **WHOLE)
        await it.until(lambda: most_in_gang(it, "a") == 3)
        it.add_pods(*several("b", 1))
        await it.until(lambda: len(placed(it, "b")) == 1)
        assert not placed(it, "a")


async def test_a_gang_larger_than_the_share_of_its_queue_is_placed_once_it_is_overdue(tmp_path: Path) -> None:
    """Two queues want all of 12 cpus; the pods of the other one come and go, and would take every cpu that is free."""
    async with teams(tmp_path, queue("a"), queue("b"), longest_wait_seconds=30) as it:
        it.add_pods(*several("b", 12))
        await it.until(lambda: len(placed(it, "b")) == 12)
        gang(it, "a", 7, "large", **WHOLE)
        for number in range(200):  # one ends each 2 seconds, and another comes
            if most_in_gang(it, "a", "large") == 7:
                break
            for pod in sorted(placed(it, "b"))[:1]:
                it.server.store.delete("pods", pod, "b")
            it.add_pods(pod_object(f"more-{number}", namespace="b", cpu="1"))
            await asyncio.sleep(2)
        await asyncio.sleep(60)
        assert most_in_gang(it, "a", "large") == 7  # nobody takes back a part of it
