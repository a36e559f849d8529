from __future__ import annotations

import asyncio
import re

import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.connection import CONNECTION_LOST, NOT_CONNECTED, TIMEOUT, ApiConnection
from scheduler.kube.client.login import Headers
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.request import Request
from tests.support.errors import raises
from tests.unit.kube.client.scripted_server import Answer, NoAnswer, Stream, failure, scripted_server

PODS = "/api/v1/pods"


class Token:
    def __init__(self) -> None:
        self.value = "Bearer one"
        self.was_rejected = False

    def headers(self) -> Headers:
        return (("Authorization", self.value),)

    def rejected(self) -> None:
        self.was_rejected = True


async def lines_of(connection: ApiConnection, *, silence_seconds: float = 60.0) -> list[bytes]:
    request = Request("GET", PODS, params={"watch": "true"})
    return [
        line async for lines in connection.stream(request, silence_seconds=silence_seconds) for line in lines
    ]


async def test_a_response_has_a_status_and_bytes():
    async with scripted_server() as server, server.connection() as connection:
        server.script("POST", PODS, Answer(201, b'{"a":1}', {"X-Thing": "y"}))

        answer = await connection.send(Request("POST", PODS, b"{}", params={"dryRun": "All"}))

        assert (answer.status, answer.body) == (201, b'{"a":1}')
        received = server.received[0]
        assert (received.body, received.query) == (b"{}", {"dryRun": "All"})
        assert received.headers["Content-Type"] == "application/json"
        assert re.fullmatch(r"custom-scheduler/\d+\.\d+.*", received.headers["User-Agent"])


async def test_a_refusal_is_an_error_with_the_message_of_the_server():
    async with scripted_server() as server, server.connection() as connection:
        server.script("POST", PODS, failure(429, "TooManyRequests", Retry_After="7"))

        with pytest.raises(ApiError) as caught:
            await connection.send(Request("POST", PODS, b"{}"))

        error = caught.value
        assert (error.status, error.reason, error.retry_after_seconds) == (429, "TooManyRequests", 7.0)
        assert str(error) == "POST /api/v1/pods: 429: so it is"


async def test_a_refusal_by_a_proxy_without_a_status_is_still_an_error():
    async with scripted_server() as server, server.connection() as connection:
        server.script("GET", PODS, Answer(502, b"<html>Bad gateway</html>", {"Retry-After": "tomorrow"}))

        with pytest.raises(ApiError) as caught:
            await connection.send(Request("GET", PODS))

        assert (caught.value.status, caught.value.retry_after_seconds) == (502, None)
        assert "<html>Bad gateway</html>" in str(caught.value)


async def test_no_listener_means_the_request_was_never_sent():
    async with ApiConnection(Endpoint("http://localhost", unix_socket="/nowhere/s")) as connection:
        with pytest.raises(ApiError) as caught:
            await connection.send(Request("POST", PODS, b"{}"))

    assert (caught.value.status, caught.value.reason) == (0, NOT_CONNECTED)


async def test_a_lost_response_is_an_error_without_status_and_is_not_sent_again():
    async with scripted_server() as server, server.connection() as connection:
        server.script("POST", PODS, NoAnswer(), Answer(201))

        with raises(ApiError, status=0, reason=CONNECTION_LOST):
            await connection.send(Request("POST", PODS, b"{}"))
        assert len(server.received) == 1


async def test_a_slow_response_times_out():
    async with scripted_server() as server, server.connection() as connection:
        server.script("POST", PODS, Answer(201, after=100.0))

        with raises(ApiError, status=0, reason=TIMEOUT):
            await connection.send(Request("POST", PODS, b"{}", timeout_seconds=4.0))
        assert asyncio.get_running_loop().time() == pytest.approx(4.0)


async def test_every_request_has_the_current_token():
    token = Token()
    async with scripted_server() as server, server.connection(authorization=token) as connection:
        server.script("GET", PODS, Answer(), failure(401, "Unauthorized"))

        await connection.send(Request("GET", PODS))
        token.value = "Bearer two"
        with pytest.raises(ApiError, match="401"):
            await connection.send(Request("GET", PODS))

        assert [each.headers["Authorization"] for each in server.received] == ["Bearer one", "Bearer two"]
        assert token.was_rejected


async def test_new_requests_use_a_replaced_endpoint_while_old_streams_continue():
    async with scripted_server() as first, scripted_server() as second, first.connection() as connection:
        first.script("GET", PODS, Stream([{"n": 1}, 5.0, {"n": 2}], then="close"))
        second.script("GET", PODS, Answer(200, b"second"))
        old = asyncio.create_task(lines_of(connection))
        await asyncio.sleep(1.0)

        connection.replace_endpoint(second.endpoint)
        answer = await connection.send(Request("GET", PODS))

        assert answer.body == b"second"
        assert await old == [b'{"n": 1}', b'{"n": 2}']


async def test_lines_of_any_length_and_in_any_pieces_are_complete():
    long = b"x" * 3_000_000
    async with scripted_server() as server, server.connection() as connection:
        server.script("GET", PODS, Stream([b"a\nbc", 0.1, b"d\n\ne\n", long, b"\n", b"tail"], then="close"))

        assert await lines_of(connection) == [b"a", b"bcd", b"e", long, b"tail"]


async def test_a_silent_stream_times_out():
    async with scripted_server() as server, server.connection() as connection:
        server.script("GET", PODS, Stream([b"a\n", 20.0, b"b\n"]))

        with raises(ApiError, status=0, reason=TIMEOUT):
            await lines_of(connection, silence_seconds=30.0)
        assert asyncio.get_running_loop().time() == pytest.approx(50.0, abs=1.0)


async def test_an_interrupted_stream_is_a_lost_connection():
    async with scripted_server() as server, server.connection() as connection:
        server.script("GET", PODS, Stream([b"a\nb"], then="cut"))

        with raises(ApiError, status=0, reason=CONNECTION_LOST):
            await lines_of(connection)


async def test_a_refused_stream_is_an_error_with_the_status():
    async with scripted_server() as server, server.connection() as connection:
        server.script("GET", PODS, failure(410, "Expired"))

        with raises(ApiError, status=410, reason="Expired"):
            await lines_of(connection)


async def test_long_lines_come_in_small_batches():
    async with scripted_server() as server, server.connection() as connection:
        lines = [b"x" * 50_000 + b"\n"] * 60
        server.script("GET", PODS, Stream([b"".join(lines)], then="close"))
        stream = connection.stream(Request("GET", PODS), silence_seconds=60.0)

        batches = [batch async for batch in stream]

        assert sum(map(len, batches)) == 60
        assert max(sum(map(len, batch)) for batch in batches) < 150_000


async def test_a_watch_interval_passes_between_reads_and_delays_no_event_after_a_longer_silence():
    async with scripted_server() as server, server.connection() as connection:
        connection.watch_interval = 1.0
        server.script("GET", PODS, Stream([5.0, b"a\n", 0.4, b"b\n", 0.4, b"c\n", 3.2, b"d\n"], then="close"))
        stream = connection.stream(Request("GET", PODS), silence_seconds=60.0)
        loop = asyncio.get_running_loop()

        batches = [(round(loop.time(), 1), batch) async for batch in stream if batch]

        assert batches == [(5.0, [b"a"]), (6.0, [b"b", b"c"]), (9.0, [b"d"])]


async def test_other_tasks_run_during_a_flood_of_lines():
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with scripted_server() as server, server.connection() as connection:
        server.script("GET", PODS, Stream([b"x\n" * 10_000], then="close"))
        stream = connection.stream(Request("GET", PODS), silence_seconds=60.0)
        first = await anext(stream)
        task = asyncio.create_task(take_turns())
        turns_before = turns

        count = len(first) + sum([len(lines) async for lines in stream])

        task.cancel()
        assert count == 10_000
        assert turns - turns_before >= 90
