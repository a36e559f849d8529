from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.outages import ASK_SECONDS, SILENCE_SECONDS, Outages
from scheduler.kube.http.request import Request
from tests.support.virtual_time import now
from tests.unit.kube.client.scripted_server import (
    Answer,
    NoAnswer,
    ScriptedServer,
    Stream,
    failure,
    scripted_server,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.kube.client.connection import ApiConnection

READY = "/readyz"


class Case:
    """A connection whose outages are detected."""

    def __init__(self, server: ScriptedServer, connection: ApiConnection, outages: Outages) -> None:
        self.server = server
        self.connection = connection
        self.outages = outages

    @property
    def asked(self) -> list[float]:
        """The times of the probes."""
        return [each.at for each in self.server.of("GET", READY)]

    async def fail(self, how: Answer | NoAnswer) -> None:
        """Make a request fail."""
        self.server.script("GET", "/x", how)
        with suppress(ApiError):
            await self.connection.send(Request("GET", "/x", timeout_seconds=1.0))


@asynccontextmanager
async def case() -> AsyncIterator[Case]:
    async with scripted_server() as server, server.connection() as connection:
        outages = Outages(connection)
        running = asyncio.create_task(outages.run())
        try:
            yield Case(server, connection, outages)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(NoAnswer(), id="cut off"),
        pytest.param(Answer(after=5.0), id="no answer in time"),
        pytest.param(failure(500), id="in trouble"),
        pytest.param(failure(503), id="a proxy without server"),
    ],
)
async def test_a_wait_during_an_outage_ends_with_it(
    trouble: Answer | NoAnswer, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    async with case() as at:
        at.server.script("GET", READY, *[failure(503)] * 40, Answer())
        await at.fail(trouble)
        began = now()

        assert await at.outages.pause(300.0)

        assert at.asked[-1] == pytest.approx(now(), abs=0.01)
        assert now() - began == pytest.approx(40 * ASK_SECONDS, abs=0.1)
        assert not at.outages.is_away
        assert [record.message for record in caplog.records] == ["API server is away", "API server is back"]


async def test_a_long_outage_is_logged_twice_a_minute(caplog: pytest.LogCaptureFixture):
    async with case() as at:
        at.server.script("GET", READY, *[failure(503)] * 150, Answer())
        await at.fail(failure(503))

        await at.outages.pause(300.0)

        assert [vars(record)["away_seconds"] for record in caplog.records] == [0.0, 30.0, 60.0]


@pytest.mark.parametrize(
    "trouble", [pytest.param(NoAnswer(), id="cut off"), pytest.param(failure(500), id="an error")]
)
async def test_a_failure_of_a_healthy_server_is_no_outage(
    trouble: Answer | NoAnswer, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    async with case() as at:
        at.server.script("GET", READY, Answer())
        await at.fail(trouble)

        assert not await at.outages.pause(10.0)

        assert len(at.asked) == 1
        assert not caplog.records


@pytest.mark.parametrize("status", [200, 404, 409, 410, 429])
async def test_a_response_is_no_failure(status: int):
    async with case() as at:
        await at.fail(Answer(status))
        await asyncio.sleep(5.0)

        assert not at.asked


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_server_without_a_readiness_page_is_healthy(status: int):
    async with case() as at:
        at.server.script("GET", READY, failure(503), failure(status))
        await at.fail(NoAnswer())

        assert await at.outages.pause(10.0)
        assert len(at.asked) == 2


async def test_the_check_uses_a_new_connection_and_closes_the_kept_ones():
    async with case() as at:
        at.server.script("GET", "/x", Answer(), Answer())
        await at.connection.send(Request("GET", "/x"))
        kept = at.connection._pool.take()
        assert kept is not None
        at.connection._pool.give_back(kept)
        at.server.script("GET", READY, failure(503), Answer())
        at.connection.in_trouble()

        assert await at.outages.pause(10.0)

        assert not kept.is_open


async def test_streams_that_were_silent_during_an_outage_are_closed():
    async with case() as at:
        at.server.script("GET", "/silent", Stream([b"one\n"]))
        at.server.script("GET", "/lively", Stream([b"one\n", *[2.0, b"another\n"] * 30]))

        async def follow(path: str) -> None:
            async for _ in at.connection.stream(Request("GET", path), silence_seconds=300.0):
                pass

        silent, lively = asyncio.create_task(follow("/silent")), asyncio.create_task(follow("/lively"))
        await asyncio.sleep(5.0)
        at.server.script("GET", READY, *[failure(503)] * 20, Answer())
        at.connection.in_trouble()
        assert await at.outages.pause(60.0)
        await asyncio.sleep(1.0)

        assert isinstance(silent.exception(), ApiError)
        assert not lively.done()
        lively.cancel()


async def test_a_server_that_is_silent_for_long_is_checked():
    async with case() as at:
        at.server.script("GET", "/w", Stream([b"one\n", 60.0, b"two\n"]))

        async def follow() -> None:
            async for _ in at.connection.stream(Request("GET", "/w"), silence_seconds=300.0):
                pass

        following = asyncio.create_task(follow())
        at.server.script("GET", READY, Answer())  # later requests hang
        await asyncio.sleep(SILENCE_SECONDS + 1.0)
        assert len(at.asked) == 1
        assert not at.outages.is_away
        await asyncio.sleep(SILENCE_SECONDS + 3.0)
        assert at.outages.is_away
        following.cancel()


async def test_without_streams_silence_is_ignored():
    async with case() as at:
        await asyncio.sleep(600.0)

        assert not at.asked


async def test_listeners_are_notified_at_the_end_of_an_outage():
    async with case() as at:
        reported: list[float] = []
        at.outages.when_over(lambda: reported.append(now()))
        for _ in range(2):
            at.server.script("GET", READY, failure(503), Answer())
            at.connection.in_trouble()
            await asyncio.sleep(10.0)

        assert len(reported) == 2


async def test_checks_of_a_healthy_server_are_bounded_for_any_failures():
    async with case() as at:
        at.server.script("GET", READY, *[Answer()] * 100)
        for _ in range(1000):
            at.connection.in_trouble()
            await asyncio.sleep(0.01)

        assert len(at.asked) <= 21


async def test_a_kept_connection_proves_nothing_and_another_is_opened():
    async with case() as at:
        at.server.script("GET", "/x", Answer())
        await at.connection.send(Request("GET", "/x"))
        at.server.script("GET", READY, Answer())
        at.connection.in_trouble()
        await asyncio.sleep(1.0)

        assert len(at.asked) == 1
        assert len(at.connection._pool._idle) == 2


async def test_an_interrupted_stream_starts_a_check():
    async with case() as at:
        at.server.script("GET", "/w", Stream([b"one\n"], "cut"))
        with suppress(ApiError):
            async for _ in at.connection.stream(Request("GET", "/w"), silence_seconds=300.0):
                pass
        await asyncio.sleep(1.0)

        assert len(at.asked) == 1
