from __future__ import annotations

import asyncio
import logging
import socket
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.errors import NotLeadingError
from scheduler.kube.client import lease
from scheduler.kube.client.lease import JITTER_FACTOR, new_identity
from scheduler.tools.simulator.faults import requests
from tests.support.virtual_time import now
from tests.unit.kube.client.candidates import (
    DEADLINE_SECONDS,
    LEASE_SECONDS,
    RETRY_SECONDS,
    Candidates,
    candidates,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

EPOCH_TIME = "2026-01-01T00:00:00.000000Z"


def test_every_process_has_its_own_identity_with_the_host_name():
    first, second = new_identity(), new_identity()

    assert first != second
    assert first.startswith(f"{socket.gethostname()}_")


async def test_a_lease_that_does_not_exist_is_created(tmp_path: Path):
    async with candidates(tmp_path) as they:
        elector = await they.elector("me")
        assert not elector.is_leading()

        await elector.acquire()

        assert elector.is_leading()
        assert they.spec == {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": EPOCH_TIME,
            "renewTime": EPOCH_TIME,
            "leaseTransitions": 0,
        }


async def test_a_leader_renews_once_every_retry_period_with_the_known_version(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await asyncio.sleep(3600)

        assert me.elector.is_leading()
        assert len(me.led) == 1
        renewals = they.server.requests.matching(method="PUT", path="/leases/custom-scheduler")
        assert len(renewals) == pytest.approx(3600 / RETRY_SECONDS, rel=0.01)
        assert all(each.status == 200 and each.json["metadata"]["resourceVersion"] for each in renewals)
        assert len(they.asked("GET")) == 1, "what it wrote itself it need not read"
        assert they.spec["acquireTime"] == EPOCH_TIME
        assert they.spec["renewTime"] > "2026-01-01T00:59:55"
        assert they.spec["leaseTransitions"] == 0


@pytest.mark.parametrize(
    "renewed",
    ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"],
    ids=["a holder whose clock is slow", "a holder whose clock is fast"],
)
async def test_a_silent_holder_is_replaced_after_the_duration_by_our_clock(tmp_path: Path, renewed: str):
    async with candidates(tmp_path) as they:
        they.hold("silent", renewTime=renewed, leaseTransitions=6)
        async with they.candidate("me") as me:
            took_over = await until(me.elector.is_leading)

        assert LEASE_SECONDS <= took_over <= LEASE_SECONDS + 0.1
        assert (they.spec["holderIdentity"], they.spec["leaseTransitions"]) == ("me", 7)


async def renew_for_100_seconds(they: Candidates) -> None:
    """Let another process renew the Lease each second."""
    for second in range(100):
        await asyncio.sleep(1)
        they.hold("other", renewTime=f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000001Z")


async def test_the_wait_restarts_with_each_observed_renewal(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.hold("other")
        async with they.candidate("me") as me:
            await renew_for_100_seconds(they)
            assert not me.led
            took_over = await until(me.elector.is_leading)

        assert 100 + LEASE_SECONDS <= took_over <= 100 + LEASE_SECONDS + 0.1


async def test_a_change_outside_the_record_is_no_renewal(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.hold("silent")
        async with they.candidate("me") as me:
            for second in range(14):
                await asyncio.sleep(1)
                they.write({}, annotations={"seen": str(second)})

            assert await until(me.elector.is_leading) <= LEASE_SECONDS + 0.1
            assert they.lease["metadata"]["annotations"] == {"seen": "13"}, "nothing of it is lost"


async def test_a_holder_with_a_longer_duration_gets_its_time(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.hold("slow", leaseDurationSeconds=40)
        async with they.candidate("me") as me:
            assert 40 <= await until(me.elector.is_leading) <= 40.1


async def test_a_free_lease_is_taken_at_once(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.hold("other")
        async with they.candidate("me") as me:
            await asyncio.sleep(5)

            they.hold("", leaseDurationSeconds=1)

            assert await until(me.elector.is_leading) <= 5.1


async def test_one_of_many_candidates_for_a_free_lease_leads(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.hold("other")
        all_of_them = [await they.elector(f"candidate-{number}", seed=number) for number in range(8)]
        acquiring = [asyncio.create_task(each.acquire()) for each in all_of_them]
        await asyncio.sleep(3)

        they.hold("")
        await asyncio.sleep(8)

        leading = [each.identity for each in all_of_them if each.is_leading()]
        assert leading == [they.spec["holderIdentity"]]
        assert they.spec["leaseTransitions"] == 1
        for each in acquiring:
            each.cancel()


async def test_a_deleted_lease_is_created_again_by_any_candidate(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.hold("silent")
        async with they.candidate("me") as me:
            await asyncio.sleep(5)
            they.delete()
            assert await until(me.elector.is_leading) <= 5.1

            they.delete()
            await asyncio.sleep(60)

            assert len(me.led) == 1, "its leader goes on"
            assert they.spec["holderIdentity"] == "me"


async def test_a_leader_survives_changes_of_its_lease_by_others(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await until(me.elector.is_leading)
        for second in range(60):
            they.write({}, annotations={"seen": str(second)})
            await asyncio.sleep(1)

        assert me.led == [(me.led[0][0], None)]
        assert they.lease["metadata"]["annotations"] == {"seen": "59"}
        assert [r.status for r in they.server.requests.matching(method="PUT")].count(409) > 10


async def test_a_leader_stops_when_renewals_fail_for_the_renew_deadline(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await until(me.elector.is_leading)
        await asyncio.sleep(100)
        with they.refused(verb="update"), they.refused(verb="get"):
            last_success = max(
                each.at_seconds for each in they.server.requests.matching(method="PUT") if each.status == 200
            )
            await until(lambda: not me.elector.is_leading())

            assert now() == pytest.approx(last_success + DEADLINE_SECONDS, abs=0.02)
            assert me.led[0][1] == pytest.approx(last_success + DEADLINE_SECONDS, abs=0.02)
            with pytest.raises(NotLeadingError, match="not leading any more: lease kube-system/custom-sch"):
                me.elector.check()


async def test_a_leader_continues_when_renewals_fail_for_a_shorter_time(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await until(me.elector.is_leading)
        for _ in range(5):
            with they.refused(503):
                await asyncio.sleep(DEADLINE_SECONDS - 2 * RETRY_SECONDS - 0.1)
            await asyncio.sleep(5)

        assert len(me.led) == 1
        assert me.elector.is_leading()


async def test_leadership_counts_from_the_sending_of_a_slow_renewal(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await until(me.elector.is_leading)
        slow = they.server.faults.delay(4.0, requests(resource="leases"), times=1)
        sent = await until(lambda: slow.hits)
        handled: list[object] = []
        they.server.faults.refuse(500, lambda info: handled.append(info) or len(handled) > 1)  # type: ignore[func-returns-value]

        await until(lambda: not me.elector.is_leading())

        assert they.spec["renewTime"] == "2026-01-01T00:00:02.000000Z", "it was carried out, late"
        assert now() == pytest.approx(sent + DEADLINE_SECONDS, abs=0.02)


async def test_a_hanging_renewal_leaves_time_for_another(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await until(me.elector.is_leading)
        they.server.faults.delay(1e6, requests(resource="leases"), times=1)

        await asyncio.sleep(60)

        assert len(me.led) == 1


async def test_a_renewal_with_a_lost_response_is_found(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await until(me.elector.is_leading)
        they.server.faults.lose_answers(requests(resource="leases", verb="update"), times=1)

        await asyncio.sleep(60)

        assert len(me.led) == 1
        assert they.spec["leaseTransitions"] == 0


async def test_an_acquisition_with_a_lost_response_is_found(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.server.faults.lose_answers(requests(resource="leases", verb="create"), times=1)
        async with they.candidate("me") as me:
            assert await until(me.elector.is_leading) < (1 + JITTER_FACTOR) * RETRY_SECONDS
            assert they.spec["leaseTransitions"] == 0


async def test_a_leader_that_finds_another_holder_stops_at_once(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await until(me.elector.is_leading)
        await asyncio.sleep(10.5)

        they.hold("usurper")
        await until(lambda: me.led[0][1] is not None)

        assert now() <= 10.5 + RETRY_SECONDS + 0.1
        assert they.spec["holderIdentity"] == "usurper"


async def test_a_suspended_leader_loses_leadership_before_any_other_task_runs(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("me") as me:
        await until(me.elector.is_leading)
        asyncio.get_running_loop()._now += DEADLINE_SECONDS + 0.1  # type: ignore[attr-defined]

        # No task of its own has run since.
        assert not me.elector.is_leading()
        with pytest.raises(NotLeadingError):
            me.elector.check()


async def test_a_released_lease_has_no_holder_and_is_taken_within_a_retry_period(tmp_path: Path):
    async with candidates(tmp_path) as they:
        first = await they.elector("first")
        await first.acquire()
        async with they.candidate("second") as second:
            await asyncio.sleep(1)

            await first.release()

            assert not first.is_leading()
            assert await until(second.elector.is_leading) < 1 + RETRY_SECONDS
            assert they.spec["holderIdentity"] == "second"
            assert they.spec["leaseTransitions"] == 1


async def test_a_release_is_written_despite_changes_by_others(tmp_path: Path):
    async with candidates(tmp_path) as they:
        me = await they.elector("me")
        await me.acquire()
        they.write({}, annotations={"a": "b"})

        await me.release()

        assert they.spec == {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": EPOCH_TIME,
            "renewTime": EPOCH_TIME,
            "leaseTransitions": 0,
        }
        assert they.lease["metadata"]["annotations"] == {"a": "b"}


async def test_a_release_with_a_conflict_is_retried(tmp_path: Path):
    async with candidates(tmp_path) as they:
        me = await they.elector("me")
        await me.acquire()
        they.server.faults.refuse(409, requests(resource="leases", verb="update"), times=2)

        await me.release()

        assert they.spec["holderIdentity"] == ""


async def test_a_lease_of_another_holder_is_not_released(tmp_path: Path):
    async with candidates(tmp_path) as they:
        me = await they.elector("me")
        await me.acquire()
        they.hold("other")

        await me.release()

        assert they.spec["holderIdentity"] == "other"


async def test_a_candidate_that_never_led_releases_nothing(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.hold("other")
        me = await they.elector("me")
        acquiring = asyncio.create_task(me.acquire())
        await asyncio.sleep(1)
        acquiring.cancel()
        await asyncio.wait({acquiring})
        they.server.requests.clear()

        await me.release()

        assert not list(they.server.requests)


async def test_an_interrupted_acquisition_is_released_too(tmp_path: Path):
    async with candidates(tmp_path) as they:
        me = await they.elector("me")
        they.server.faults.lose_answers(requests(resource="leases", verb="create"))
        with they.refused(verb="update"):
            acquiring = asyncio.create_task(me.acquire())
            await until(lambda: they.spec)
            acquiring.cancel()
            await asyncio.wait({acquiring})
        assert they.spec["holderIdentity"] == "me"

        await me.release()

        assert they.spec["holderIdentity"] == ""


async def test_a_failed_release_is_logged_and_delays_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with candidates(tmp_path) as they:
        me = await they.elector("me")
        await me.acquire()
        they.server.faults.delay(1e6, requests(resource="leases"))

        began = now()
        await me.release()

        assert now() - began <= 5.1
        assert "Lease could not be released; others take it when its time is over" in caplog.messages


async def test_tries_while_the_lease_is_held_are_one_to_two_point_two_retry_periods_apart(tmp_path: Path):
    async with candidates(tmp_path) as they:
        they.hold("other", leaseDurationSeconds=100_000)
        with they.refused(403, verb="watch"):
            async with they.candidate("me"):
                await asyncio.sleep(3600)

        tries = they.asked("GET")
        gaps = [after - before for before, after in pairwise(tries)]
        assert min(gaps) >= RETRY_SECONDS - 0.01
        assert max(gaps) <= RETRY_SECONDS * (1 + JITTER_FACTOR) + 0.05
        assert max(gaps) - min(gaps) > 2.0, "they are spread"


async def test_a_candidate_whose_watch_shows_the_renewals_reads_once_every_renew_deadline(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("first") as first:
        await until(first.elector.is_leading)
        async with they.candidate("second") as second:
            await asyncio.sleep(600)
            assert not second.led
            n_read = len(they.asked("GET"))
            first.kill()
            took_over = await until(second.elector.is_leading)

    assert n_read == pytest.approx(600 / DEADLINE_SECONDS, abs=4)
    assert DEADLINE_SECONDS < took_over - 600 <= LEASE_SECONDS + 0.1


async def test_a_candidate_takes_over_in_time_though_its_watch_falls_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    watch = lease.watch

    async def slow(connection: Any, path: str, params: Any, take: Any, **options: Any) -> None:
        def take_late(event: Any) -> None:
            asyncio.get_running_loop().call_later(now() / 2, take, event)

        await watch(connection, path, params, take_late, **options)

    monkeypatch.setattr(lease, "watch", slow)
    async with candidates(tmp_path) as they:
        they.hold("other")
        async with they.candidate("me") as me:
            await renew_for_100_seconds(they)
            took_over = await until(me.elector.is_leading)

    assert 100 + LEASE_SECONDS <= took_over <= 100 + DEADLINE_SECONDS + LEASE_SECONDS + 0.1


async def test_a_candidate_that_may_not_watch_takes_over_all_the_same(tmp_path: Path):
    async with candidates(tmp_path) as they, they.candidate("first") as first:
        await until(first.elector.is_leading)
        with they.refused(403, verb="watch"):
            async with they.candidate("second") as second:
                await asyncio.sleep(60)
                first.kill()
                took_over = await until(second.elector.is_leading)

        longest = LEASE_SECONDS + (1 + JITTER_FACTOR) * RETRY_SECONDS
        assert DEADLINE_SECONDS + 60 < took_over <= 60 + longest + 0.1


async def test_a_missing_permission_is_logged_once_with_its_lease_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with candidates(tmp_path) as they, they.candidate("me", resource_name="mine") as me:
        with they.refused(403):
            await asyncio.sleep(60)
            assert not me.elector.is_leading()

        reported = [record for record in caplog.records if record.message == "No permission to use the lease"]
        fields: dict[str, Any] = vars(reported[0])
        assert len(reported) == 1
        assert reported[0].levelno == logging.ERROR
        assert fields["lease"] == "kube-system/mine"
        assert fields["fix"] == (
            'allow the verbs get and update on the lease "mine", and create on leases, in API group '
            '"coordination.k8s.io", in a Role in namespace kube-system bound to this client'
        )
        await until(me.elector.is_leading, seconds=5)


async def test_an_unreachable_server_is_logged_once_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with candidates(tmp_path) as they:
        await they.server.stop()
        async with they.candidate("me") as me:
            await asyncio.sleep(60)
            assert not me.elector.is_leading()
            reported = [message for message in caplog.messages if message.startswith("Lease could not")]
            assert reported == ["Lease could not be acquired; trying again"]

            await they.server.start()

            await until(me.elector.is_leading, seconds=5)


async def test_a_malformed_response_is_a_failed_try(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with candidates(tmp_path) as they:
        me = await they.elector("me")
        they.hold("other")
        read = me._connection.send

        async def garbled(*arguments: Any, **options: Any) -> Any:
            answer = await read(*arguments, **options)
            return type(answer)(answer.status, b"<html>")

        me._connection.send = garbled  # type: ignore[method-assign]
        acquiring = asyncio.create_task(me.acquire())
        await asyncio.sleep(60)
        assert not acquiring.done()
        errors = [vars(record).get("error") for record in caplog.records]
        assert any("Lease kube-system/custom-scheduler: unreadable" in str(error) for error in errors)

        me._connection.send = read  # type: ignore[method-assign]

        async with asyncio.timeout(20):
            await acquiring


async def test_a_candidate_that_wakes_tries_at_once(tmp_path: Path):
    async with candidates(tmp_path) as at:
        at.hold("somebody", leaseDurationSeconds=300)
        async with at.candidate("a", retry_period=100.0, renew_deadline=200.0, lease_duration=300.0) as a:
            await asyncio.sleep(20.0)
            with at.refused():
                at.hold("")
                await asyncio.sleep(30.0)
            assert not a.led
            a.elector.wake()

            await until(lambda: a.led, seconds=0.1)
