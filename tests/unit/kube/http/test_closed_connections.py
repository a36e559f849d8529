"""A closed connection is freed at once: garbage collection may be hours away, and TLS has large buffers."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.errors import ApiError
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.pool import ConnectionPool
from scheduler.kube.http.request import Request
from tests.unit.kube.http.raw_server import OK, Visit, raw_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from scheduler.kube.http.protocol import HttpProtocol

WATCH = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def keep_open(visit: Visit) -> None:
    while True:
        await visit.request()
        visit.say(OK)


async def close_after_an_answer(visit: Visit) -> None:
    await visit.request()
    visit.say(OK)


async def close_without_an_answer(visit: Visit) -> None:
    await visit.request()


async def break_off_a_watch(visit: Visit) -> None:
    await visit.request()
    visit.say(WATCH, b"5\r\n")


async def say_what_is_no_http(visit: Visit) -> None:
    await visit.request()
    visit.say(b"nonsense\r\n\r\n")


async def ask(connection: ApiConnection) -> None:
    await connection.send(Request("POST", "/a", b"{}"))


async def watch(connection: ApiConnection) -> None:
    async with aclosing(connection.stream(Request("GET", "/a"), silence_seconds=5.0)) as batches:
        async for _ in batches:
            pass


@contextmanager
def without_looking_for_garbage() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("do", [ask, watch])
@pytest.mark.parametrize(
    "serve",
    [keep_open, close_after_an_answer, close_without_an_answer, break_off_a_watch, say_what_is_no_http],
)
async def test_a_closed_connection_is_garbage_collected(
    serve: Callable[[Visit], Awaitable[None]],
    do: Callable[[ApiConnection], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[weakref.ref[HttpProtocol]] = []
    open_one = ConnectionPool._connected

    async def opening(pool: ConnectionPool, *arguments: Any) -> HttpProtocol:
        connection = await open_one(pool, *arguments)
        opened.append(weakref.ref(connection))
        return connection

    monkeypatch.setattr(ConnectionPool, "_connected", opening)
    with without_looking_for_garbage():
        async with raw_server(serve) as server, ApiConnection(server.endpoint) as connection:
            with suppress(ApiError):
                await do(connection)
            await asyncio.sleep(60.0)

            assert opened
            assert [one() for one in opened] == [None] * len(opened)
