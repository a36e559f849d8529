"""Of several daemons one schedules, and when it cannot, another does: never two."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.errors import LeadershipLostError
from scheduler.tools.simulator.faults import binds, requests
from tests.support import frozen_processes as freezing
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import Cluster, cluster
from tests.support.replicas import LEASES, Replica, replica
from tests.support.virtual_time import now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.run(by=freezing.run)

LEASE_SECONDS, DEADLINE_SECONDS, RETRY_SECONDS = 15.0, 10.0, 2.0


def lease(it: Cluster) -> dict[str, Any]:
    return dict(it.server.store.get(LEASES, "custom-scheduler", "kube-system")["spec"])


def pods(prefix: str, count: int) -> list[dict[str, Any]]:
    return [pod_object(f"{prefix}-{number}", cpu="10m") for number in range(count)]


def is_placed(it: Cluster, prefix: str, count: int) -> Callable[[], bool]:
    return lambda: all(it.node_of(f"{prefix}-{number}") for number in range(count))


@asynccontextmanager
async def leader_and_standby(folder: Path) -> AsyncIterator[tuple[Cluster, Replica, Replica]]:
    """Run two daemons; the first leads, both know the one large node."""
    async with cluster(folder) as it:
        it.add_nodes(node_object("n1", cpu="64", pods=1000))
        async with replica(it, "first") as first:
            await it.until(lambda: first.is_leading)
            async with replica(it, "second") as second:
                await it.until(lambda: second.daemon.has_synced)
                await asyncio.sleep(10)
                yield it, first, second


async def test_only_the_leader_writes_and_the_standby_has_the_same_state(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        it.add_pods(*pods("p", 50), pod_object("too-big", cpu="1000"))
        await it.until(is_placed(it, "p", 50))
        await it.until(lambda: it.condition("too-big"))
        await asyncio.sleep(600)

        assert len(first.binds()) == 50
        assert not second.writes()
        assert second.daemon.parts.cache.counts() == {"nodes": 1, "pods": 50, "assumed_pods": 0}
        assert [queued.pod.name for queued in second.daemon.parts.queue.pods()] == ["too-big"]


async def test_a_standby_reads_several_events_at_a_time_until_it_leads(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        intervals = [each.daemon.connection.watch_interval for each in (first, second)]
        assert intervals == [0.0, 0.1]

        await first.kill()
        await it.until(lambda: second.is_leading)

        assert second.daemon.connection.watch_interval == 0.0


async def test_a_leader_that_is_killed_is_replaced_when_its_lease_expires(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        await first.kill()
        killed = now()
        it.add_pods(*pods("p", 3))

        await it.until(is_placed(it, "p", 3))

        assert DEADLINE_SECONDS <= now() - killed <= LEASE_SECONDS + 1
        assert len(second.binds()) == 3
        assert lease(it)["leaseTransitions"] == 1


@pytest.mark.parametrize("after", [0.0, 0.3, 0.7, 1.1, 1.5, 1.9])
async def test_a_leader_is_replaced_in_time_after_a_crash_between_any_two_renewals(
    tmp_path: Path, after: float
) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        await asyncio.sleep(after)
        await first.kill()
        killed = now()

        await it.until(lambda: second.is_leading)

        assert DEADLINE_SECONDS <= now() - killed <= LEASE_SECONDS + 1


async def test_a_leader_that_is_stopped_finishes_its_bindings_and_releases_the_lease(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        it.server.faults.delay(3.0, binds)
        it.server.faults.delay(2.0, requests(resource="events"))
        it.add_pods(*pods("p", 5))
        await it.until(lambda: first.daemon.parts.cache.counts()["assumed_pods"] == 5)

        await first.stop()
        stopped = now()

        assert is_placed(it, "p", 5)(), "what was begun is finished"
        assert all(it.notes(f"p-{number}", "Scheduled") for number in range(5)), "and told"
        await it.until(lambda: second.is_leading)
        assert now() - stopped <= RETRY_SECONDS
        assert not second.binds()
        it.add_pods(pod_object("next", cpu="1"))
        await it.until(lambda: it.node_of("next"), seconds=4)
        assert lease(it)["leaseTransitions"] == 1


async def test_the_lease_is_released_only_when_nothing_is_left_to_write(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        it.server.faults.delay(8.0, binds)
        it.add_pods(*pods("p", 5))
        await it.until(lambda: first.daemon.parts.cache.counts()["assumed_pods"] == 5)

        stopping = asyncio.create_task(first.stop())
        await it.until(lambda: second.is_leading)
        took_over = now()
        await stopping

        assert len(first.writes()) == 10, "five binds and their events"
        assert not first.writes(since=took_over)


async def test_a_standby_that_is_stopped_does_not_touch_the_lease(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        holder = lease(it)["holderIdentity"]

        await second.stop()
        await asyncio.sleep(60)

        assert first.is_leading
        assert lease(it)["holderIdentity"] == holder
        assert not [
            each
            for each in it.server.requests
            if each.user_agent == "second" and each.method in {"PUT", "POST"}
        ]


async def test_a_leader_that_cannot_renew_stops_at_the_deadline_though_it_could_bind(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        renewed = max(
            each.at_seconds for each in it.server.requests.matching(method="PUT", path="custom-scheduler")
        )
        refusal = it.server.faults.refuse(500, requests(resource="leases"))
        for number in range(40):
            it.add_pods(pod_object(f"p-{number}", cpu="10m"))
            await asyncio.sleep(0.5)

        deadline = renewed + DEADLINE_SECONDS
        assert deadline - 1.0 < first.binds()[-1].at_seconds < deadline
        with pytest.raises(LeadershipLostError, match="leaderelection lost"):
            await first.ended
        assert not first.writes(since=deadline)
        assert not second.writes(), "nor could it have taken over"
        it.server.faults.remove(refusal)

        await it.until(is_placed(it, "p", 40), seconds=RETRY_SECONDS * 2.2 + 1)
        assert lease(it)["leaseTransitions"] == 1


async def test_binds_that_waited_while_the_lease_was_lost_are_not_sent(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, _):
        it.server.faults.delay(4.0, binds)  # sixteen at a time, and fewer, for they are slow
        it.server.faults.refuse(500, requests(resource="leases"))
        it.add_pods(*pods("p", 200))
        lost = now() + DEADLINE_SECONDS

        await asyncio.wait({first.ended})

        assert isinstance(first.ended.exception(), LeadershipLostError)
        assert first.binds()
        assert len(first.binds()) < 200
        assert not first.binds(since=lost)


@pytest.mark.parametrize("more_seconds", [0.0, 600.0], ids=["a little too long", "for ten minutes"])
async def test_a_leader_whose_process_was_suspended_sends_nothing_when_it_resumes(
    tmp_path: Path, more_seconds: float
) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        it.server.faults.delay(1.0, binds)
        it.add_pods(*pods("p", 100))
        it.add_pods(*(pod_object(f"too-big-{number}", cpu="1000") for number in range(20)))
        await it.until(lambda: len(first.binds()) > 10)

        first.freezer.freeze()
        asleep = now()
        await it.until(lambda: second.is_leading)
        assert now() - asleep > DEADLINE_SECONDS - RETRY_SECONDS
        await it.until(is_placed(it, "p", 100), seconds=200)
        await asyncio.sleep(more_seconds)
        before = Counter(each.path for each in it.server.requests if each.user_agent == "first")
        it.add_pods(*pods("late", 10))  # it has seen none of them
        first.freezer.thaw()
        awake = now()
        with pytest.raises(LeadershipLostError):
            await first.ended
        await it.until(is_placed(it, "late", 10))

        assert now() - awake < 60
        after = Counter(each.path for each in it.server.requests if each.user_agent == "first")
        assert not [path for path in after - before if path.endswith(("/binding", "/status", "/events"))]
        assert not first.writes(since=asleep + 1.5), "what was under way when it fell asleep apart"
        assert len(second.binds(since=awake)) == 10
        assert Counter(
            each.path
            for each in [*first.binds(), *second.binds()]
            if each.status == 201
        ).most_common(1)[0][1] == 1, "no pod is bound twice"  # fmt: skip


async def test_a_leader_suspended_for_less_than_the_deadline_continues(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        for _ in range(5):
            first.freezer.freeze()
            await asyncio.sleep(DEADLINE_SECONDS - RETRY_SECONDS - 0.5)
            first.freezer.thaw()
            await asyncio.sleep(5)
        it.add_pods(pod_object("web", cpu="1"))

        await it.until(lambda: it.node_of("web"))

        assert len(first.binds()) == 1
        assert not second.writes()


async def test_three_leaders_one_after_another_are_counted_as_two_transitions(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):
        holders = [lease(it)["holderIdentity"]]
        async with replica(it, "third") as third:
            await asyncio.sleep(10)
            await first.stop()
            await it.until(lambda: second.is_leading or third.is_leading)
            holders.append(lease(it)["holderIdentity"])
            await (second if second.is_leading else third).stop()
            await it.until(lambda: lease(it)["holderIdentity"] not in {"", *holders})
            holders.append(lease(it)["holderIdentity"])

        assert len(set(holders)) == 3
        assert lease(it)["leaseTransitions"] == 2


async def test_the_metric_shows_the_leader(tmp_path: Path) -> None:
    async with leader_and_standby(tmp_path) as (it, first, second):

        def status(of: Replica) -> float | None:
            name, labels = "leader_election_master_status", {"name": "custom-scheduler"}
            return of.daemon.metrics.registry.get_sample_value(name, labels)

        assert (status(first), status(second)) == (1.0, 0.0)
        first.freezer.freeze()
        await asyncio.sleep(DEADLINE_SECONDS)
        assert (status(first), status(second)) == (0.0, 0.0)
        await it.until(lambda: second.is_leading)
        assert (status(first), status(second)) == (0.0, 1.0)


def test_without_permission_for_its_lease_a_daemon_waits_and_gives_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as it:
            it.add_nodes(node_object("n1"))
            it.add_pods(pod_object("web", cpu="1"))
            refusal = it.server.faults.refuse(403, requests(resource="leases"))
            async with replica(it, "first") as first:
                await asyncio.sleep(600)
                assert not first.writes()
                assert not first.ended.done()
                it.server.faults.remove(refusal)

                await it.until(lambda: it.node_of("web"), seconds=RETRY_SECONDS * 2.2 + 1)

                await first.stop()

    with caplog.at_level(logging.ERROR):
        freezing.run(scenario())
    (reported,) = [
        vars(record) for record in caplog.records if record.message == "No permission to use the lease"
    ]
    assert reported["lease"] == "kube-system/custom-scheduler"
    assert "get and update" in reported["fix"]


async def test_a_finding_of_a_standby_is_reported_once_it_leads_if_it_still_holds(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replica(it, "leader") as leader:
        await it.until(lambda: leader.is_leading)
        it.garbled |= {b'"7777m"': b'"a little"', b'"6666m"': b'"a little"'}
        async with it.daemon(leader_elect=True) as standby:
            await it.until(lambda: standby.has_synced)
            await asyncio.sleep(5)
            refusal = it.server.faults.refuse(500, requests(resource="leases"))
            await asyncio.sleep(DEADLINE_SECONDS)
            it.add_nodes(node_object("n1", cpu="16"))
            it.add_pods(pod_object("odd", cpu="7777m"), pod_object("odd-for-a-while", cpu="6666m"))
            await asyncio.sleep(1)
            assert not it.condition("odd"), "nobody leads, nobody says anything"
            del it.garbled[b'"6666m"']
            it.label_pod("odd-for-a-while", mended="yes")
            await asyncio.sleep(1)
            it.server.faults.remove(refusal)

            await it.until(lambda: it.node_of("odd-for-a-while"))
            await it.until(lambda: it.condition("odd").get("reason") == "SchedulerError")

            assert "'a little' is not a quantity" in it.condition("odd")["message"]
            assert not it.notes("odd-for-a-while", "FailedScheduling")
