"""After an outage everything is followed again within five seconds of the server being well, and pods are placed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.objects.wording import Duration
from scheduler.tools.simulator.faults import requests
from tests.support import frozen_processes as freezing
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import Cluster, cluster
from tests.support.replicas import Replica, replica
from tests.support.virtual_time import now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon

pytestmark = pytest.mark.run(by=freezing.run)

WITHIN_SECONDS = 5.0


def seconds(count: int) -> Duration:
    return Duration(count * 1_000_000_000)


async def restart(it: Cluster, *, away_seconds: float) -> None:
    """Let the server go and come back without its history; first it refuses everything, as it has read no roles."""
    it.server.faults.drop_watches()
    await it.server.stop()
    it.server.faults.compact()
    await asyncio.sleep(away_seconds)
    refusals = [
        it.server.faults.refuse(403, lambda info: info.path != "/readyz"),
        it.server.faults.refuse(500, lambda info: info.path == "/readyz"),
    ]
    await it.server.start()
    await asyncio.sleep(1.0)
    for refusal in refusals:
        it.server.faults.remove(refusal)


def follows(daemon: Daemon) -> bool:
    """Whether a daemon knows what the server does, and that."""
    return not daemon.watches.cache_gate._behind and not daemon.watches.outages.is_away


async def until_followed(it: Cluster, *daemons: Daemon) -> None:
    await it.until(lambda: all(follows(daemon) for daemon in daemons), seconds=WITHIN_SECONDS)


@asynccontextmanager
async def two(folder: Path, **election: Any) -> AsyncIterator[tuple[Cluster, Replica, Replica]]:
    async with cluster(folder) as it:
        it.add_nodes(node_object("n1", cpu="64", pods=1000))
        async with replica(it, "first", **election) as first:
            await it.until(lambda: first.is_leading)
            async with replica(it, "second", **election) as second:
                await it.until(lambda: second.daemon.has_synced)
                await asyncio.sleep(10.0)
                yield it, first, second


@pytest.mark.parametrize("away_seconds", [0.1, 1.4, 5.0, 45.0, 600.0])
async def test_a_scheduler_without_lease_continues_once_the_server_is_back(
    away_seconds: float, tmp_path: Path
) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1"), node_object("gone"))
        it.add_pods(pod_object("before"))
        await it.until(lambda: it.node_of("before"))

        restarting = asyncio.create_task(restart(it, away_seconds=away_seconds))
        await asyncio.sleep(away_seconds / 2)
        it.server.store.delete("nodes", "gone")
        it.add_pods(pod_object("meanwhile"))
        await restarting
        well = now()

        await it.until(lambda: it.node_of("meanwhile"), seconds=WITHIN_SECONDS)
        await until_followed(it, daemon)
        assert now() - well <= WITHIN_SECONDS
        assert it.node_of("meanwhile") == "n1"
        assert daemon.parts.cache.counts()["nodes"] == 1


async def test_a_leader_keeps_its_lease_through_a_short_outage(tmp_path: Path) -> None:
    async with two(tmp_path) as (it, first, second):
        await restart(it, away_seconds=3.0)
        it.add_pods(pod_object("web"))

        await it.until(lambda: it.node_of("web"), seconds=WITHIN_SECONDS)
        await until_followed(it, first.daemon, second.daemon)
        assert len(first.binds()) == 1


async def test_a_standby_takes_over_as_soon_as_the_server_is_back_from_a_long_outage(tmp_path: Path) -> None:
    async with two(tmp_path) as (it, _, second):
        restarting = asyncio.create_task(restart(it, away_seconds=45.0))
        await asyncio.sleep(20.0)
        it.add_pods(pod_object("web"))
        await restarting

        await it.until(lambda: it.node_of("web"), seconds=WITHIN_SECONDS)
        assert len(second.binds()) == 1


async def test_a_standby_does_not_wait_for_its_next_try(tmp_path: Path) -> None:
    slow = {"lease_duration": seconds(90), "renew_deadline": seconds(80), "retry_period": seconds(60)}
    async with two(tmp_path, **slow) as (it, _, second):
        await restart(it, away_seconds=150.0)

        await it.until(lambda: second.is_leading, seconds=WITHIN_SECONDS)


async def test_no_decision_uses_the_state_of_before_an_outage(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="4"))
        await it.until(lambda: daemon.parts.cache.counts()["nodes"] == 1)
        # Pods can be followed at once, nodes three seconds later.
        restarting = asyncio.create_task(restart(it, away_seconds=5.0))
        await asyncio.sleep(2.0)
        it.server.store.delete("nodes", "n1")
        it.add_nodes(node_object("n2", cpu="4"))
        it.add_pods(pod_object("web", cpu="1"))
        refusal = it.server.faults.refuse(500, requests(verb="watch", resource="nodes"))
        await restarting
        await asyncio.sleep(3.0)
        it.server.faults.remove(refusal)

        await it.until(lambda: it.node_of("web"), seconds=WITHIN_SECONDS)

        assert it.node_of("web") == "n2"
        assert len([each for each in it.server.requests if each.path.endswith("/binding")]) == 1


async def test_connections_to_a_server_that_never_answers_are_replaced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1"))
        await it.until(lambda: daemon.parts.cache.counts()["nodes"] == 1)
        hanging = it.server.faults.delay(1e6)
        silent = it.server.faults.stall_watches()
        await it.until(lambda: daemon.watches.outages.is_away, seconds=25.0)
        it.add_pods(pod_object("web"))
        await asyncio.sleep(60.0)
        it.server.faults.remove(hanging)
        it.server.faults.remove(silent)

        await it.until(lambda: it.node_of("web"), seconds=WITHIN_SECONDS)
        await until_followed(it, daemon)
