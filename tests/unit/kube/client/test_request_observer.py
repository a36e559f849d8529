"""The observer is notified of every request once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.request import Request
from tests.unit.kube.client.scripted_server import Answer, NoAnswer, Stream, failure, scripted_server

if TYPE_CHECKING:
    from tests.unit.kube.client.scripted_server import Step

PODS = "/api/v1/pods"


class Told:
    """Records hosts and statuses, the bytes sent and received, and watches."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int]] = []
        self.bytes: list[tuple[int, int | None]] = []
        self.limited: list[float] = []
        self.watches: list[tuple[str, str, int]] = []

    def requested(
        self, host: str, request: Request, status: int, seconds: float, received: int | None
    ) -> None:
        assert seconds >= 0
        self.requests.append((host, request.method, status))
        self.bytes.append((len(request.body or b""), received))
        self.limited.append(request.limited_seconds)

    def watched(self, host: str, method: str, status: int) -> None:
        self.watches.append((host, method, status))


@pytest.mark.parametrize(
    ("step", "status", "received"),
    [
        pytest.param(Answer(201, b"x" * 70), 201, 70, id="an answer"),
        pytest.param(Answer(204, b""), 204, 0, id="an empty one"),
        pytest.param(Answer(409, b"not so"), 409, 6, id="a refusal"),
        pytest.param(NoAnswer(), 0, None, id="no answer"),
        pytest.param(Answer(after=60.0), 0, None, id="a late answer"),
    ],
)
async def test_a_request_is_observed_with_its_status_and_sizes(
    step: Step, status: int, received: int | None
) -> None:
    async with scripted_server() as server, server.connection() as connection:
        connection.observer = reported = Told()
        server.script("POST", PODS, step)
        with suppress(ApiError):
            await connection.send(Request("POST", PODS, b"{}"))

        assert reported.requests == [("localhost", "POST", status)]
        assert reported.bytes == [(2, received)]
        assert reported.watches == []


async def test_the_delay_is_observed_with_the_request() -> None:
    async with scripted_server() as server, server.connection() as connection:
        connection.observer = reported = Told()
        server.script("GET", PODS, Answer(), Answer())
        await connection.send(Request("GET", PODS))
        await connection.send(Request("GET", PODS).held_back(0.5).held_back(1.0))

        assert reported.limited == [0.0, 1.5]
        assert reported.bytes == [(0, 2), (0, 2)]


@pytest.mark.parametrize(
    ("step", "status"),
    [
        pytest.param(Stream([{"n": 1}, {"n": 2}], "close"), 200, id="one that ends in order"),
        pytest.param(Stream([{"n": 1}], "cut"), 200, id="one that is cut off"),
        pytest.param(failure(410, "Expired"), 410, id="one that is refused"),
        pytest.param(NoAnswer(), 0, id="one without an answer"),
    ],
)
async def test_a_watch_is_observed_at_its_start_and_neither_timed_nor_measured(
    step: Step, status: int
) -> None:
    async with scripted_server() as server, server.connection() as connection:
        connection.observer = reported = Told()
        server.script("GET", PODS, step)
        with suppress(ApiError):
            async for _ in connection.stream(Request("GET", PODS), silence_seconds=5):
                pass

        assert reported.watches == [("localhost", "GET", status)]
        assert reported.requests == []


async def test_an_unsent_request_is_not_observed() -> None:
    def no_more() -> None:
        raise RuntimeError

    async with scripted_server() as server, server.connection() as connection:
        connection.observer = reported = Told()
        with pytest.raises(RuntimeError):
            await connection.send(Request("POST", PODS), before_sending=no_more)

        assert reported.requests == []


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("https://10.0.0.1:6443", "10.0.0.1:6443"),
        ("https://api.example/clusters/c1", "api.example"),
        ("https://api.example:443", "api.example"),
        ("https://[fd00::1]:6443/", "[fd00::1]:6443"),
    ],
)
async def test_the_host_is_named_with_its_port(server: str, host: str) -> None:
    async with ApiConnection(Endpoint(server)) as connection:
        assert connection._host == host
