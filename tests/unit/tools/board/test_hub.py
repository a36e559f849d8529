"""Viewers get the full state first and then changes; without viewers nothing runs."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from scheduler.engine.sharding.shards import OwnShard
from scheduler.tools.board.hub import Hub
from scheduler.tools.board.object_details import node_details, pod_details
from scheduler.tools.board.subject import of_daemon
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.tools.board.subject import Subject
    from tests.support.daemon_harness import Cluster


class Viewer:
    """Somebody who looks, and takes in what is told as the page does."""

    def __init__(self, hub: Hub) -> None:
        self.nodes: dict[str, Any] = {}
        self.waiting: list[Any] = []
        self.decisions: list[Any] = []
        self.samples: list[Any] = []
        self.force: Any = None
        self.ended = False
        self._hub = hub

    async def look(self) -> None:
        async with aclosing(self._hub.stream()) as stream:
            async for message in stream:
                for name, data in parsed(message):
                    self._take(name, data)
        self.ended = True

    def _take(self, name: str, data: Any) -> None:
        if name == "nodes":
            if data.get("all"):
                self.nodes.clear()
            self.nodes.update({tile[0]: tile for tile in data["changed"]})
            for gone in data["gone"]:
                del self.nodes[gone]
        elif name == "waiting":
            self.waiting = data["groups"]
        elif name == "decisions":
            self.decisions += data
        elif name == "rates":
            self.samples += data
        elif name == "configuration":
            self.force = data

    def placed(self) -> dict[str, str]:
        return {each["pod"]: each["node"] for each in self.decisions if each["node"]}


def parsed(message: bytes) -> list[tuple[str, Any]]:
    """Take events apart as a browser does."""
    assert message.endswith(b"\n\n")
    events = []
    for block in message.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "event" in fields:
            events.append((fields["event"], json.loads(fields["data"])))
    return events


@asynccontextmanager
async def shown(folder: Path) -> AsyncIterator[tuple[Cluster, Subject, Hub]]:
    async with cluster(folder, kubelet=True) as it, it.daemon() as daemon:
        subject = of_daemon(daemon, LoopClock())
        yield it, subject, Hub(subject)


@asynccontextmanager
async def looking(hub: Hub) -> AsyncIterator[Viewer]:
    viewer = Viewer(hub)
    task = asyncio.create_task(viewer.look())
    try:
        yield viewer
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_viewer_gets_nodes_pending_pods_and_decisions(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, _, hub), looking(hub) as viewer:
        it.add_nodes(node_object("n1", cpu="4"), node_object("n2", cpu="4"))
        it.add_pods(pod_object("web", cpu="1"), pod_object("big", cpu="99"), pod_object("huge", cpu="999"))
        await it.until(lambda: viewer.waiting)
        await it.until(viewer.placed)

        assert sorted(viewer.nodes) == ["n1", "n2"]
        node = viewer.placed()["default/web"]
        await it.until(lambda: viewer.nodes[node][5][0] == 1000)
        assert viewer.decisions[-1]["seconds"] >= 0
        await it.until(lambda: viewer.waiting and viewer.waiting[0]["count"] == 2)
        [group] = viewer.waiting
        assert [cause["reason"] for cause in group["causes"]] == ["Insufficient cpu"]
        assert (group["causes"][0]["most"], group["nodes"]) == (2, 2)
        assert group["places"] == {"unschedulable": 2}
        assert ["Node", ["added", "allocatable changed"]] in [
            [kind, sorted(set(does) & {"added", "allocatable changed"})]
            for kind, does in group["requeuingEvents"]["NodeResourcesFit"]
        ]
        assert viewer.force["profiles"][0]["name"] == "custom-scheduler"


async def test_without_viewers_nothing_runs_and_nothing_is_kept(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, _, hub):
        it.add_nodes(node_object("n1"))
        async with looking(hub) as viewer:
            await it.until(lambda: viewer.nodes)
            assert any(task.get_name() == "board" for task in asyncio.all_tasks())
        assert not any(task.get_name() == "board" for task in asyncio.all_tasks())
        assert not hub._tiles.sent
        assert not hub._samples


async def test_a_later_viewer_gets_the_state_of_the_first(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, _, hub), looking(hub) as first:
        it.add_nodes(node_object("n1"), node_object("gone"))
        it.add_pods(pod_object("web"), pod_object("big", cpu="99"))
        await it.until(lambda: first.waiting and first.placed())
        async with looking(hub) as second:
            it.server.store.delete("nodes", "gone")
            it.add_nodes(node_object("n3"))
            await it.until(lambda: "n3" in first.nodes and "gone" not in first.nodes)
            await asyncio.sleep(5)

            assert second.nodes == first.nodes
            assert second.waiting == first.waiting
            assert second.placed() == first.placed()
            assert second.force == first.force
            assert len(second.samples) == len(first.samples)


async def test_a_slow_viewer_is_disconnected_and_delays_no_other(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, _, hub), looking(hub) as viewer:
        slow = hub.stream()
        await anext(slow)
        await it.until(lambda: len(viewer.samples) > 200, seconds=300)

        reported = [message async for message in slow]

        assert len(reported) < 200
        assert not viewer.ended


async def test_a_stream_ends_so_that_access_is_checked_again(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, _, hub), looking(hub) as viewer:
        await it.until(lambda: viewer.ended, seconds=301)


async def test_the_page_of_a_pod_has_its_attempts_and_the_preemptions_of_others(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, subject, _):
        it.add_nodes(node_object("n1", cpu="4"), node_object("n2", cpu="4"))
        it.add_pods(*(pod_object(f"low-{number}", cpu="3") for number in range(2)))
        await it.until(lambda: it.node_of("low-0") and it.node_of("low-1"))
        it.add_pods(pod_object("urgent", cpu="3", priority=100))
        await it.until(lambda: it.node_of("urgent"))

        reported = pod_details(subject, "default/urgent")
        assert reported is not None
        first = pod_details(subject, "default/urgent", 1)

        assert first is not None
        assert [each["number"] for each in reported["attempts"]] == [2, 1]
        assert reported["attempt"]["chosen"] == it.node_of("urgent")
        room = first["attempt"]["preemption"]
        victims = sorted(victim for each in room["candidates"].values() for victim in each["victims"])
        assert sorted(room["candidates"]) == ["n1", "n2"]
        assert victims == ["default/low-0", "default/low-1"]
        assert room["nominated"]
        assert reported["weights"]["NodeResourcesFit"] == 1
        assert [move["to"] for move in reported["history"]][-1] == "outside"


async def test_the_page_of_a_node_has_its_pods_and_free_resources(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, subject, _):
        it.add_nodes(node_object("n1", cpu="4", taints=["a=b:PreferNoSchedule"]))
        it.add_pods(pod_object("web", cpu="1"))
        await it.until(lambda: it.node_of("web"))

        reported = node_details(subject, "n1")

        assert reported is not None
        assert [pod["pod"] for pod in reported["pods"]] == ["default/web"]
        assert (reported["allocatable"]["cpu"], reported["requested"]["cpu"]) == (4000, 1000)
        assert reported["taints"] == [{"key": "a", "value": "b", "effect": "PreferNoSchedule"}]
        assert node_details(subject, "n9") is None


async def test_the_pages_of_a_node_and_a_pod_name_another_replica(tmp_path: Path) -> None:
    async with shown(tmp_path) as (it, subject, _):
        it.add_nodes(node_object("n1"))
        it.add_pods(pod_object("large", cpu="1000"))
        await it.until(
            lambda: "default/large" in subject.parts.pods and subject.attempts.last("default/large")
        )
        shard = subject.parts.profiles.shards = OwnShard(lambda _: False)
        shard.owner = lambda _: "other-replica"

        pod, node = pod_details(subject, "default/large"), node_details(subject, "n1")

        assert pod is not None
        assert node is not None
        assert (pod["replica"], node["replica"]) == ("other-replica", "other-replica")
        assert pod["verdict"].startswith("Pod default/large belongs to replica other-replica")
