"""Replicas join, leave and end, and no bucket is used by two of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.sharding.assigner import TAKING_SECONDS
from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.engine.sharding.holding import BucketState
from scheduler.errors import ApiError
from scheduler.tools.simulator.faults import requests, streamed_lists
from tests.integration.sharding.shard_replicas import (
    CRDS,
    DEADLINE_SECONDS,
    DEFINITION,
    KIND,
    LEASE_SECONDS,
    LEASES,
    NAME,
    RETRY_SECONDS,
    SPACE,
    Process,
    Shards,
    shards,
)
from tests.support import daemon_accounts
from tests.support import frozen_processes as freezing
from tests.support.builders import pod_object
from tests.support.virtual_time import LoopClock, now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


@asynccontextmanager
async def running(folder: Path, count: int) -> AsyncIterator[tuple[Shards, list[Process]]]:
    """Run processes that share all buckets."""
    async with shards(folder) as it, AsyncExitStack() as stack:
        found = [await stack.enter_async_context(it.process(f"r{number}")) for number in range(count)]
        await it.until(lambda: it.all_in_use(*found))
        yield it, found


async def test_replicas_share_all_buckets_after_the_lease_duration_of_a_new_object(tmp_path: Path) -> None:
    async with shards(tmp_path) as it, it.process("a") as a, it.process("b") as b, it.process("c") as c:
        await it.until(lambda: it.object)
        created = now()
        assert it.held == {"former-holders": "0-255"}

        in_use = await it.until(lambda: it.all_in_use(a, b, c))

        assert LEASE_SECONDS <= in_use - created < LEASE_SECONDS + 2
        assert sorted(len(each.in_state()) for each in (a, b, c)) == [85, 85, 86]
        assert it.object["spec"]["summary"] == "3 replicas, 0 buckets move"


class PassingClock(LoopClock):
    """A clock that goes on between two readings: the first two at a time of the loop are a little earlier."""

    def __init__(self) -> None:
        super().__init__()
        self._at, self._readings = -1.0, 0

    def monotonic(self) -> float:
        at = super().monotonic()
        self._readings = self._readings + 1 if at == self._at else 1
        self._at = at
        return at if self._readings > 2 else at - 1e-6


async def test_a_duration_that_ends_while_the_assigner_works_is_not_missed(tmp_path: Path) -> None:
    async with shards(tmp_path) as it, it.process("a") as a:
        a.replica._assigner._clock = PassingClock()
        await it.until(lambda: it.object)
        created = now()

        in_use = await it.until(lambda: it.all_in_use(a))

        assert LEASE_SECONDS <= in_use - created < LEASE_SECONDS + 2


async def test_replicas_list_leases_and_the_assignment_where_the_server_does_not_stream_lists(
    tmp_path: Path,
) -> None:
    async with shards(tmp_path) as it:
        it.server.faults.refuse(400, streamed_lists)
        async with it.process("a") as a, it.process("b") as b:
            await it.until(lambda: it.all_in_use(a, b))

    kinds = ("leases", "shardassignments")
    listed = {
        each for each in daemon_accounts.GRANTED if each.startswith(tuple(f"list {kind}" for kind in kinds))
    }
    assert len(listed) == len(kinds)
    assert listed <= daemon_accounts.USED


async def test_a_replica_that_joins_gets_its_share_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as (it, [first]), it.process("second") as second:
        began = now()

        in_use = await it.until(lambda: it.all_in_use(first, second))

        assert in_use - began < 1.0
        assert len(second.in_state()) == 128


async def test_the_buckets_of_a_killed_replica_are_used_after_its_lease_duration(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as (it, they):
        killed = next(each for each in they if not each.replica.assigns())
        others = [each for each in they if each is not killed]
        await killed.kill()
        began = now()

        in_use = await it.until(lambda: it.all_in_use(*others))

        assert LEASE_SECONDS - RETRY_SECONDS <= in_use - began <= LEASE_SECONDS + 1


async def test_the_buckets_of_a_killed_assigner_are_used_after_its_lease_duration(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as (it, they):
        killed = next(each for each in they if each.replica.assigns())
        others = [each for each in they if each is not killed]
        await killed.kill()
        began = now()

        in_use = await it.until(lambda: it.all_in_use(*others))

        assert LEASE_SECONDS - RETRY_SECONDS <= in_use - began <= LEASE_SECONDS + 3
        assert [each.replica.assigns() for each in others].count(True) == 1


@pytest.mark.parametrize("is_assigner", [False, True])
async def test_the_buckets_of_a_replica_that_leaves_move_at_once(tmp_path: Path, is_assigner: bool) -> None:
    async with running(tmp_path, 3) as (it, they):
        leaving = next(each for each in they if each.replica.assigns() is is_assigner)
        others = [each for each in they if each is not leaving]
        began = now()
        await leaving.stop()

        in_use = await it.until(lambda: it.all_in_use(*others))

        assert in_use - began < 1.5
        assert leaving.replica.name not in it.leases()
        await it.until(lambda: any(each.replica.assigns() for each in others), seconds=2 * RETRY_SECONDS + 1)


async def test_a_replica_that_leaves_waits_for_bindings_without_an_answer(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as (it, [first, second]):
        bucket = min(first.in_state())
        first.replica.holder.unanswered(bucket, now())
        began = now()
        stopping = asyncio.create_task(first.stop())

        await it.until(lambda: len(second.in_state()) == 255)
        assert now() - began < 1.5
        await it.until(lambda: bucket in second.in_state())

        assert 5.5 <= now() - began <= 7.0
        await stopping


async def test_the_last_replica_gives_back_all_buckets(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as (it, [only]):
        await only.stop()

        assert it.held == {}
        assert it.leases() == {}
        async with it.process("next") as following:
            began = now()
            await it.until(lambda: it.all_in_use(following))
            assert now() - began < 1.0


async def test_a_replica_that_cannot_renew_stops_before_others_use_its_buckets(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as (it, they):
        cut = next(each for each in they if not each.replica.assigns())
        (other,) = (each for each in they if each is not cut)
        path = f"/leases/{cut.replica.name}"
        refusal = it.server.faults.refuse(503, lambda info: path in info.path)
        began = now()

        ended = await it.until(lambda: not cut.replica.is_leading())
        it.server.faults.remove(refusal)
        in_use = await it.until(lambda: it.all_in_use(other))

        assert DEADLINE_SECONDS - RETRY_SECONDS <= ended - began <= DEADLINE_SECONDS + 0.1
        assert in_use - ended >= 5.0, "its last Binding has arrived"
        assert cut.is_gone


def frozen(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario()

    freezing.run(run())


def test_a_replica_that_was_suspended_uses_nothing_when_it_wakes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 3) as (it, they):
            asleep = next(each for each in they if not each.replica.assigns())
            others = [each for each in they if each is not asleep]
            asleep.freezer.freeze()
            await it.until(lambda: it.all_in_use(*others))
            await asyncio.sleep(30)

            asleep.freezer.thaw()

            assert not asleep.in_state()
            await it.until(lambda: asleep.is_gone)
            await it.until(lambda: asleep.replica.name not in it.held)

    frozen(scenario)


def test_an_outdated_assigner_does_no_harm(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 3) as (it, they):
            outdated = next(each for each in they if each.replica.assigns())
            others = [each for each in they if each is not outdated]
            outdated.freezer.freeze()
            await it.until(lambda: it.all_in_use(*others))
            before = it.object

            outdated.freezer.thaw()
            await asyncio.sleep(20)

            assert it.object == before
            assert it.all_in_use(*others)
            assert outdated.is_gone

    frozen(scenario)


async def test_two_assigners_at_the_same_time_do_no_harm(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as (it, they):
        second = next(each for each in they if not each.replica.assigns())
        assigning = asyncio.create_task(second.replica._assigner.run(lambda: None))
        async with it.process("joins") as joins:
            await it.until(lambda: it.all_in_use(*they, joins))
            await joins.stop()
            await it.until(lambda: it.all_in_use(*they))
        assigning.cancel()
        await asyncio.wait({assigning})


async def test_a_deleted_assignment_is_created_again_and_held_for_the_lease_duration(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as (it, they):
        it.server.store.delete(KIND, NAME)

        created = await it.until(lambda: it.object)
        await it.until(lambda: not any(each.in_state() for each in they))
        in_use = await it.until(lambda: it.all_in_use(*they))

        assert LEASE_SECONDS <= in_use - created <= LEASE_SECONDS + 2


def unheard(_: object) -> None: ...


async def unanswered() -> None:
    raise ApiError(0, "", "no answer")


async def test_a_replica_that_does_not_hear_of_a_new_assignment_stops_before_others_claim(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 2) as (it, they):
        deaf = next(each for each in they if not each.replica.assigns())
        (other,) = (each for each in they if each is not deaf)
        used = deaf.in_state()
        # Its watch is silent, and it cannot read the assignment; its Lease could be renewed.
        deaf.replica._shared._take = unheard  # type: ignore[method-assign]
        deaf.replica._shared.read = unanswered  # type: ignore[method-assign]
        it.server.store.delete(KIND, NAME)

        stopped = await it.until(lambda: not deaf.in_state())
        assert not used & other.in_state()
        in_use = await it.until(other.in_state)

        assert in_use - stopped > 1.0


async def test_an_invalid_assignment_is_logged_once_and_the_last_one_stays_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 2) as (it, they):
        good = it.object["spec"]
        before = [each.in_state() for each in they]

        it.write(lambda obj: obj["spec"]["replicas"][0].update(held="0-300"))
        await asyncio.sleep(60)

        assert [each.in_state() for each in they] == before
        (message, *more) = (
            record
            for record in caplog.records
            if record.message.startswith("The assignment of buckets cannot")
        )
        assert (
            "ShardAssignment custom-scheduler: spec.replicas[0].held: must be ranges"
            in vars(message)["error"]
        )
        assert len(more) == 1, "one for each replica"
        it.server.requests.clear()
        async with it.process("joins") as joins:
            await asyncio.sleep(10)
            writes = [each for each in it.server.requests if each.method != "GET"]
            assert not [each for each in writes if "shardassignments" in each.path]
            it.write(lambda obj: obj.update(spec=good))
            await it.until(lambda: it.all_in_use(*they, joins))


def write_lease(it: Shards, process: Process, holder: str | None) -> None:
    """Write another holder by hand; None deletes the Lease."""
    if holder is None:
        it.server.store.delete(LEASES, process.replica.name, SPACE)
        return
    lease = it.server.store.get(LEASES, process.replica.name, SPACE)
    it.server.store.update(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": holder}})


@pytest.mark.parametrize("holder", [None, "", "me"], ids=["deleted", "no holder", "another holder"])
async def test_a_replica_whose_lease_a_person_changed_gives_back_its_buckets_and_ends(
    tmp_path: Path, holder: str | None
) -> None:
    async with running(tmp_path, 2) as (it, they):
        lost = next(each for each in they if not each.replica.assigns())
        (other,) = (each for each in they if each is not lost)
        write_lease(it, lost, holder)
        began = now()

        ended = await it.until(lambda: lost.is_gone)
        await it.until(lambda: it.all_in_use(other))

        assert ended - began <= RETRY_SECONDS + 0.2
        assert it.leases().get(lost.replica.name) == holder, "it is not acquired again"


@pytest.mark.parametrize("holder", [None, "", "me"], ids=["deleted", "no holder", "another holder"])
async def test_a_lease_that_a_person_changed_counts_as_unchanged_for_its_duration(
    tmp_path: Path, holder: str | None
) -> None:
    async with running(tmp_path, 2) as (it, they):
        lost = next(each for each in they if not each.replica.assigns())
        (other,) = (each for each in they if each is not lost)
        await lost.kill()
        write_lease(it, lost, holder)
        began = now()

        in_use = await it.until(lambda: it.all_in_use(other))

        assert LEASE_SECONDS <= in_use - began <= LEASE_SECONDS + 2


async def test_the_lease_of_a_replica_that_ended_is_deleted_after_ten_more_lease_durations(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 2) as (it, they):
        killed = next(each for each in they if not each.replica.assigns())
        await killed.kill()
        began = now()

        deleted = await it.until(lambda: killed.replica.name not in it.leases(), seconds=300)

        assert 10 * LEASE_SECONDS <= deleted - began <= 11 * LEASE_SECONDS + 2


async def test_a_claim_waits_until_the_watch_of_pods_reaches_it(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as (it, [first]), it.process("late", in_pod=False) as late:
        await it.until(lambda: len(late.in_state(BucketState.CLAIMED)) == 128)
        began = now()

        in_use = await it.until(lambda: it.all_in_use(first, late), seconds=70)

        assert in_use - began > 1.0, "a bookmark comes once a minute"


async def test_the_status_of_its_pod_says_how_many_buckets_a_replica_holds(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as (it, [first, _]):
        await asyncio.sleep(1)
        conditions = it.server.store.get("pods", first.identity, SPACE)["status"]["conditions"]
        (shard,) = (each for each in conditions if each["type"] == "custom-scheduler.io/Shard")

        assert shard["status"] == "True"
        assert shard["message"].startswith("holds 128 of 256 buckets in version ")


async def test_replicas_at_rest_write_nothing_but_their_renewals(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as (it, _):
        await asyncio.sleep(5)
        it.server.requests.clear()
        await asyncio.sleep(100)

        writes = [each for each in it.server.requests if each.method != "GET"]
        assert {each.method for each in writes} == {"PUT"}
        assert all("/leases/" in each.path for each in writes)
        assert len(writes) == pytest.approx(4 * 100 / RETRY_SECONDS, rel=0.1)


async def test_a_replica_that_cannot_write_its_buckets_tries_again(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as (it, [first]):
        refusal = it.server.faults.refuse(500, requests(resource="shardassignments", verb="update"))
        async with it.process("second") as second:
            await asyncio.sleep(5)
            assert not second.in_state()
            it.server.faults.remove(refusal)

            await it.until(lambda: it.all_in_use(first, second), seconds=3)


@pytest.mark.parametrize("pods_meanwhile", [0, 300], ids=["behind", "past the known version"])
async def test_all_replicas_of_a_restored_server_end_before_others_use_their_buckets(
    tmp_path: Path, pods_meanwhile: int
) -> None:
    async with running(tmp_path, 2) as (it, they), AsyncExitStack() as stack:
        backup = it.server.backup()
        joined = await stack.enter_async_context(it.process("joins"))
        await it.until(lambda: it.all_in_use(*they, joined))
        it.server.faults.drop_watches()
        await it.server.stop()
        it.server.restore(backup)
        for number in range(pods_meanwhile):
            it.server.store.create("pods", pod_object(f"other-{number}"))
        await it.server.start()
        began = now()
        following = [await stack.enter_async_context(it.process(f"next-{number}")) for number in range(3)]

        await it.until(lambda: all(each.is_gone for each in (*they, joined)))
        assert now() - began <= DEADLINE_SECONDS + 0.1
        in_use = await it.until(lambda: it.all_in_use(*following))

        assert in_use - began >= LEASE_SECONDS - RETRY_SECONDS


async def test_an_assignment_of_replicas_in_another_namespace_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with shards(tmp_path) as it, it.process("first") as first:
        await it.until(lambda: it.all_in_use(first))
        it.write(lambda obj: obj["spec"].update(namespace="elsewhere"))
        async with it.process("second") as second:
            await asyncio.sleep(40)

            assert not second.in_state()
        errors = {vars(record).get("error", "") for record in caplog.records}
        assert (
            'ShardAssignment custom-scheduler: spec.namespace: must be kube-system, was "elsewhere"; another scheduler has '
            "the same resourceName"
        ) in errors


async def test_the_right_to_use_buckets_counts_from_the_sending_of_a_slow_read(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as (it, [only]):
        it.server.faults.delay(2.0, requests(resource="shardassignments", verb="get"))
        await asyncio.sleep(20)
        path = f"/leases/{only.replica.name}"
        it.server.faults.refuse(503, lambda info: path in info.path)
        renewals = it.server.requests.matching(method="PUT", path=path)
        renewed = max(each.at_seconds for each in renewals if each.status == 200)

        ended = await it.until(lambda: not only.replica.is_leading())

        assert ended == pytest.approx(renewed - 2.0 + DEADLINE_SECONDS, abs=0.2)


def has_all(process: Process) -> bool:
    return len(process.in_state()) == BUCKETS


async def test_the_leader_takes_all_buckets_for_a_gang_and_gives_them_back_when_it_was_tried(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as (it, processes):
        (leader,) = [each for each in processes if each.replica.assigns()]
        asks = next(each for each in processes if each is not leader)
        began = now()
        assert asks.replica.asks_for_all("default/g")
        assert await it.until(lambda: has_all(leader)) - began < 0.5
        assert asks.replica.asks_for_all("default/other"), "it may be tried by the leader too"
        leader.replica.note_tried("default/other")
        await asyncio.sleep(1.0)
        assert has_all(leader)
        began = now()
        leader.replica.note_tried("default/g")

        assert await it.until(lambda: it.all_in_use(*processes)) - began < 0.5
        assert not asks.replica.asks_for_all("default/g"), "it is passed on now"


async def test_the_leader_gives_all_buckets_back_after_a_while_though_the_gang_was_not_tried(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 2) as (it, processes):
        (leader,) = [each for each in processes if each.replica.assigns()]
        assert leader.replica.asks_for_all("default/g")
        began = await it.until(lambda: has_all(leader))
        await asyncio.sleep(TAKING_SECONDS - 1.0)
        assert has_all(leader)

        assert await it.until(lambda: it.all_in_use(*processes)) - began < TAKING_SECONDS + 0.5


async def test_replicas_ask_for_all_buckets_about_once_a_minute(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as (it, (first, second)):
        assert first.replica.asks_for_all("default/g")
        began = now()
        await it.until(lambda: it.all_in_use(first, second) and now() > began + 1.0)

        assert not second.replica.asks_for_all("default/h")
        assert (
            60.0
            < await it.until(lambda: second.replica.asks_for_all("default/h"), seconds=90.0) - began
            < 80.0
        )


async def test_a_gang_does_not_wait_for_long_without_a_leader(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as (it, processes):
        (leader,) = [each for each in processes if each.replica.assigns()]
        (asks,) = [each for each in processes if each is not leader]
        it.server.faults.refuse(500, requests(resource="leases", name=NAME))
        await leader.kill()
        assert asks.replica.asks_for_all("default/g")
        await asyncio.sleep(TAKING_SECONDS + 5.0)
        assert not asks.replica.asks_for_all("default/g")
        await it.until(lambda: "gang" not in str(it.object["spec"]["replicas"]))


async def test_a_replica_that_is_in_no_pod_does_not_ask_for_all_buckets(tmp_path: Path) -> None:
    async with shards(tmp_path) as it, it.process("a", in_pod=False) as a:
        await it.until(lambda: it.object)

        assert not a.replica.asks_for_all("default/g")


async def test_a_gang_does_not_wait_if_the_server_does_not_keep_what_a_replica_asks(tmp_path: Path) -> None:
    """It has the definition of an earlier version."""
    async with shards(tmp_path) as it:
        definition = deepcopy(DEFINITION)
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        del schema["properties"]["spec"]["properties"]["replicas"]["items"]["properties"]["gang"]
        it.server.store.patch(CRDS, definition["metadata"]["name"], {"spec": definition["spec"]})
        async with it.process("a") as a, it.process("b") as b:
            await it.until(lambda: it.all_in_use(a, b))
            assert a.replica.asks_for_all("default/g")
            await asyncio.sleep(0.5)

            assert not a.replica.asks_for_all("default/g")
