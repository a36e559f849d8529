"""The HTTP client of plugins."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.files import read_regular
from scheduler.kube.certificates.key_pair import as_file
from scheduler.kube.certificates.trust import believe_as_go
from scheduler.proxies import is_http, proxy_of
from scheduler.replay_hooks import NO_HOOKS
from scheduler.urls import shown_text, shown_url
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import aiohttp

    from scheduler.replay_hooks import ReplayHooks

T = TypeVar("T")

MAX_BYTES = 8 * 2**20
"""The limit of a response, which is read in less than half a second; 15,000 nodes need a quarter of it."""


class WebClient:
    """Sends requests to web servers with one pool of connections, opened by the first request."""

    def __init__(self, hooks: ReplayHooks = NO_HOOKS) -> None:
        self._hooks = hooks
        self._session: aiohttp.ClientSession | None = None
        # CA file -> its modification time, and its content
        self._trust: dict[str, tuple[int, ssl.SSLContext]] = {}
        self._reading: dict[str, asyncio.Task[Any]] = {}  # path -> task that reads it

    async def http_get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 5.0,
        ca_file: str = "",
        insecure: bool = False,
        bearer_token_file: str = "",
    ) -> bytes:
        ask = partial(self._get, url, headers or {}, timeout_seconds, ca_file, insecure, bearer_token_file)
        return await self._hooks.external_call(f"GET {shown_url(url)}", ask, bytes)

    async def _get(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout_seconds: float,
        ca_file: str,
        insecure: bool,
        bearer_token_file: str,
    ) -> bytes:
        import aiohttp  # half of the start time of `explain`, and few profiles need it

        # A decompressed response may be a thousand times as large as the transferred data.
        sent = {**headers, "Accept-Encoding": "identity"}
        if bearer_token_file:
            token = await self._read(bearer_token_file, _token, timeout_seconds)
            sent["Authorization"] = f"Bearer {token}"
        trust: bool | ssl.SSLContext = not insecure
        if ca_file and not insecure:
            trust = await self._read(ca_file, self._trusted, timeout_seconds)
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
        timeout, shown = aiohttp.ClientTimeout(total=timeout_seconds), shown_url(url)
        proxy = _proxy(url, shown)
        try:
            async with self._session.get(
                url, headers=sent, timeout=timeout, ssl=trust, proxy=proxy
            ) as answer:
                body = await _body(answer, shown)
                if not answer.ok:
                    raise OSError(f"GET {shown}: {answer.status} {answer.reason}: {body[:256]!r}")
                return body
        except aiohttp.ClientHttpProxyError as error:
            raise OSError(
                f"GET {shown}: the proxy answered {error.status}"
            ) from None  # its message contains the proxy's URL
        except (
            aiohttp.ClientError,
            TimeoutError,
            UnicodeError,
        ) as error:  # UnicodeError: a name that DNS cannot contain
            message = shown_text(f"{type(error).__name__}: {error}", url)
            raise OSError(f"GET {shown}: {message}") from error

    async def close(self) -> None:
        """Close the pool, without waiting for files."""
        for reading in self._reading.values():
            reading.cancel()
        if self._session is not None:
            await self._session.close()

    async def _read(self, path: str, read: Callable[[str], T], timeout_seconds: float) -> T:
        """Read a file once for all requests that wait for it.

        Raises:
            OSError: it cannot be read, or not in time.
        """
        reading = self._reading.get(path)
        if reading is None:
            ask = in_a_thread(partial(read, path), f"reading {path}", gives_up=False)
            reading = self._reading[path] = asyncio.create_task(ask, name=f"reading {path}")
            reading.add_done_callback(lambda _: self._reading.pop(path))
        done, _ = await asyncio.wait({reading}, timeout=timeout_seconds)
        if not done:
            raise OSError(f"{path}: not read within {timeout_seconds:g} seconds")
        result: T = reading.result()
        return result

    def _trusted(self, ca_file: str) -> ssl.SSLContext:
        """Return the TLS settings for a CA file; the file is read again after a change."""
        written = Path(ca_file).stat().st_mtime_ns
        known = self._trust.get(ca_file)
        if known is None or known[0] != written:
            try:
                with as_file(read_regular(Path(ca_file))) as authority:
                    context = ssl.create_default_context(cafile=authority)
                    believe_as_go(context)
            except ssl.SSLError as error:
                raise OSError(f"{ca_file}: not certificates in PEM: {error}") from error
            known = self._trust[ca_file] = (written, context)
        return known[1]


def _proxy(url: str, shown: str) -> str | None:
    """Return the proxy that the environment names for a server; None for none.

    Raises:
        OSError: it is not an HTTP proxy.
    """
    try:
        proxy = proxy_of(url)
    except (ValueError, KeyError) as error:  # an invalid port, another scheme
        raise OSError(f"GET {shown}: not a URL of a web server") from error
    if proxy and not is_http(proxy):
        raise OSError(f"GET {shown}: the proxy that the environment names is not an HTTP proxy")
    return proxy or None


async def _body(answer: aiohttp.ClientResponse, url: str) -> bytes:
    """Read a response to its end.

    Raises:
        OSError: it is compressed without a request for that, or too large.
    """
    packed = answer.headers.get("Content-Encoding", "identity")
    if packed != "identity":
        raise OSError(f"GET {url}: the response is compressed with {packed!r}, which was not requested")
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > MAX_BYTES:
            raise OSError(f"GET {url}: the response has more than {MAX_BYTES} bytes")
    return bytes(body)


def _token(path: str) -> str:
    try:
        token = read_regular(Path(path)).decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise OSError(f"{path}: not a bearer token") from error
    if not token or any(not character.isprintable() for character in token):
        raise OSError(f"{path}: not a bearer token")  # without its content
    return token
