"""An API server that returns in an older state: daemons notice it within seconds and place the lost pods again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.faults import binds, requests
from tests.faults.cache_comparison import cache_from, differences
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import Cluster, cluster

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.tools.simulator.registry.registry import Backup

AWAY_SECONDS = 2.0
WITHIN_SECONDS = 5.0


async def restore(it: Cluster, backup: Backup, *, pods_meanwhile: int = 0) -> None:
    """Let the server go and come back as it was, with other objects that others have made before anybody is back."""
    it.server.faults.drop_watches()
    await it.server.stop()
    await asyncio.sleep(AWAY_SECONDS)
    it.server.restore(backup)
    for number in range(pods_meanwhile):
        it.server.store.create(
            "pods", pod_object(f"other-{number}", cpu="10m", scheduler_name="other", node="n-1")
        )
    await it.server.start()


def knows(it: Cluster, daemon: Daemon) -> bool:
    return not list(differences(daemon.parts.cache, cache_from(it.server.store)))


@pytest.mark.parametrize(
    "pods_meanwhile", [0, 3, 60], ids=["behind", "almost level", "past the known version"]
)
async def test_bindings_lost_by_a_restore_are_repeated(
    tmp_path: Path, pods_meanwhile: int, caplog: pytest.LogCaptureFixture
):
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n-1", cpu="4"), node_object("n-2", cpu="4"))
        it.add_pods(*(pod_object(f"before-{number}", cpu="1") for number in range(2)))
        await it.until(lambda: all(it.node_of(f"before-{number}") for number in range(2)))
        it.add_pods(pod_object("undone", cpu="2"))
        backup = it.server.backup()
        await it.until(lambda: it.node_of("undone"))
        it.add_pods(pod_object("never", cpu="1"))
        it.server.store.delete("nodes", "n-2")
        await asyncio.sleep(1.0)
        await restore(it, backup, pods_meanwhile=pods_meanwhile)
        assert not it.node_of("undone")

        await it.until(lambda: it.node_of("undone"), seconds=WITHIN_SECONDS)
        await it.until(lambda: knows(it, daemon), seconds=WITHIN_SECONDS)
        await asyncio.sleep(10.0)
        assert not (await daemon.consistency.check(repair=False)).findings
        assert "Cache differs from the cluster" not in caplog.messages, "the watches notice by themselves"


async def test_a_lost_binding_that_no_watch_has_delivered_holds_no_capacity(tmp_path: Path):
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n-1", cpu="4"))
        held = it.server.faults.delay(2.0, binds)
        it.add_pods(pod_object("a", cpu="4"))
        await it.until(lambda: held.hits)
        it.server.faults.stall_watches(lambda info: info.resource == "pods")
        backup = it.server.backup()
        await it.until(lambda: it.node_of("a"))
        await asyncio.sleep(1.0)
        assert daemon.parts.cache.counts()["assumed_pods"] == 1
        it.server.faults.clear()
        await restore(it, backup)
        assert not it.node_of("a")

        await it.until(lambda: it.node_of("a"), seconds=2 * WITHIN_SECONDS)
        await it.until(lambda: knows(it, daemon), seconds=WITHIN_SECONDS)


async def test_a_binding_that_was_lost_while_watches_were_refused_holds_no_capacity(tmp_path: Path):
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n-1", cpu="4"))
        refused = it.server.faults.refuse(500, binds)
        it.add_pods(pod_object("a", cpu="4"))
        await it.until(lambda: refused.hits)
        unwatched = it.server.faults.refuse(503, requests(verb="watch"))
        it.server.faults.drop_watches()
        backup = it.server.backup()
        it.server.faults.remove(refused)
        await it.until(lambda: it.node_of("a"), seconds=60.0)  # scheduling continues with a stale cache
        await asyncio.sleep(1.0)
        await it.server.stop()
        it.server.restore(backup)
        await it.server.start()  # no request failed, and the watches will continue where they ended
        it.server.faults.remove(unwatched)

        await it.until(lambda: it.node_of("a"), seconds=60.0)
        await it.until(lambda: knows(it, daemon), seconds=WITHIN_SECONDS)


async def test_a_condition_lost_by_a_restore_is_written_again(tmp_path: Path):
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n-1", cpu="1"))
        it.add_pods(pod_object("large", cpu="4"))
        backup = it.server.backup()
        await it.until(lambda: it.condition("large"))
        await restore(it, backup)
        assert not it.condition("large")

        await it.until(lambda: it.condition("large"), seconds=20.0)


async def test_an_outage_without_a_restore_needs_no_list_of_a_busy_kind(tmp_path: Path):
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n-1", cpu="4"))
        it.add_pods(pod_object("a", cpu="1"))
        await it.until(lambda: it.node_of("a"))
        await asyncio.sleep(1.0)
        await restore(it, it.server.backup())
        it.add_pods(pod_object("b", cpu="1"))
        await it.until(lambda: it.node_of("b"), seconds=WITHIN_SECONDS)

        listed = [
            each
            for each in it.server.requests.matching(method="GET", path="/pods")
            if "sendInitialEvents" in each.query
        ]
        assert len(listed) == 1
        assert knows(it, daemon)
