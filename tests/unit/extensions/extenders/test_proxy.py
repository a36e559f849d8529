"""An extender is called through the proxy of the environment, as by kube-scheduler."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from scheduler.configuration.types import Extender, ExtenderTLS
from scheduler.errors import NotLeadingError
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.extensions.extenders import HttpExtender
from scheduler.kube.certificates import issue
from scheduler.kube.tls import load_key_pair
from tests.support.builders import node, pod
from tests.support.extender_server import scripted_extender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FILTERED = {"filter": {"NodeNames": ["n1"]}}


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def ask(url: str, tls: ExtenderTLS | None = None) -> list[str]:
    settings = Extender(url_prefix=url, filter_verb="filter", node_cache_capable=True, tls_config=tls)
    extender = HttpExtender(settings, "extenders[0]")
    try:
        return list((await extender.filter(pod("web"), [node("n1")])).node_names)
    finally:
        await extender.close()


@asynccontextmanager
async def tunnel(port: int) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a proxy for CONNECT that always leads to one port; yields its URL and the requests."""
    heads: list[bytes] = []
    ended: list[asyncio.Event] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = asyncio.Event()
        ended.append(end)
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        there, onward = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, onward), pipe(there, writer))
        end.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()
        for each in ended:
            await each.wait()


async def test_http_uses_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_extender(FILTERED) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)

        assert await ask("http://extender.example") == ["n1"]
        assert [verb for verb, _ in proxy.asked] == ["filter"]


async def test_https_uses_the_proxy_and_verifies_the_extender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issued = issue("extender", dns_names=["extender.example"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_pair(context, issued.serving)
    async with (
        scripted_extender(FILTERED, context=context) as server,
        tunnel(urlsplit(server.url).port or 0) as (url, heads),
    ):
        monkeypatch.setenv("HTTPS_PROXY", url)

        believed = ExtenderTLS(ca_data=issued.authority)
        assert await ask("https://extender.example", believed) == ["n1"]
        assert heads[0].startswith(b"CONNECT extender.example:443 HTTP/1.1\r\n")
        with pytest.raises(ExtenderError, match="certificate is not trusted"):
            await ask("https://extender.example")


async def test_a_refusing_proxy_is_reported_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://us:secret@127.0.0.1:{port}")
        with pytest.raises(ExtenderError, match=r"proxy 127\.0\.0\.1 answered 407") as raised:
            await ask("https://extender.example")
    assert "secret" not in str(raised.value)


async def test_localhost_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_extender(FILTERED) as server:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        assert await ask(server.url) == ["n1"]


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://[", "http://proxy:x"])
async def test_a_proxy_of_another_scheme_is_an_error_of_the_extender(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(ExtenderError, match="not the URL of an HTTP proxy"):
        await ask("http://extender.example")


async def test_a_former_leader_sends_no_bind_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        raise NotLeadingError("kube-system/custom-scheduler")

    async with scripted_extender({"bind": {}}) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        settings = Extender(url_prefix="http://extender.example", bind_verb="bind")
        extender = HttpExtender(settings, "extenders[0]", check)
        with pytest.raises((NotLeadingError, ExtenderError)):
            await extender.bind(pod("web"), "n1")
        await extender.close()
        assert not proxy.asked
