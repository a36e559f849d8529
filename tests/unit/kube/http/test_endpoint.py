"""TLS, names and proxies of a server; in real time, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import select
import socket
import ssl
import threading
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import uvloop

from scheduler.errors import ApiError
from scheduler.kube.certificates import Issued, issue
from scheduler.kube.client.connection import NOT_CONNECTED, ApiConnection
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.protocol import HttpProtocol
from scheduler.kube.http.request import Request
from scheduler.kube.tls import load_key_pair
from tests.unit.kube.http.raw_server import always_ok, listening, raw_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.run(by=asyncio.run)

GET = Request("GET", "/a")


@pytest.fixture(scope="module")
def issued() -> Issued:
    return issue("kube-apiserver", dns_names=["api.example"], addresses=[])


def serving(issued: Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_pair(context, issued.serving)
    return context


def trusting(issued: Issued) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=issued.authority.decode())


@asynccontextmanager
async def proxy(*, refuses: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a CONNECT proxy; yield its address and the heads of its requests."""
    heads: list[bytes] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if refuses:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        host, port = heads[-1].split()[1].decode().split(":")
        onward = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(pipe(reader, onward[1]), pipe(onward[0], writer))
        finally:
            onward[1].close()

    async with listening(serve) as port:
        yield f"127.0.0.1:{port}", heads


LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@LOOPS
def test_the_certificate_of_a_server_may_have_another_name_than_the_url(
    issued: Issued, loop: Callable[[], asyncio.AbstractEventLoop]
):
    async def scenario() -> None:
        async with raw_server(always_ok, tls=serving(issued)) as server:
            named = replace(server.endpoint, tls=trusting(issued), server_hostname="api.example")
            async with ApiConnection(named) as connection:
                assert (await connection.send(GET)).body == b"ok"
            async with ApiConnection(replace(named, server_hostname=None)) as connection:
                with pytest.raises(ApiError, match="certificate") as caught:
                    await connection.send(GET)
                assert caught.value.reason == NOT_CONNECTED

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@LOOPS
def test_a_proxy_tunnels_tls_and_gets_its_credentials(
    issued: Issued, loop: Callable[[], asyncio.AbstractEventLoop]
):
    async def scenario() -> None:
        async with raw_server(always_ok, tls=serving(issued)) as server, proxy() as (address, heads):
            endpoint = replace(
                server.endpoint,
                tls=trusting(issued),
                server_hostname="api.example",
                proxy=f"http://me:p%40ss@{address}",
            )
            async with ApiConnection(endpoint) as connection:
                await connection.send(GET)
                await connection.send(GET)

            (head,) = heads
            assert head.startswith(b"CONNECT " + server.endpoint.host.encode() + b" HTTP/1.1\r\n")
            assert b"Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss") in head
            assert b"Proxy-Authorization" not in server.requests[0]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@LOOPS
def test_a_failed_connection_is_reported_with_its_address_and_reason(
    issued: Issued, loop: Callable[[], asyncio.AbstractEventLoop]
):
    async def told(endpoint: Endpoint) -> str:
        async with ApiConnection(endpoint) as connection:
            with pytest.raises(ApiError) as caught:
                await connection.send(GET)
            return str(caught.value).partition(": NotConnected: ")[2]

    async def scenario() -> None:
        async with raw_server(always_ok, tls=serving(issued)) as server:
            distrusted, where = await told(replace(server.endpoint, advice="ask Ann")), server.endpoint.server
            assert distrusted.startswith(f"{where}: its certificate is not trusted: ")
            assert distrusted.endswith("; ask Ann")
        assert await told(Endpoint("http://127.0.0.1:1")) == "http://127.0.0.1:1: Connection refused"
        by_proxy = Endpoint("https://api.example", proxy="http://me:secret@127.0.0.1:1")
        assert await told(by_proxy) == "https://api.example by proxy 127.0.0.1: Connection refused"

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("proxy", ["proxy:3128", "socks5://proxy:1080"])
async def test_an_invalid_proxy_means_the_request_was_not_sent(proxy: str):
    async with ApiConnection(Endpoint("https://api.example", proxy=proxy)) as connection:
        with pytest.raises(ApiError, match="not the URL of an HTTP proxy") as caught:
            await connection.send(GET)
    assert caught.value.reason == NOT_CONNECTED


async def test_a_refusing_proxy_means_the_request_was_not_sent(issued: Issued):
    async with raw_server(always_ok, tls=serving(issued)) as server, proxy(refuses=True) as (address, _):
        async with ApiConnection(replace(server.endpoint, proxy=f"http://{address}")) as connection:
            with pytest.raises(ApiError, match="403") as caught:
                await connection.send(GET)
        assert (caught.value.reason, server.requests) == (NOT_CONNECTED, [])


async def test_without_tls_a_proxy_gets_the_request_itself():
    async with proxy(refuses=True) as (address, heads):
        endpoint = Endpoint("http://api.example:8080/base", proxy=f"http://me:secret@{address}")
        async with ApiConnection(endpoint) as connection:
            with pytest.raises(ApiError, match="403"):
                await connection.send(GET)

        assert heads[0].startswith(
            b"GET http://api.example:8080/base/a HTTP/1.1\r\nHost: api.example:8080\r\n"
        )
        assert b"Proxy-Authorization: Basic " in heads[0]


async def test_a_host_name_is_resolved():
    async def ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with listening(ok) as port, ApiConnection(Endpoint(f"http://localhost:{port}")) as connection:
        assert (await connection.send(GET)).status == 200


@LOOPS
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_request_is_in_the_socket_when_begin_returns(
    issued: Issued, loop: Callable[[], asyncio.AbstractEventLoop], *, secure: bool
):
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def accept() -> None:
        peer, _ = listener.accept()
        accepted.append(serving(issued).wrap_socket(peer, server_side=True) if secure else peer)

    async def scenario() -> bool:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        port = listener.getsockname()[1]
        endpoint = Endpoint(
            f"{'https' if secure else 'http'}://127.0.0.1:{port}",
            trusting(issued) if secure else None,
            "api.example",
        )
        protocol = await endpoint.connect(HttpProtocol)
        await asyncio.to_thread(accepting.join, 9.0)
        await asyncio.sleep(0.1)
        assert not select.select(accepted, [], [], 0)[0]
        answer = protocol.begin(b"GET / HTTP/1.1\r\n\r\n", asyncio.get_running_loop().time() + 9.0)
        arrived = bool(select.select(accepted, [], [], 1.0)[0])  # the loop does not run
        protocol.abort()
        with pytest.raises(ConnectionError):
            await answer
        await asyncio.sleep(0)
        return arrived

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(scenario())
    for each in (*accepted, listener):
        each.close()
