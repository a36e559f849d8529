"""Connections are reused for later requests, and only if they are usable."""

from __future__ import annotations

import asyncio
import json

import pytest

from scheduler.errors import ApiError, NotLeadingError
from scheduler.kube.client.connection import CONNECTION_LOST, NOT_CONNECTED, ApiConnection
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.pool import CONNECT_SECONDS, IDLE_SECONDS
from scheduler.kube.http.protocol import HttpProtocol
from scheduler.kube.http.request import Request
from tests.support.errors import raises
from tests.unit.kube.client.scripted_server import Answer, scripted_server
from tests.unit.kube.http.raw_server import OK, Visit, always_ok, raw_server

GET = Request("GET", "/a")
POST = Request("POST", "/a", b"{}")


async def test_as_many_connections_as_concurrent_requests_are_kept():
    async with raw_server(always_ok) as server, ApiConnection(server.endpoint) as connection:
        for _ in range(5):
            await asyncio.gather(*(connection.send(POST) for _ in range(3)))

        assert (len(server.requests), server.connections) == (15, 3)


async def test_a_connection_that_was_idle_for_long_is_not_reused():
    async with raw_server(always_ok) as server, ApiConnection(server.endpoint) as connection:
        await connection.send(POST)
        await asyncio.sleep(IDLE_SECONDS - 1.0)
        await connection.send(POST)
        assert server.connections == 1
        await asyncio.sleep(IDLE_SECONDS + 1.0)
        await connection.send(POST)

        assert server.connections == 2


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(b"", id="closes it"),
        pytest.param(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", id="a request timeout"),
    ],
)
async def test_a_connection_closed_by_the_server_is_not_reused(then: bytes):
    async def serve(visit: Visit) -> None:
        await visit.request()
        visit.say(OK)
        await asyncio.sleep(1.0)
        if then:
            visit.say(then)
            await visit.request()  # no answer would ever follow

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        await connection.send(POST)
        await asyncio.sleep(2.0)

        assert (await connection.send(POST)).status == 200
        assert server.connections == 2


async def test_a_connection_that_the_server_will_close_is_not_reused():
    async def serve(visit: Visit) -> None:
        await visit.request()
        visit.say(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        await asyncio.sleep(5.0)

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        await connection.send(POST)
        await connection.send(POST)

        assert server.connections == 2


async def test_a_cancelled_request_closes_its_connection():
    async def serve(visit: Visit) -> None:
        answers = iter((b"slow", b"fast"))
        while True:
            await visit.request()
            if server.connections == 1:
                await asyncio.sleep(5.0)
            visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", next(answers))

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        asking = asyncio.create_task(connection.send(GET))
        await asyncio.sleep(1.0)
        asking.cancel()
        await asyncio.wait({asking})
        await connection.send(GET)
        answer = await connection.send(GET)
        await asyncio.sleep(10.0)

        assert (answer.body, server.connections) == (b"fast", 2)


@pytest.mark.parametrize(
    ("method", "times"), [("GET", 2), ("PUT", 2), ("DELETE", 2), ("POST", 1), ("PATCH", 1)]
)
async def test_an_idempotent_request_without_a_response_is_sent_again(method: str, times: int):
    async def serve(visit: Visit) -> None:
        await visit.request()
        if server.connections > 1:
            visit.say(OK)

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        request = Request(method, "/a", b"{}")
        if times == 2:
            assert (await connection.send(request)).status == 200
        else:
            with raises(ApiError, reason=CONNECTION_LOST):
                await connection.send(request)

        assert len(server.requests) == times


async def test_a_request_sent_once_is_not_reported_as_unsent():
    answers = iter([None, None, NotLeadingError("kube-system/custom-scheduler")])

    def check() -> None:
        error = next(answers)
        if error is not None:
            raise error

    async def serve(visit: Visit) -> None:
        await visit.request()

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        with raises(ApiError, status=0, reason=CONNECTION_LOST):
            await connection.send(Request("DELETE", "/a"), before_sending=check)
        assert len(server.requests) == 1


class Nowhere(Endpoint):
    async def connect(self, protocol_factory: object) -> None:  # type: ignore[override]
        await asyncio.sleep(1e6)


async def test_connecting_has_a_timeout():
    async with ApiConnection(Nowhere("http://localhost")) as connection:
        with raises(ApiError, reason=NOT_CONNECTED):
            await connection.send(POST)
        assert asyncio.get_running_loop().time() == pytest.approx(CONNECT_SECONDS)


async def test_connecting_counts_toward_the_time_of_a_request():
    async with ApiConnection(Nowhere("http://localhost")) as connection:
        with pytest.raises(ApiError):
            await connection.send(Request("GET", "/a", timeout_seconds=3.0))

        assert asyncio.get_running_loop().time() == pytest.approx(3.0)


async def test_a_replaced_endpoint_keeps_no_connection_to_the_old_one():
    async def slowly(visit: Visit) -> None:
        while True:
            await visit.request()
            await asyncio.sleep(5.0)
            visit.say(OK)

    async with (
        raw_server(slowly) as old,
        raw_server(always_ok) as new,
        ApiConnection(old.endpoint) as connection,
    ):
        asking = asyncio.create_task(connection.send(POST))
        await asyncio.sleep(1.0)
        connection.replace_endpoint(new.endpoint)

        assert (await asking).status == 200
        await connection.send(POST)
        assert (len(old.requests), len(new.requests)) == (1, 1)


@pytest.mark.parametrize("request_", [GET, POST], ids=["GET", "POST"])
async def test_closing_ends_current_requests_and_starts_no_others(request_: Request):
    async def never(visit: Visit) -> None:
        await visit.request()
        await asyncio.sleep(1e6)

    async with raw_server(never) as server:
        connection = ApiConnection(server.endpoint)
        asking = asyncio.create_task(connection.send(request_))
        await asyncio.sleep(1.0)
        await connection.close()

        with pytest.raises(ApiError):
            await asking
        with pytest.raises(ApiError):
            await connection.send(request_)
        assert len(server.requests) == 1
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)


async def test_a_response_of_a_cancelled_request_is_not_part_of_the_next_one(monkeypatch: pytest.MonkeyPatch):
    complete = HttpProtocol._complete

    def complete_and_cancel(protocol: HttpProtocol) -> None:
        complete(protocol)
        asking.cancel()

    async with scripted_server() as server, server.connection() as connection:
        server.script("GET", "/x", Answer(body={"a": 1}), Answer(body={"b": 2}))
        asking = asyncio.create_task(connection.send(Request("GET", "/x")))
        with monkeypatch.context() as patch:
            patch.setattr(HttpProtocol, "_complete", complete_and_cancel)
            await asyncio.wait({asking})
        assert asking.cancelled()

        answer = await connection.send(Request("GET", "/x"))

        assert json.loads(answer.body) == {"b": 2}
