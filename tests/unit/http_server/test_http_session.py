"""The messages of one connection, byte by byte."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.server.http_server import Application, serving
from scheduler.http_server.messages import Page, ServerRequest, ServerResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

LONGEST_BODY = 1000
TOO_LONG = f"414 {HTTPStatus.REQUEST_URI_TOO_LONG.phrase}".encode()  # the text depends on Python's version
GET = b"GET /path HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def path(request: ServerRequest) -> ServerResponse:
    return ServerResponse(f"{request.path} {dict(request.query)}\n".encode())


async def length(request: ServerRequest) -> ServerResponse:
    return ServerResponse(b"%d\n" % len(await request.read()))


async def unread(_: ServerRequest) -> ServerResponse:
    return ServerResponse(b"unread\n")


TURNS: list[int] = []
"""The iteration of the loop in which each piece of /turns was requested."""


async def turns(_: ServerRequest) -> ServerResponse:
    loop, turn = asyncio.get_running_loop(), 0

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    def in_pieces() -> Iterator[bytes]:
        for _ in range(5):
            TURNS.append(turn)
            loop.call_soon(next_turn)
            yield b"piece"

    return ServerResponse(in_pieces())


async def pieces(_: ServerRequest) -> ServerResponse:
    return ServerResponse(iter([b"first,", b"", b"second"]))


async def half(_: ServerRequest) -> ServerResponse:
    def body() -> Iterator[bytes]:
        yield b"first,"
        raise ValueError("the second is missing")

    return ServerResponse(body())


LEFT: list[str] = []


async def endless(_: ServerRequest) -> ServerResponse:
    async def body() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(1)
        finally:
            LEFT.append("left")

    return ServerResponse(body())


async def idle(_: ServerRequest) -> ServerResponse:
    async def body() -> AsyncGenerator[bytes, None]:
        yield b"tick"
        try:
            await asyncio.Event().wait()
        finally:
            LEFT.append("left")

    return ServerResponse(body())


async def switching(_: ServerRequest) -> ServerResponse:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line.upper())
                if line == b"end\n":
                    return
        finally:
            LEFT.append("left")

    return ServerResponse(conversation, 101, headers={"Upgrade": "shout"})


async def waiting(request: ServerRequest) -> ServerResponse:
    await asyncio.sleep(4)
    LEFT.append("left" if request.has_left() else "there")
    return ServerResponse(b"at last\n")


async def several(request: ServerRequest) -> ServerResponse:
    found = f"{request.headers['x']} {request.header_values['x']}\n"
    return ServerResponse(found.encode(), headers={"Date": "today"})


async def broken(_: ServerRequest) -> ServerResponse:
    raise ValueError("a mistake")


async def slow(_: ServerRequest) -> ServerResponse:
    await asyncio.sleep(4)
    return ServerResponse(b"at last\n")


async def hanging(_: ServerRequest) -> ServerResponse:
    await asyncio.Event().wait()
    raise AssertionError


PAGES = [
    Page("/path", path),
    Page("/length", length, ("POST",)),
    Page("/unread", unread, ()),
    Page("/pieces", pieces),
    Page("/turns", turns),
    Page("/half", half),
    Page("/endless", endless),
    Page("/idle", idle),
    Page("/switching", switching),
    Page("/waiting", waiting),
    Page("/several", several),
    Page("/broken", broken),
    Page("/slow", slow),
    Page("/hanging", hanging),
    Page("/{one}/of/{many}", path),
]


class Client:
    """One connection whose bytes the test writes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, *said: bytes) -> None:
        self.writer.write(b"".join(said))

    async def answer(self) -> tuple[int, bytes]:
        """Read a response of known length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Read until the server closes."""
        return await self.reader.read()


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    app = Application(PAGES, None, LONGEST_BODY)
    async with serving(app, "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()


async def test_an_idle_connection_is_kept_for_a_long_time() -> None:
    async with client() as it:
        for _ in range(3):
            it.say(GET)
            assert await it.answer() == (200, b"/path {}\n")
            await asyncio.sleep(3000)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with client() as it:
        it.say(GET.replace(b"/path", b"/path?n=1"), GET.replace(b"/path", b"/path?n=2"))

        assert await it.answer() == (200, b"/path {'n': ['1']}\n")
        assert await it.answer() == (200, b"/path {'n': ['2']}\n")


async def test_a_request_may_arrive_in_any_pieces() -> None:
    async with client() as it:
        for number in range(len(GET)):
            it.say(GET[number : number + 1])
            await asyncio.sleep(0.1)

        assert await it.answer() == (200, b"/path {}\n")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(LAST, id="if the client requests it"),
        pytest.param(b"GET /path HTTP/1.0\r\n\r\n", id="in HTTP/1.0"),
        pytest.param(b"GET /path HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", id="also if kept for a while"),
        pytest.param(
            b"GET /path HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            id="if the client requests another protocol",
        ),
    ],
)
async def test_a_connection_ends_with_the_response(head: bytes) -> None:
    async with client() as it:
        it.say(head)

        reported = await it.rest()

    assert reported.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in reported
    assert reported.endswith(b"\r\n\r\n/path {}\n")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        pytest.param(b"nonsense\r\n\r\n", b"400 Bad Request", id="no HTTP"),
        pytest.param(GET.replace(b"Host: x", b"Content-Length: few"), b"400 Bad Request", id="no length"),
        pytest.param(GET.replace(b"Host: x", b"Content-Length: -1"), b"400 Bad Request", id="a negative length"),
        pytest.param(
            b"GET /path HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
            b"431 Request Header Fields Too Large",
            id="more headers than are read",
        ),
        pytest.param(
            GET.replace(b"path", b"path?" + b"%zz" * 700), TOO_LONG, id="a path that is too long"
        ),
        pytest.param(GET.replace(b"path", b"path?" + b"a&" * 32), b"400 Bad Request", id="too many parameters"),
        pytest.param(
            b"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            b"411 Length Required",
            id="a compressed body",
        ),
        pytest.param(
            b"POST /length HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            b"400 Bad Request",
            id="a body with two lengths",
        ),
    ],
)  # fmt: skip
async def test_a_malformed_request_is_refused_and_ends_the_connection(said: bytes, status: bytes) -> None:
    async with client() as it:
        it.say(said)

        reported = await it.rest()

    assert reported.startswith(b"HTTP/1.1 " + status + b"\r\n")


def post(page: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /%b HTTP/1.1" % page, b"Host: x", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


def chunked(body: bytes, page: bytes = b"length") -> bytes:
    return b"POST /%b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%b" % (page, body)


async def test_a_body_may_arrive_in_chunks() -> None:
    async with client() as it:
        it.say(chunked(b"3;note=x\r\nabc\r\nA\r\n"))
        await asyncio.sleep(1)
        it.say(b"0123456789\r\n0\r\n\r\n", chunked(b"0\r\n\r\n"), GET)

        assert await it.answer() == (200, b"13\n")
        assert await it.answer() == (200, b"0\n")
        assert await it.answer() == (200, b"/path {}\n")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        pytest.param(chunked(b"-1\r\nx\r\n0\r\n\r\n"), b"", id="no size"),
        pytest.param(chunked(b"1_0\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n"), b"", id="a size in the notation of Python"),
        pytest.param(chunked(b"1\r\nxyz0\r\n\r\n"), b"", id="a chunk that is longer than its size"),
        pytest.param(chunked(b"0\r\nX: y\r\n\r\n"), b"", id="trailers"),
        pytest.param(chunked(b"x" * 200_000), b"", id="a size line without an end"),
        pytest.param(chunked(b"3E9\r\n" + b"x" * 1001), b"HTTP/1.1 500 ", id="one that is too long"),
        pytest.param(chunked(b"1\r\nx\r\n0\r\n\r\n", b"unread"), b"HTTP/1.1 200 ", id="one that is not read"),
    ],
)  # fmt: skip
async def test_a_chunked_body_that_cannot_be_read_ends_the_connection(said: bytes, status: bytes) -> None:
    async with client() as it:
        it.say(said, GET)
        reported = b""
        with suppress(ConnectionResetError):  # the server closes without reading all
            reported = await it.rest()

    assert reported[:13] == status
    assert reported.count(b"HTTP/1.1") == bool(status)
    assert reported.count(b"\r\nConnection: close\r\n") == bool(status)


@pytest.mark.parametrize("page", [b"length", b"unread"])
async def test_an_unread_body_does_not_run_into_the_next_request(page: bytes) -> None:
    async with client() as it:
        it.say(post(page, b"y" * 700), GET)

        assert await it.answer() == (200, {b"length": b"700\n", b"unread": b"unread\n"}[page])
        assert await it.answer() == (200, b"/path {}\n")


async def test_a_body_that_is_too_long_is_skipped_and_refused() -> None:
    async with client() as it:
        it.say(post(b"length", b"y" * (LONGEST_BODY + 1)), GET)

        assert await it.answer() == (500, b"500 Internal Server Error\n")
        assert await it.answer() == (200, b"/path {}\n")


async def test_a_client_that_expects_100_continue_gets_it() -> None:
    async with client() as it:
        it.say(post(b"length", b"yy", b"Expect: 100-continue")[:-2])
        assert await it.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        it.say(b"yy")

        assert await it.answer() == (200, b"2\n")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param(b"", 32, id="nothing"),
        pytest.param(GET[:10], 32, id="half a head"),
        pytest.param(post(b"length", b"yyy")[:-1], 60, id="half a body"),
        pytest.param(post(b"unread", b"yyy")[:-1], 10, id="half an unread body"),
    ],
)
async def test_all_waits_for_a_client_are_bounded(said: bytes, seconds: float) -> None:
    async with client() as it:
        it.say(said)
        began = asyncio.get_running_loop().time()

        await it.rest()

        assert asyncio.get_running_loop().time() - began == pytest.approx(seconds, abs=1)


async def test_a_client_that_disconnects_in_the_middle_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client() as it:
        it.say(post(b"length", b"yyy")[:-1])
        await asyncio.sleep(1)
        it.writer.close()
        await asyncio.sleep(1)

    assert not caplog.records


async def test_a_chunked_response_has_an_end() -> None:
    async with client() as it:
        it.say(GET.replace(b"/path", b"/pieces"), LAST)

        reported = await it.rest()

    assert b"\r\n\r\n6\r\nfirst,\r\n6\r\nsecond\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n" in reported


async def test_a_client_without_chunked_encoding_gets_the_whole_response() -> None:
    async with client() as it:
        it.say(b"GET /pieces HTTP/1.0\r\n\r\n")

        reported = await it.rest()

    assert b"\r\nContent-Length: 12\r\n" in reported
    assert reported.endswith(b"\r\n\r\nfirst,second")


async def test_the_event_loop_continues_while_a_response_is_collected() -> None:
    TURNS.clear()
    async with client() as it:
        it.say(GET.replace(b"GET /path HTTP/1.1", b"GET /turns HTTP/1.0"))

        assert (await it.rest()).endswith(b"\r\n\r\n" + 5 * b"piece")

    assert len(set(TURNS)) == 5


async def test_an_interrupted_response_does_not_look_complete() -> None:
    async with client() as it:
        it.say(GET.replace(b"/path", b"/half"))

        reported = await it.rest()

    assert reported.endswith(b"6\r\nfirst,\r\n")


async def test_a_failing_page_is_logged_and_the_next_one_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client() as it:
        it.say(GET.replace(b"/path", b"/broken"), GET)

        assert await it.answer() == (500, b"500 Internal Server Error\n")
        assert await it.answer() == (200, b"/path {}\n")
    assert [record.message for record in caplog.records] == ["Page failed"]
    assert vars(caplog.records[0])["path"] == "/broken"


async def test_the_head_of_a_page_contains_its_length() -> None:
    async with client() as it:
        it.say(LAST.replace(b"GET", b"HEAD"))

        reported = await it.rest()

    assert b"\r\nContent-Length: 9\r\n" in reported
    assert reported.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        pytest.param(b"/a/of/b", 200, b"/a/of/b {}\n", id="any segments"),
        pytest.param(b"/a/of/", 404, b"404 page not found\n", id="but no empty ones"),
        pytest.param(b"/a/of/b/c", 404, b"404 page not found\n", id="a longer path than the pattern"),
        pytest.param(b"/%70ath", 200, b"/path {}\n", id="a path that is encoded"),
        pytest.param(b"/length", 405, b"405 method not allowed\n", id="another method"),
    ],
)
async def test_a_path_selects_a_page(said: bytes, status: int, expected: bytes) -> None:
    async with client() as it:
        it.say(GET.replace(b"/path", said))

        assert await it.answer() == (status, expected)


async def test_shutdown_finishes_current_responses_and_waits_for_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    loop = asyncio.get_running_loop()
    async with serving(Application(PAGES, None, LONGEST_BODY), "127.0.0.1", 0) as port:
        clients = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(3)]
        idle, patient, hopeless = clients
        idle.say(GET)
        assert await idle.answer() == (200, b"/path {}\n")
        patient.say(GET.replace(b"/path", b"/slow"))
        hopeless.say(GET.replace(b"/path", b"/hanging"))
        await asyncio.sleep(1)
        ended = loop.time()

    assert loop.time() - ended == pytest.approx(5, abs=0.1)
    assert await idle.rest() == b""
    assert await patient.answer() == (200, b"at last\n")
    assert await hopeless.rest() == b""
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    for each in clients:
        each.writer.close()


async def test_shutdown_without_current_requests_is_immediate() -> None:
    loop = asyncio.get_running_loop()
    async with serving(Application(PAGES, None, LONGEST_BODY), "127.0.0.1", 0) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(1)
        ended = loop.time()

    assert loop.time() == ended
    writer.close()


async def test_a_streamed_response_is_sent_piece_by_piece() -> None:
    async with client() as it:
        it.say(GET.replace(b"/path", b"/endless"))
        await it.reader.readuntil(b"\r\n\r\n")

        for _ in range(5):
            assert await it.reader.readexactly(9) == b"4\r\ntick\r\n"


async def test_a_head_request_of_a_stream_gets_no_piece_of_it() -> None:
    async with client() as it:
        it.say(GET.replace(b"GET /path", b"HEAD /endless"), GET)

        assert b"tick" not in await it.reader.readuntil(b"\r\n\r\n")
        assert await it.answer() == (200, b"/path {}\n")


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_handler_knows_whether_the_client_has_left(leaves: bool) -> None:
    LEFT.clear()
    async with client() as it:
        it.say(GET.replace(b"/path", b"/waiting"))
        await asyncio.sleep(1)
        if leaves:
            it.writer.close()
        await asyncio.sleep(4)

        assert ["left" if leaves else "there"] == LEFT


async def test_a_repeated_header_keeps_its_values_and_a_handler_sets_the_date() -> None:
    async with client() as it:
        it.say(LAST.replace(b"/path", b"/several").replace(b"Host: x", b"X: a,b\r\nHost: x\r\nx: c"))

        reported = await it.rest()

    assert reported.endswith(b"\r\n\r\na,b,c ['a,b', 'c']\n")
    assert reported.count(b"\r\nDate: ") == 1
    assert b"\r\nDate: today\r\n" in reported


SWITCH = b"GET /switching HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"


async def test_a_handler_may_switch_to_another_protocol() -> None:
    async with client() as it:
        it.say(SWITCH, b"abc\n")
        head = await it.reader.readuntil(b"\r\n\r\n")
        assert await it.reader.readline() == b"ABC\n"
        it.say(b"end\n", GET)

        assert await it.rest() == b"END\n"
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\n")
    assert b"\r\nConnection: Upgrade\r\n" in head
    assert b"Content-" not in head


@pytest.mark.parametrize(
    ("said", "begins", "seconds"),
    [
        pytest.param(GET.replace(b"/path", b"/endless"), b"\r\n\r\n", 5, id="a stream"),
        pytest.param(GET.replace(b"/path", b"/idle"), b"tick", 0.1, id="an idle stream, at once"),
        pytest.param(SWITCH, b"\r\n\r\n", 0.1, id="another protocol, at once"),
    ],
)
async def test_a_long_answer_ends_when_the_client_disconnects(
    said: bytes, begins: bytes, seconds: float
) -> None:
    LEFT.clear()
    async with client() as it:
        it.say(said)
        await it.reader.readuntil(begins)
        it.writer.close()
        await asyncio.sleep(seconds)

        assert LEFT == ["left"]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(GET.replace(b"/path", b"/endless"), id="a stream"),
        pytest.param(SWITCH, id="another protocol"),
    ],
)
async def test_what_has_no_end_does_not_delay_the_shutdown(said: bytes) -> None:
    LEFT.clear()
    loop = asyncio.get_running_loop()
    async with serving(Application(PAGES, None, LONGEST_BODY), "127.0.0.1", 0) as port:
        it = Client(*await asyncio.open_connection("127.0.0.1", port))
        it.say(said)
        await it.reader.readuntil(b"\r\n\r\n")
        closing = loop.time()

    assert loop.time() - closing < 1
    assert LEFT == ["left"]
    it.writer.close()
