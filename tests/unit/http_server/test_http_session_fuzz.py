"""Any bytes, split anywhere, get clear responses and an end, and do not block the loop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import httptools
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scheduler.daemon.server.http_server import Application, serving
from tests.support.virtual_time import run
from tests.unit.http_server.test_http_session import GET, LONGEST_BODY, PAGES, Client

if TYPE_CHECKING:
    from collections.abc import Sequence

ENDS_WITHIN_SECONDS = 120
STATUSES = {200, 400, 404, 405, 411, 414, 431, 500}
TARGETS = [
    b"/path", b"/length", b"/unread", b"/pieces", b"/a/of/b", b"/", b"*", b"", b"http://x/path", b"//", b"/%ff%00?a=%zz&&=",
    b"/path?" + b"a&" * 500, b"x:y", b"/\xff", b"/path#x", b"[::1",
]  # fmt: skip
METHODS = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"OPTIONS",
    b"CONNECT",
    b"PRI",
    b"M-SEARCH",
    b"get",
    b"\x16\x03\x01",
]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1 x", b"RTSP/1.0", b""]
HEADERS = [
    b"Host: x", b"Connection: close", b"Connection: keep-alive", b"Connection: Upgrade\r\nUpgrade: h2c", b"Content-Length: 3",
    b"Content-Length: 0", b"Content-Length: 99999999999999999999", b"Content-Length: +3", b"Content-Length: 3, 3",
    b"Content-Length: 0x3", b"Content-Length:", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Expect: 100-continue", b"Expect: x", b" folded", b": nameless", b"X\x00: y", b"X: \xff\xfe", b"x" * 300, b"a: b\nc: d",
    b"Authorization: Bearer \xff",
]  # fmt: skip
BREAKS = [b"\r\n", b"\n", b"\r"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request, valid or not."""
    target, method, version = (draw(st.sampled_from(each)) for each in (TARGETS, METHODS, VERSIONS))
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=5))
    end = draw(st.sampled_from(BREAKS)) if draw(st.booleans()) else b"\r\n"
    body = draw(st.sampled_from([b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"x" * (LONGEST_BODY + 5)]))
    return end.join([b" ".join([method, target, version]), *headers, b"", body])


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """The pieces to write."""
    whole = bytearray(
        b"".join(draw(st.lists(requests() | st.just(GET) | st.binary(max_size=20), min_size=1, max_size=4)))
    )
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(whole)))
        whole[place : place + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    cuts = sorted(draw(st.sets(st.integers(0, len(whole)), max_size=4)))
    return [bytes(whole[start:end]) for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


class Answers:
    """Reads responses as a client does."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.statuses.append(self.parser.get_status_code())


async def others_are_answered(port: int) -> None:
    other = Client(*await asyncio.open_connection("127.0.0.1", port))
    other.say(GET)
    assert await other.answer() == (200, b"/path {}\n")
    other.writer.close()
    await other.writer.wait_closed()


async def converse(pieces: Sequence[bytes], *, leaves: bool) -> bytes:
    """Write piece by piece, and return all received bytes; other clients are answered meanwhile."""
    async with serving(Application(PAGES, None, LONGEST_BODY), "127.0.0.1", 0) as port:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        reported = b""
        with suppress(OSError):  # the server closed the connection
            for piece in pieces:
                client.say(piece)
                await asyncio.sleep(0.01)
            if leaves:
                client.writer.write_eof()
        await others_are_answered(port)
        with suppress(ConnectionError):
            async with asyncio.timeout(ENDS_WITHIN_SECONDS if leaves else 3700):
                reported = await client.rest()
        await others_are_answered(port)
        client.writer.close()
        with suppress(OSError):
            await client.writer.wait_closed()
        return reported


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(pieces=streams(), leaves=st.booleans())
@example(pieces=[b"GET /path HTTP/1.1\n\nGET /unread HTTP/1.1\r\n\r\n"], leaves=True)
@example(pieces=[b"\r\n\r\n\r\n\r\n"], leaves=True)
@example(pieces=[b"POST /length HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", b""], leaves=True)
@example(pieces=[b"HEAD /pieces HTTP/1.1\r\nHost: x\r\n\r\n", GET], leaves=False)
def test_any_bytes_get_an_http_response_and_the_connection_ends(
    pieces: list[bytes], leaves: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    reported = run(converse(pieces, leaves=leaves))

    if b"HEAD" not in b"".join(pieces):
        # Responses to HEAD can only be parsed by a client that knows the method.
        answers = Answers()
        answers.parser.feed_data(reported)
        assert {status for status in answers.statuses if status != 100} <= STATUSES
    assert reported[:9] in {b"", b"HTTP/1.1 "}
    faults = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert all("RequestTooLongError" in str(record.exc_text) for record in faults), caplog.text


def test_a_head_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    async def scenario() -> int:
        async with serving(Application(PAGES, None, LONGEST_BODY), "127.0.0.1", 0) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            sent = 0
            writer.write(b"GET /path HTTP/1.1\r\n")
            try:
                while sent < 50_000_000:
                    writer.write(b"x: " + b"y" * 60_000 + b"\r\n")
                    sent += 60_000
                    await writer.drain()
            except ConnectionError:
                pass
            writer.close()
            return sent

    assert run(scenario()) < 20_000_000


@pytest.mark.parametrize(
    "header", [b"a%d:b\r\n", b"a:b%d\r\n", b"a:%d\r\n"], ids=["all other names", "one name", "short"]
)
def test_very_many_headers_are_refused(header: bytes) -> None:
    head = b"GET /path HTTP/1.1\r\n" + b"".join(header % number for number in range(5000)) + b"\r\n"

    assert run(converse([head], leaves=True)).startswith(b"HTTP/1.1 431 ")
