"""The limits for unknown clients, and that other clients are answered nevertheless."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import uvloop

from scheduler.daemon.server.http_server import Application, serving
from scheduler.daemon.server.tls import tls_context
from scheduler.http_server.listener import Listener
from scheduler.http_server.messages import Page, ServerRequest, ServerResponse
from tests.unit.http_server.test_http_session import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SILENT, HANDSHAKES, STRANGERS, KNOWN = 256, 64, 128, 400
GET = b"GET /path HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = GET[:10]
FLOOD = 300
LARGE, LARGE_BODIES = 100_000, 8


async def path(_: ServerRequest) -> ServerResponse:
    return ServerResponse(b"here\n")


async def known(request: ServerRequest) -> ServerResponse:
    request.is_let_in = True
    return ServerResponse(b"welcome\n")


async def slow(_: ServerRequest) -> ServerResponse:
    await asyncio.sleep(4)
    return ServerResponse(b"at last\n")


async def length(request: ServerRequest) -> ServerResponse:
    return ServerResponse(b"%d\n" % len(await request.read()))


async def large(_: ServerRequest) -> ServerResponse:
    return ServerResponse(b"x" * 50_000_000)


PAGES = [
    Page("/length", length, ("POST",)),
    Page("/path", path),
    Page("/known", known),
    Page("/slow", slow),
    Page("/large", large),
]


class At(NamedTuple):
    """A server.

    Attributes:
        port: port on which it listens.
        connection_rejected: reason -> number of closed connections.
        clients: all clients that were created.
    """

    port: int
    connection_rejected: Counter[str]
    clients: list[Client]

    async def connect(self, said: bytes = b"", tls: ssl.SSLContext | None = None) -> Client:
        """Connect; the given bytes arrive together with the connection."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls))
        client.say(said)
        self.clients.append(client)
        return client

    async def flood(self, said: bytes = b"", times: int = FLOOD) -> list[Client]:
        flood = []
        for _ in range(times):
            flood.append(await self.connect(said))
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        return flood


@asynccontextmanager
async def listener(tls: ssl.SSLContext | None = None) -> AsyncIterator[At]:
    connection_rejected = Counter[str]()
    app = Application(PAGES, None, LARGE, lambda why: connection_rejected.update([why]))
    async with serving(app, "127.0.0.1", 0, tls) as port:
        it = At(port, connection_rejected, [])
        try:
            yield it
        finally:
            for client in it.clients:
                client.writer.transport.abort()
                with suppress(OSError):
                    await client.writer.wait_closed()


def asked_for(page: bytes) -> bytes:
    return GET.replace(b"path", page)


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def left_of(clients: list[Client]) -> list[bool]:
    """Return which connections are still open."""
    await asyncio.sleep(0.1)
    return [not client.reader.at_eof() for client in clients]


@pytest.mark.parametrize(
    ("said", "bound"),
    [
        pytest.param(b"", SILENT, id="silent ones"),
        pytest.param(HALF, STRANGERS, id="ones with half a request"),
    ],
)
async def test_connections_over_the_limit_replace_the_oldest(said: bytes, bound: int) -> None:
    async with listener() as it:
        flood = await it.flood(said)
        client = await it.connect(GET)

        assert await client.answer() == (200, b"here\n")
        left = await left_of(flood)
        assert not any(left[: FLOOD - bound])
        assert sum(left) in {bound, bound - 1}
        assert it.connection_rejected == {"crowded": FLOOD - sum(left)}


async def test_idle_connections_are_closed_in_the_order_in_which_they_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: dict[str, list[object]] = {"_on_first_byte": [], "_close": []}

    def noted(name: str) -> Callable[..., None]:
        real = getattr(Listener, name)

        def note(self: Listener, connection: object) -> None:
            order[name].append(connection)
            real(self, connection)

        return note

    for name in order:
        monkeypatch.setattr(Listener, name, noted(name))
    async with serving(Application(PAGES, None, LARGE, lambda _: None), "127.0.0.1", 0, None) as port:
        it = At(port, Counter(), [])
        for _ in range(20):
            client = await it.connect(asked_for(b"known"))
            await client.reader.readuntil(b"welcome\n")
    for client in it.clients:
        client.writer.transport.abort()

    assert len(order["_close"]) == 20
    assert order["_close"] == order["_on_first_byte"]


async def test_an_idle_connection_of_an_unknown_client_can_be_replaced() -> None:
    async with listener() as it:
        flood = await it.flood(GET)

        for client in flood:
            assert await client.answer() == (200, b"here\n")
        assert sum(await left_of(flood)) == STRANGERS


async def test_an_authenticated_connection_is_not_replaced_by_an_unknown_one() -> None:
    async with listener() as it:
        guests = await it.flood(asked_for(b"known"), times=STRANGERS + 10)
        await it.flood(HALF)

        assert all(await left_of(guests))
        for guest in guests:
            assert await guest.answer() == (200, b"welcome\n")
            guest.say(GET)
            assert await guest.answer() == (200, b"here\n")


async def test_authenticated_connections_are_bounded_too() -> None:
    async with listener() as it:
        guests = await it.flood(asked_for(b"known"), times=KNOWN + 10)

        for guest in guests:
            assert await guest.answer() == (200, b"welcome\n")
        assert sum(await left_of(guests)) == KNOWN


async def test_a_connection_with_a_current_request_is_not_replaced() -> None:
    async with listener() as it:
        client = await it.connect(asked_for(b"slow"))
        await asyncio.sleep(0.1)
        await it.flood()
        await it.flood(HALF)

        assert await client.answer() == (200, b"at last\n")


async def test_rejected_connections_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with listener() as it:
        await it.flood(times=SILENT + 5)
        assert [vars(record)["connections"] for record in caplog.records] == [1]
        await asyncio.sleep(60)
        await it.flood(times=SILENT + 5)

        assert [record.message for record in caplog.records] == [
            "Too many connections wait; the oldest are closed"
        ] * 2
        assert (vars(caplog.records[1])["connections"], vars(caplog.records[1])["most_from"]) == (
            5,
            "127.0.0.1",
        )


async def test_many_requests_at_once_leave_time_for_the_event_loop() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with listener() as it:
        client = await it.connect(asked_for(b"known"))
        await client.answer()  # a known client has no delay
        task = asyncio.create_task(others())
        client.say(*[GET] * 500)
        for _ in range(500):
            await client.answer()
        task.cancel()

    assert turns >= 500


async def test_unknown_clients_get_a_thousand_responses_a_second_in_total() -> None:
    loop = asyncio.get_running_loop()
    async with listener() as it:
        clients = [await it.connect() for _ in range(50)]

        async def ask_on_and_on(client: Client) -> None:
            for _ in range(11):
                client.say(GET)
                await client.answer()

        began = loop.time()
        await asyncio.gather(*map(ask_on_and_on, clients))
        assert loop.time() - began == pytest.approx(0.5, abs=0.05)


async def test_idle_unknown_clients_delay_no_requests() -> None:
    loop = asyncio.get_running_loop()
    async with listener() as it:
        await it.flood(HALF, times=99)
        client = await it.connect()
        began = loop.time()
        for _ in range(10):
            client.say(GET)
            await client.answer()

        assert loop.time() - began < 0.05


async def test_a_silent_connection_needs_only_a_socket() -> None:
    async with tls_context(None) as tls, listener(tls) as it:
        before = len(asyncio.all_tasks())
        await it.flood(times=100)

        assert len(asyncio.all_tasks()) == before


async def test_only_a_few_of_many_handshakes_start_per_turn_of_the_event_loop() -> None:
    begun = []
    async with tls_context(None) as tls, listener(tls) as it:
        for client in await it.flood(times=40):
            client.say(b"\x16")
        for _ in range(100):
            begun.append(sum(task.get_name() == "conversation" for task in asyncio.all_tasks()))
            await asyncio.sleep(0)

    steps = [after - before for before, after in pairwise(begun)]
    assert (begun[-1], max(steps)) == (40, 4)


@pytest.mark.parametrize(
    ("said", "seconds", "why"),
    [
        pytest.param(b"", 32, "late", id="nothing"),
        pytest.param(b"\x16\x03\x01\x02\x00", 10, "late", id="half a handshake"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 0, "no_tls", id="no handshake"),
    ],
)
async def test_a_handshake_has_a_timeout(
    said: bytes, seconds: float, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    async with tls_context(None) as tls, listener(tls) as it:
        began = loop.time()
        client = await it.connect(said)
        with suppress(ConnectionError):
            await client.rest()

        assert loop.time() - began == pytest.approx(seconds, abs=0.5)
        assert it.connection_rejected == {why: 1}
    assert not caplog.records


async def test_a_connection_closed_by_the_client_is_not_counted_as_rejected() -> None:
    async with listener() as it:
        for client in await it.flood(times=20):
            client.writer.close()
        await asyncio.sleep(100)

        assert not it.connection_rejected


async def test_a_client_that_does_not_read_its_response_is_disconnected() -> None:
    async with listener() as it:
        client = await it.connect(asked_for(b"large"))
        await client.reader.readexactly(1)
        await asyncio.sleep(59)
        assert not it.connection_rejected
        await asyncio.sleep(2)

        assert it.connection_rejected == {"late": 1}


async def test_the_number_of_large_bodies_read_at_once_is_bounded() -> None:
    def post(length: int) -> bytes:
        return b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length

    async with listener() as it:
        them = [await it.connect(post(LARGE)) for _ in range(LARGE_BODIES + 1)]
        await asyncio.sleep(1)
        last, small = them[-1], await it.connect(post(1000) + b"x" * 1000)
        assert await small.answer() == (200, b"1000\n")
        last.say(b"x" * LARGE)
        waiting = asyncio.create_task(last.answer())
        await asyncio.sleep(1)
        assert not waiting.done()

        them[0].say(b"x" * LARGE)
        assert await them[0].answer() == (200, b"%d\n" % LARGE)
        assert await waiting == (200, b"%d\n" % LARGE)


class Exhausted(socket.socket):
    """A listening socket without free descriptors."""

    is_exhausted = True
    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.is_exhausted:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_file_descriptors_the_listener_waits(caplog: pytest.LogCaptureFixture) -> None:
    listening = Exhausted(fileno=socket.create_server(("127.0.0.1", 0)).detach())
    listening.setblocking(False)
    port = listening.getsockname()[1]
    app = Application(PAGES, None, 1000)
    it = Listener(listening, app.answer, 1000, None, app.connection_rejected)
    it.open()
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.say(GET)
    await asyncio.sleep(1)
    assert [record.message for record in caplog.records] == ["Cannot accept a connection"]
    assert listening.asked <= 6
    listening.is_exhausted = False

    assert await client.answer() == (200, b"here\n")
    await it.close()
    client.writer.close()
    await client.writer.wait_closed()


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_half_finished_handshakes_leave_nothing_behind(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    half = [socket.socket() for _ in range(3 * HANDSHAKES)]

    async def scenario() -> None:
        async with tls_context(None) as tls:
            before, tasks = descriptors(), len(asyncio.all_tasks())
            async with listener(tls) as it:
                for each in half:
                    each.connect(("127.0.0.1", it.port))
                    each.send(b"\x16\x03\x01\x02\x00")
                    await asyncio.sleep(0)
                for _ in range(STRANGERS + 20):
                    await it.connect(tls=context)
                client = await it.connect(GET, tls=context)
                assert await client.answer() == (200, b"here\n")
                assert it.connection_rejected["crowded"] >= 2 * HANDSHAKES + 20
                assert len(asyncio.all_tasks()) <= tasks + HANDSHAKES + STRANGERS + 10
            for each in half:
                each.close()
            await asyncio.sleep(0.1)
            assert len(asyncio.all_tasks()) == tasks
            assert descriptors() <= before - len(half) + 1

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())
    assert [record.message for record in caplog.records] == [
        "Too many connections wait; the oldest are closed"
    ]
