"""One API server, asked for bytes and answering in bytes.

`kubernetes_asyncio`'s generated calls refuse bytes as a body, parse every answer into models and look up
proxies and netrc in two threads for every request. So its connector (pool and TLS) is used under a session
of our own.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from scheduler.client.wire import answer_error
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.connector import Connection

USER_AGENT = f"custom-scheduler/{version('custom-scheduler')}"

NOT_CONNECTED = "NotConnected"
"""An `ApiError.reason` at status 0: nobody took the connection, so the request was never sent."""
CONNECTION_LOST = "ConnectionLost"
"""An `ApiError.reason` at status 0: sent, perhaps carried out, never answered."""
TIMEOUT = "Timeout"
"""An `ApiError.reason` at status 0: no answer in time, or a watch that fell silent."""

_CONNECT_SECONDS = 10.0
_BEFORE_SENDING: ContextVar[Callable[[], None] | None] = ContextVar("before_sending", default=None)
_READ_BUFFER_BYTES = 2**21
_LINES_AT_A_TIME = 100  # then the other tasks get a turn: about a millisecond of events
_REASONS: tuple[tuple[str, tuple[type[Exception], ...]], ...] = (  # the first that fits
    (NOT_CONNECTED, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)),
    (TIMEOUT, (TimeoutError,)),
    (CONNECTION_LOST, (Exception,)),
)


class Authorization(Protocol):
    """What makes the API server believe who is asking."""

    async def header(self) -> str | None:
        """Return the Authorization header for the next request; None for client certificates and for nobody."""
        ...

    def rejected(self) -> None:
        """Take note that the server answered 401."""
        ...


class RequestObserver(Protocol):
    """Who counts requests. Must neither raise nor change anything."""

    def requested(self, host: str, method: str, status: int, seconds: float | None) -> None:
        """Count a request that has ended, or a watch that has begun.

        Args:
            host: the server's name and port.
            method: of HTTP.
            status: of the answer; 0 when there was none.
            seconds: until the end of the answer; None for a watch.
        """
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """A 2xx answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Requests(Protocol):
    """Where requests are sent: an `ApiConnection`, or one that lets them out under a condition only."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
    ) -> Response:
        """Ask once and wait for the whole answer.

        Raises:
            ApiError: the answer is not 2xx; or, with status 0, there was none. See the reasons above.
        """
        ...


class ApiConnection:
    """Requests and streams to one API server, over one connection pool.

    An async context manager. Make it inside the event loop that will use it; `connect` makes one from a
    kubeconfig or a pod's service account.

    Attributes:
        server: its URL.
        observer: is told of every request, once it is set.
    """

    def __init__(
        self,
        server: str,
        connector: aiohttp.BaseConnector,
        *,
        authorization: Authorization | None = None,
        proxy: str | None = None,
        server_hostname: str | None = None,
    ) -> None:
        """Take over a connector.

        Args:
            server: its URL, a path included where it lives under one; over a Unix socket `http://localhost`.
            connector: closed with this object.
            authorization: None where the server asks for none, or client certificates do.
            proxy: URL of an HTTP proxy.
            server_hostname: the name its certificate must carry, if not the URL's.
        """
        self.server = server.rstrip("/")
        self.observer: RequestObserver | None = None
        self._host = URL(self.server).host_port_subcomponent or ""
        self._authorization = authorization
        self._options: dict[str, Any] = {"allow_redirects": False}
        if proxy:
            self._options["proxy"] = proxy
        if server_hostname:
            self._options["server_hostname"] = server_hostname
        self._session = _session(connector)
        self._retired: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; what is under way fails."""
        for session in (self._session, self._retired):
            if session is not None:
                await session.close()

    async def replace_connector(self, connector: aiohttp.BaseConnector) -> None:
        """Use another pool for new requests: the client certificate has changed.

        What is under way goes on over the old pool, which is closed at the next replacement.
        """
        if self._retired is not None:
            await self._retired.close()
        self._retired, self._session = self._session, _session(connector)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
        before_sending: Callable[[], None] | None = None,
    ) -> Response:
        """Ask as `Requests.request`.

        `before_sending` is called at once, and again when credentials and a connection were waited for, right
        before the first byte is written; what it raises is raised here, with nothing sent.
        """
        if before_sending is not None:
            before_sending()
        what = f"{method} {path}"
        sent = await self._headers(headers)
        if body is not None:
            sent["Content-Type"] = content_type
        began = time.perf_counter()
        token = _BEFORE_SENDING.set(before_sending)
        try:
            async with self._session.request(
                method,
                self._url(path, params),
                data=body,
                headers=sent,
                timeout=aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=_CONNECT_SECONDS),
                **self._options,
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._tell(method, 0, time.perf_counter() - began)
            raise _no_answer(what, error) from error
        finally:
            _BEFORE_SENDING.reset(token)
        self._tell(method, answer.status, time.perf_counter() - began)
        if not 200 <= answer.status <= 299:
            raise self._refusal(what, answer, content)
        return Response(answer.status, content, answer.headers)

    async def stream(
        self, path: str, params: Mapping[str, str], *, silence_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Ask for a watch and yield its lines without their ends, of any length.

        The end of the iteration is the server's orderly end; a last line it did not finish is yielded as is.

        Args:
            path: as from `Resource.path`.
            params: the query.
            silence_seconds: how long the server may send nothing at all.

        Raises:
            ApiError: refused, or, with status 0, cut off or silent for too long (`TIMEOUT`).
        """
        what = f"GET {path}"
        headers = await self._headers(None)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence_seconds)
        told = False
        try:
            async with self._session.get(
                self._url(path, params), headers=headers, timeout=timeout, **self._options
            ) as answer:
                self._tell("GET", answer.status, None)
                told = True
                if answer.status != 200:
                    raise self._refusal(what, answer, await answer.read())
                async with aclosing(_lines(answer.content)) as lines:
                    async for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not told:
                self._tell("GET", 0, None)
            raise _no_answer(what, error) from error

    def _tell(self, method: str, status: int, seconds: float | None) -> None:
        if self.observer is not None:
            self.observer.requested(self._host, method, status, seconds)

    def _url(self, path: str, params: Mapping[str, str] | None) -> URL:
        query = f"?{urlencode(params)}" if params else ""
        return URL(f"{self.server}{path}{query}", encoded=True)

    async def _headers(self, extra: Mapping[str, str] | None) -> dict[str, str]:
        headers = dict(extra) if extra else {}
        if self._authorization is not None:
            value = await self._authorization.header()
            if value is not None:
                headers["Authorization"] = value
        return headers

    def _refusal(self, what: str, answer: aiohttp.ClientResponse, content: bytes) -> ApiError:
        if answer.status == 401 and self._authorization is not None:
            self._authorization.rejected()
        return answer_error(what, answer.status, answer.headers, content)


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        # Large bodies are decompressed in a thread; between a scheduler and its API server bytes are cheap.
        headers={"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_READ_BUFFER_BYTES,
        trust_env=False,
        request_class=_GuardedRequest,
    )


class _GuardedRequest(aiohttp.ClientRequest):
    """Asks with the connection at hand, right before it is written to."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        _check_before_sending()
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        # Before Python 3.12 this is a task of its own, begun when everything else that was ready has had its turn.
        try:
            _check_before_sending()
        except Exception as error:  # noqa: BLE001 - raised where the answer is waited for
            assert conn.protocol is not None
            conn.protocol.set_exception(error)
        else:
            await super().write_bytes(writer, conn, content_length)


def _check_before_sending() -> None:
    check = _BEFORE_SENDING.get()
    if check is not None:
        check()


def _no_answer(what: str, error: Exception) -> ApiError:
    """Sort the ways of getting no answer by what they say about the request."""
    reason = next(reason for reason, kinds in _REASONS if isinstance(error, kinds))
    return ApiError(0, reason, f"{what}: {reason}: {str(error) or type(error).__name__}")


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Split what arrives at newlines; a line may be longer than any buffer."""
    begun: list[bytes] = []
    count = 0
    while chunk := await content.readany():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if begun:
                begun.append(end)
                yield b"".join(begun)
                begun.clear()
            elif end:
                yield end
            count += 1
            if count % _LINES_AT_A_TIME == 0:
                await asyncio.sleep(0)
        if rest:
            begun.append(rest)
    if begun:
        yield b"".join(begun)
