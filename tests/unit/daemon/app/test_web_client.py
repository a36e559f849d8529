"""The HTTP client of plugins: trusted servers, sent credentials, and errors."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.app import assembly
from scheduler.daemon.app.assembly import MAX_BYTES, WebClient
from scheduler.kube.certificates import Issued, issue
from scheduler.kube.tls import load_key_pair
from scheduler.urls import shown_url
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(scope="module")
def issued() -> Issued:
    return issue("web", addresses=["127.0.0.1"])


@asynccontextmanager
async def run_server(
    application: web.Application, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve an application; yields its URL."""
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"http{'s' if context else ''}://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving(issued: Issued | None = None) -> AsyncIterator[str]:
    """Run a server that returns the Authorization header of the request; yields its URL."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(
            text=request.headers.get("Authorization", "nobody"), status=int(request.query.get("status", 200))
        )

    context = None
    if issued is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_key_pair(context, issued.serving)
    application = web.Application()
    application.router.add_get("/", answer)
    async with run_server(application, context) as url:
        yield url


@asynccontextmanager
async def client() -> AsyncIterator[WebClient]:
    made = WebClient()
    try:
        yield made
    finally:
        await made.close()


async def get(url: str, **options: Any) -> bytes:
    async with client() as asking:
        return await asking.http_get(url, **options)


async def test_an_unknown_authority_is_trusted_only_if_given_or_with_verification_off(
    issued: Issued, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(issued.authority)
    async with serving(issued) as url:
        with pytest.raises(OSError, match="certificate is not trusted"):
            await get(url)
        assert await get(url, ca_file=str(ca_file)) == b"nobody"
        assert await get(url, insecure=True) == b"nobody"


async def test_a_certificate_is_trusted_as_its_own_authority(issued: Issued, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(issued.serving[issued.serving.index(b"-----BEGIN CERTIFICATE") :])
    async with serving(issued) as url:
        assert await get(url, ca_file=str(ca_file)) == b"nobody"


async def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=f"through the proxy to {request.url}")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with run_server(application) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        assert await get("http://nodes.example/load") == b"through the proxy to http://nodes.example/load"
        monkeypatch.setenv("HTTP_PROXY", "socks5://user:secret@proxy")
        with pytest.raises(OSError, match=r"not the URL of an HTTP proxy$"):
            await get("http://nodes.example/load")


async def test_a_replaced_authority_is_read_again(issued: Issued, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(issue("another").authority)
    async with serving(issued) as url, client() as asking:
        with pytest.raises(OSError, match="certificate is not trusted"):
            await asking.http_get(url, ca_file=str(ca_file))
        newer = tmp_path / "newer.crt"
        newer.write_bytes(issued.authority)
        newer.replace(ca_file)
        assert await asking.http_get(url, ca_file=str(ca_file)) == b"nobody"


async def test_a_token_is_read_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    async with serving() as url, client() as asking:
        for content in ("first\n", "second"):
            token.write_text(content)
            answer = await asking.http_get(url, bearer_token_file=str(token))
            assert answer == f"Bearer {content.strip()}".encode()


@pytest.mark.parametrize(
    ("option", "content", "expected"),
    [
        pytest.param("bearer_token_file", None, "No such file.*given", id="no token file"),
        pytest.param("bearer_token_file", b" \n", "given: not a bearer token", id="an empty token"),
        pytest.param("bearer_token_file", b"a\r\nX: y", "given: not a bearer token", id="two lines"),
        pytest.param("bearer_token_file", b"\xff", "given: not a bearer token", id="no text"),
        pytest.param("ca_file", None, "No such file.*given", id="no CA file"),
        pytest.param("ca_file", b"x", "given: not certificates in PEM", id="no certificate"),
        pytest.param(
            "ca_file", b"\n" * (4 * 2**20 + 1), "has more than 4194304 bytes.*given", id="a large file"
        ),
    ],
)
async def test_an_invalid_file_is_named(
    tmp_path: Path, option: str, content: bytes | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / "given").write_bytes(content)
    with pytest.raises(OSError, match=expected):
        await get("http://127.0.0.1:1/", **{option: str(tmp_path / "given")})


@pytest.mark.parametrize("option", ["bearer_token_file", "ca_file"])
async def test_a_fifo_in_place_of_a_file_is_refused_at_once(tmp_path: Path, option: str) -> None:
    os.mkfifo(tmp_path / "given")
    with pytest.raises(OSError, match=r"is a FIFO.*given"):
        await get("http://127.0.0.1:1/", **{option: str(tmp_path / "given")})


@pytest.mark.run(by=asyncio.run)
async def test_a_file_that_is_not_read_in_time_fails_each_request_and_is_read_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = threading.Event(), []

    def hang(_: Path) -> bytes:
        asked.append(1)
        answers.wait(60)
        return b"token"

    monkeypatch.setattr(assembly, "read_regular", hang)
    async with client() as asking:
        for _ in range(3):
            with pytest.raises(OSError, match=r"given: not read within 0\.01 seconds"):
                await asking.http_get(
                    "http://127.0.0.1:1/", bearer_token_file=str(tmp_path / "given"), timeout_seconds=0.01
                )
    assert asked == [1]
    answers.set()


async def test_another_status_and_a_missing_response_are_errors_that_name_the_url() -> None:
    async with serving() as url:
        with pytest.raises(OSError, match=rf"GET {url}\?status=xxxxx: 503: b'nobody'"):
            await get(f"{url}?status=503")
    with pytest.raises(OSError, match=f"GET {url}: .*Connection refused"):
        await get(url)


@pytest.mark.parametrize("host", ["double..dot", f"{'long' * 16}.example", "user:€@127.0.0.1:x"])
async def test_an_address_that_cannot_be_sent_is_an_error_that_names_the_url(host: str) -> None:
    with pytest.raises(OSError, match=f"GET {shown_url(f'http://{host}/')}: its host or port cannot be part"):
        await get(f"http://{host}/")


@asynccontextmanager
async def saying(answer: bytes, *, ends: bool = True) -> AsyncIterator[str]:
    """Run a server that returns the same bytes for every request; yields its URL."""

    answering: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            if not ends:
                await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await asyncio.gather(*answering)


async def test_a_response_has_a_maximum_size() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    async with saying(head + bytes(MAX_BYTES - len(head))) as url:
        assert len(await get(url)) == MAX_BYTES - len(head)
    async with saying(head + bytes(MAX_BYTES - len(head) + 1)) as url:
        with pytest.raises(OSError, match=f"GET {url}: the response has more than {MAX_BYTES} bytes"):
            await get(url)


@pytest.mark.parametrize("insecure", [False, True])
async def test_its_connections_are_closed_at_its_end(insecure: bool) -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()
        ended.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        async with client() as made:
            await made.http_get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", insecure=insecure)
            assert not ended.is_set()

        await asyncio.wait_for(ended.wait(), 5)


async def test_an_incomplete_response_ends_with_a_timeout() -> None:
    async with saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbeg", ends=False) as url:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(OSError, match=f"GET {url}: no answer within 2 s"):
            await get(url, timeout_seconds=2)
        assert asyncio.get_running_loop().time() - begun < 3


LINES = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/9.9 999 \xff\r\n", b"HTTP/1.1 302 Found\r\nLocation: \xc3\x28://[\r\n",
    b"Location: http://\xff/\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"Set-Cookie: a=\x7f;;=\r\n",
    b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"\r\n", b"x: " + b"y" * 9000 + b"\r\n",
    b"Content-Encoding: br\r\n", b"Content-Type: \xff; charset=\xff\r\n", b'{"data": {}}',
)  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(LINES), st.binary(max_size=20)), max_size=8).map(b"".join))
@settings(max_examples=200)
def test_any_bytes_of_a_server_are_a_response_or_an_error_that_names_it(answer: bytes) -> None:
    async def test() -> None:
        async with saying(answer) as url:
            said: bytes | OSError
            try:
                said = await get(url, timeout_seconds=5)
            except OSError as error:
                said = error
        if isinstance(said, OSError):
            assert str(said).startswith(f"GET {url}: ")
            assert len(str(said)) < 20_000
        else:
            assert len(said) <= len(answer)

    run(test())
