"""Every request is told to the observer, once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from scheduler.client.connection import ApiConnection
from scheduler.client.http.endpoint import Endpoint
from scheduler.client.http.request import Request
from scheduler.errors import ApiError
from tests.unit.client.scripted_server import Answer, NoAnswer, Stream, failure, scripted_server
from tests.virtually import virtually

if TYPE_CHECKING:
    from tests.unit.client.scripted_server import Step

PODS = "/api/v1/pods"


class Told:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int, bool]] = []  # host, method, status, whether it was timed

    def requested(self, host: str, method: str, status: int, seconds: float | None) -> None:
        assert seconds is None or seconds >= 0
        self.requests.append((host, method, status, seconds is not None))


@pytest.mark.parametrize(
    ("step", "status"),
    [
        pytest.param(Answer(201), 201, id="an answer"),
        pytest.param(failure(409, "Conflict"), 409, id="a refusal"),
        pytest.param(NoAnswer(), 0, id="no answer"),
        pytest.param(Answer(after=60.0), 0, id="an answer that comes too late"),
    ],
)
@virtually
async def test_a_request_is_told_with_its_status_and_time(step: Step, status: int) -> None:
    async with scripted_server() as server, server.connection() as connection:
        connection.observer = told = Told()
        server.script("POST", PODS, step)
        with suppress(ApiError):
            await connection.send(Request("POST", PODS, b"{}"))

        assert told.requests == [("localhost", "POST", status, True)]


@pytest.mark.parametrize(
    ("step", "status"),
    [
        pytest.param(Stream([{"n": 1}, {"n": 2}], "close"), 200, id="one that ends in order"),
        pytest.param(Stream([{"n": 1}], "cut"), 200, id="one that is cut off"),
        pytest.param(failure(410, "Expired"), 410, id="one that is refused"),
        pytest.param(NoAnswer(), 0, id="one without an answer"),
    ],
)
@virtually
async def test_a_watch_is_told_when_it_begins_and_not_timed(step: Step, status: int) -> None:
    async with scripted_server() as server, server.connection() as connection:
        connection.observer = told = Told()
        server.script("GET", PODS, step)
        with suppress(ApiError):
            async for _ in connection.stream(Request("GET", PODS), silence_seconds=5):
                pass

        assert told.requests == [("localhost", "GET", status, False)]


@virtually
async def test_what_was_never_sent_is_not_told() -> None:
    def no_more() -> None:
        raise RuntimeError

    async with scripted_server() as server, server.connection() as connection:
        connection.observer = told = Told()
        with pytest.raises(RuntimeError):
            await connection.send(Request("POST", PODS), before_sending=no_more)

        assert told.requests == []


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("https://10.0.0.1:6443", "10.0.0.1:6443"),
        ("https://api.example/clusters/c1", "api.example"),
        ("https://api.example:443", "api.example"),
        ("https://[fd00::1]:6443/", "[fd00::1]:6443"),
    ],
)
@virtually
async def test_the_host_is_named_with_its_port(server: str, host: str) -> None:
    async with ApiConnection(Endpoint(server)) as connection:
        assert connection._host == host
