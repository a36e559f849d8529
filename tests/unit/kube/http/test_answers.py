"""Answers of any form, split in any way, are read exactly to their end."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.connection import CONNECTION_LOST, ApiConnection
from scheduler.kube.http.request import Request
from tests.support.errors import raises
from tests.unit.kube.http.raw_server import OK, Visit, raw_server

GET = Request("GET", "/a")
POST = Request("POST", "/a", b"{}")

SHAPES = {
    "with its length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "after a word that it goes on": b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("answer", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("size", [1, 7, 1000], ids=["byte by byte", "in pieces", "at once"])
async def test_a_response_is_complete_in_any_pieces(answer: bytes, size: int):
    async def serve(visit: Visit) -> None:
        while True:
            await visit.request()
            for start in range(0, len(answer), size):
                visit.say(answer[start : start + size])
                await asyncio.sleep(0.01)

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        answers = [await connection.send(POST) for _ in range(3)]

        assert [(each.status, each.body) for each in answers] == [(200, b"hello")] * 3
        assert server.connections == 1


async def test_a_response_without_a_length_ends_with_its_connection():
    async def serve(visit: Visit) -> None:
        await visit.request()
        visit.say(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhel", b"lo")

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        assert (await connection.send(POST)).body == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", id="cut in its body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Enc", id="cut in its head"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="of another protocol"),
    ],
)
@pytest.mark.parametrize("request_", [GET, POST], ids=["GET", "POST"])
async def test_a_partial_response_is_a_lost_connection_and_nothing_is_sent_again(
    answer: bytes, request_: Request
):
    async def serve(visit: Visit) -> None:
        await visit.request()
        visit.say(answer)

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        with raises(ApiError, status=0, reason=CONNECTION_LOST):
            await connection.send(request_)
        assert len(server.requests) == 1


async def test_a_redirect_is_an_error_and_not_followed():
    async def serve(visit: Visit) -> None:
        await visit.request()
        visit.say(b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n")

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        with pytest.raises(ApiError) as caught:
            await connection.send(GET)

        assert (caught.value.status, len(server.requests)) == (302, 1)


async def test_a_stream_without_a_reader_is_not_read_without_limit():
    written = 0

    async def serve(visit: Visit) -> None:
        nonlocal written
        await visit.request()
        visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        line = b"x" * 65_535 + b"\n"
        while written < 1000:
            visit.say(b"10000\r\n", line, b"\r\n")
            await visit.writer.drain()
            written += 1
        visit.say(b"0\r\n\r\n")

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        stream = connection.stream(GET, silence_seconds=1000.0)
        count = len(await anext(stream))
        await asyncio.sleep(10.0)
        assert written < 100

        count += sum([len(lines) async for lines in stream])
        assert count == 1000


async def test_invalid_characters_of_a_request_line_are_encoded():
    async def serve(visit: Visit) -> None:
        await visit.request()
        visit.say(OK)

    async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
        await connection.send(Request("GET", "/a b\r\nX: ü", params={"q": "1 2"}))

        assert server.requests[0].startswith(
            b"GET /a%20b%0D%0AX:%20%C3%BC?q=1+2 HTTP/1.1\r\nHost: localhost\r\n"
        )
