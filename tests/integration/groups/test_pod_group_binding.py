"""The Bindings of a gang start only when enough of them can be made, and a failed one is handled; time is virtual."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scheduler.framework import PreBindPlugin, Status
from scheduler.tools.simulator.faults import requests
from tests.integration.groups.gangs import add_gang, add_group, members, placed, told
from tests.support.builders import node_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

RELEASE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: GangScheduling
    args: {onPartialFailure: Release}
"""
SLOW = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {preBind: {enabled: [{name: Prepares}]}}
"""


def binding_of(name: str) -> Any:
    return requests(verb="create", resource="pods", subresource="binding", name=name)


def events(it: Cluster, reason: str) -> set[tuple[str, str]]:
    return {
        (each["regarding"]["name"], each["note"])
        for each in it.server.store.list("events.events.k8s.io")
        if each["reason"] == reason
    }


async def test_a_member_whose_binding_fails_gets_a_clear_message_and_is_retried_at_once(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="4"))
        it.server.faults.refuse(403, binding_of("g-1"), times=1)
        add_gang(it, "g", 3)
        began = asyncio.get_running_loop().time()
        await it.until(lambda: len(placed(it)) == 3)
        assert asyncio.get_running_loop().time() - began < 0.5
        await it.until(lambda: events(it, "FailedScheduling"))
        [(name, note)] = events(it, "FailedScheduling")
        assert name == "g-1"
        assert note.startswith("pod group g is partly bound, ")


async def test_a_member_that_cannot_be_bound_backs_off_and_the_others_keep_nodes(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        refused = it.server.faults.refuse(403, binding_of("g-1"))
        add_gang(it, "g", 3)
        await asyncio.sleep(60)
        assert placed(it) == {"g-0", "g-2"}
        assert refused.hits < 12
        assert told(it, "g-1").startswith("pod group g is partly bound, 2 of its pods: ")
        daemon.parts.cache.check()


async def test_a_group_is_released_as_a_whole_if_its_policy_asks_for_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(RELEASE):
        it.add_nodes(node_object("n", cpu="4"))
        it.server.faults.refuse(403, binding_of("g-1"))
        add_gang(it, "g", 3)
        await it.until(lambda: {pod["metadata"]["name"] for pod in it.pods()} == {"g-1"})
        await it.until(lambda: {name for name, _ in events(it, "Released")} == {"g-0", "g-2"})
        assert all(
            note.startswith("Pod group g is released: its pod g-1") for _, note in events(it, "Released")
        )


class Prepares(PreBindPlugin):
    """Takes a while, and fails for one pod."""

    name = "Prepares"
    api_version = 1

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        await asyncio.sleep(5)
        return Status.failed("its disk is gone") if pod.name == "g-1" else None


async def test_no_member_is_bound_before_enough_can_be(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(SLOW, plugins={"Prepares": Prepares}) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        add_gang(it, "g", 3)
        await asyncio.sleep(60)
        assert not placed(it)
        assert told(it, "g-1").endswith("its disk is gone")
        assert told(it, "g-0").startswith(
            "pod group g is not bound, because too few members can be bound: pod g-1: "
        )
        daemon.parts.cache.check()
        assert not it.server.store.get("pods", "g-0", "default")["spec"].get("nodeName")


async def test_surplus_members_may_fail_without_harm(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(SLOW, plugins={"Prepares": Prepares}):
        it.add_nodes(node_object("n", cpu="4"))
        add_gang(it, "g", 3, 2)
        await it.until(lambda: placed(it) == {"g-0", "g-2"})


class PreparesSome(PreBindPlugin):
    """Takes a while, fails for one pod, and has nothing to do for those who come late."""

    name = "Prepares"
    api_version = 1

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        await asyncio.sleep(0 if pod.name == "g-3" else 5)
        return Status.failed("its disk is gone") if pod.name == "g-1" else None


async def test_a_late_member_is_not_bound_before_enough_earlier_members_can_be(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(SLOW, plugins={"Prepares": PreparesSome}) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        add_group(it, "g", 3)
        *first, last = members("g", 4)
        it.add_pods(*first)
        await asyncio.sleep(2)
        it.add_pods(last)
        await asyncio.sleep(2)
        assert not placed(it)
        await it.until(lambda: len(placed(it)) == 3, seconds=60)
        assert placed(it) == {"g-0", "g-2", "g-3"}
        daemon.parts.cache.check()


class FailsOnce(PreBindPlugin):
    """Takes very long for one pod, and fails at once for the other, but for the first time only."""

    name = "Prepares"
    api_version = 1
    failed = 0

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        if pod.name == "g-1":
            self.failed += 1
            return Status.failed("its disk is busy") if self.failed == 1 else None
        await asyncio.sleep(30)
        return None


async def test_no_member_is_bound_alone_while_another_is_slow_to_return(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(SLOW, plugins={"Prepares": FailsOnce}):
        it.add_nodes(node_object("n", cpu="4"))
        add_gang(it, "g", 2)
        await asyncio.sleep(25)  # g-1 is tried several times, and g-0 still prepares in vain
        assert not placed(it)
        await it.until(lambda: len(placed(it)) == 2, seconds=120)


async def test_a_member_that_another_scheduler_binds_counts(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(SLOW, plugins={"Prepares": FailsOnce}):
        it.add_nodes(node_object("n", cpu="4"))
        add_gang(it, "g", 2)
        await asyncio.sleep(0.5)  # g-1 has failed, so the binding of g-0 is given up; it still prepares
        it.server.store.bind("g-0", "n")
        await it.until(lambda: placed(it) == {"g-0", "g-1"}, seconds=20)


class Dawdles(PreBindPlugin):
    """Takes long for the last member."""

    name = "Prepares"
    api_version = 1

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        await asyncio.sleep(20 if pod.name == "g-2" else 1)
        return None


async def test_members_that_leave_while_they_wait_do_not_count(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(SLOW, plugins={"Prepares": Dawdles}) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        add_gang(it, "g", 3)
        await asyncio.sleep(10)
        it.server.store.delete("pods", "g-0", "default")
        await asyncio.sleep(60)
        assert not placed(it)
        daemon.parts.cache.check()
        it.add_pods(members("g", 1)[0])
        await it.until(lambda: len(placed(it)) == 3, seconds=90)
