from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.requests import REFUSAL_SECONDS, StartupRequests, StoppedError
from scheduler.kube.http.request import Request, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ASKED = Request("GET", "/x")


class Server:
    """Answers with a status for some seconds of the loop's time, then with success; 0 is no answer, -1 is silence."""

    def __init__(self, status: int, seconds: float) -> None:
        self.status = status
        self.seconds = seconds
        self.asked = 0

    async def send(self, request: Request) -> Response:
        self.asked += 1
        if asyncio.get_running_loop().time() >= self.seconds:
            return Response(200, b"{}")
        if self.status < 0:
            await asyncio.Event().wait()
        raise ApiError(self.status, "", f"{request}: {self.status}")


@pytest.mark.parametrize("status", [0, 429, 500, 502, 503])
async def test_an_unreachable_server_is_awaited_and_logged_periodically(
    status: int, caplog: pytest.LogCaptureFixture
):
    server = Server(status, 95.0)
    meanwhile: list[str] = []

    @asynccontextmanager
    async def showing() -> AsyncIterator[None]:
        meanwhile.append("begins")
        yield
        meanwhile.append("ends")

    with caplog.at_level(logging.WARNING):
        answer = await StartupRequests(server, asyncio.Event(), meanwhile=showing).send(ASKED)

    assert answer.status == 200
    assert 95.0 <= asyncio.get_running_loop().time() <= 97.0
    assert [record.message for record in caplog.records] == ["Waiting for the API server"] * 4
    assert meanwhile == ["begins", "ends"]


async def test_a_reachable_server_is_not_awaited():
    server = Server(0, 0.0)
    await StartupRequests(server, asyncio.Event()).send(ASKED)
    assert server.asked == 1
    assert asyncio.get_running_loop().time() == 0.0


async def test_a_request_without_a_response_is_retried():
    silent_first = Server(0, 2.0)
    requests = StartupRequests(silent_first, asyncio.Event())
    silent_first.status = 0
    asyncio.get_running_loop().call_later(0.5, setattr, silent_first, "status", -1)
    await requests.send(ASKED)
    assert asyncio.get_running_loop().time() <= 8.0


@pytest.mark.parametrize("status", [401, 403])
async def test_a_lasting_refusal_is_accepted(status: int):
    await StartupRequests(Server(status, 5.0), asyncio.Event()).send(ASKED)
    assert asyncio.get_running_loop().time() <= 6.0

    with pytest.raises(ApiError):
        await StartupRequests(Server(status, 500.0), asyncio.Event()).send(ASKED)
    assert REFUSAL_SECONDS <= asyncio.get_running_loop().time() - 5.0 <= REFUSAL_SECONDS + 2.0


async def test_a_refusal_of_a_server_that_just_returned_is_not_accepted_at_once():
    server = Server(0, 70.0)
    asyncio.get_running_loop().call_later(65.0, setattr, server, "status", 403)
    answer = await StartupRequests(server, asyncio.Event()).send(ASKED)
    assert answer.status == 200


@pytest.mark.parametrize("status", [400, 404, 410, 422])
async def test_a_final_refusal_is_not_retried(status: int):
    server = Server(status, 500.0)
    with pytest.raises(ApiError):
        await StartupRequests(server, asyncio.Event()).send(ASKED)
    assert server.asked == 1


async def test_a_stop_ends_the_wait():
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(3.0, stop.set)
    with pytest.raises(StoppedError):
        await StartupRequests(Server(0, 500.0), stop).send(ASKED)
    assert asyncio.get_running_loop().time() == 3.0
