"""A connection to one API server: requests and answers as bytes."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, Self
from urllib.parse import urlencode

from scheduler.errors import ApiError
from scheduler.kube.client.discovery import ServedVersions
from scheduler.kube.client.wire import answer_error
from scheduler.kube.http.pool import ConnectionPool, NotConnectedError
from scheduler.kube.http.request import JSON, USER_AGENT, Request, Response, target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from scheduler.kube.client.login import Headers
    from scheduler.kube.http.endpoint import Endpoint
    from scheduler.kube.http.protocol import HttpProtocol

NOT_CONNECTED = "NotConnected"
"""An `ApiError.reason` at status 0: no connection could be opened, so the request was never sent."""
CONNECTION_LOST = "ConnectionLost"
"""An `ApiError.reason` at status 0: the request was sent and may have been carried out, but no answer came."""
TIMEOUT = "Timeout"
"""An `ApiError.reason` at status 0: no answer in time, or no data on a watch."""

_ACCEPT = f"\r\nAccept: {JSON}\r\n"
_LINES_AT_A_TIME = 32  # then other tasks run: about a millisecond of events
_BYTES_AT_A_TIME = 2**17  # of lines, of which one may be longer


class Authorization(Protocol):
    """Authenticates requests to the API server."""

    def headers(self) -> Headers:
        """Return the headers of the next request: Authorization, unless a client certificate authenticates, and impersonation."""
        ...

    def rejected(self) -> None:
        """Handle a 401 of the server."""
        ...


class RequestObserver(Protocol):
    """Counts requests. Must neither raise nor change anything."""

    def requested(
        self, host: str, request: Request, status: int, seconds: float, received: int | None
    ) -> None:
        """Count a request that has ended.

        Args:
            host: the server's name and port.
            request: the request.
            status: status of the answer; 0 without an answer.
            seconds: time from sending to the end of the answer.
            received: bytes of the answer's body; None without an answer.
        """
        ...

    def watched(self, host: str, method: str, status: int) -> None:
        """Count a watch that was opened, or refused."""
        ...


class ApiConnection:
    """Requests and streams to one API server, over one connection pool.

    An async context manager. Create it inside the event loop that uses it; `connect` creates one from a
    kubeconfig or a pod's service account.

    Attributes:
        observer: is notified of every request, once it is set.
        in_trouble: is called whenever the server does not answer, or answers with a 5xx.
        watch_interval: how many seconds a watch waits after it has read events, before it reads more.
        user_agent: value of the User-Agent header; set it before the first request.
        versions: the versions in which the server serves kinds.
    """

    def __init__(self, endpoint: Endpoint, *, authorization: Authorization | None = None) -> None:
        """Prepare; this sends nothing.

        Args:
            endpoint: the server.
            authorization: None if the server needs none, or if client certificates authenticate.
        """
        self.observer: RequestObserver | None = None
        self.in_trouble: Callable[[], None] = _ignore
        self.watch_interval = 0.0
        self.user_agent = USER_AGENT
        self.versions = ServedVersions(self.send)
        self._pool = ConnectionPool(endpoint)
        self._host = endpoint.host
        self._authorization = authorization
        self._authorized_by: Headers = ()
        self._head: tuple[str, str] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of new requests."""
        return self._pool.endpoint

    @property
    def authorization(self) -> str:
        """The lines of the headers that authenticate the next request, for other clients of the same server."""
        return _lines(() if self._authorization is None else self._authorization.headers())

    @property
    def silent_since(self) -> float | None:
        """The loop's time of the last data received; None if no stream is open."""
        return self._pool.silent_since

    def close_idle(self) -> None:
        """Close idle connections, so that later requests open new ones."""
        self._pool.close_idle()

    def cut_streams(self, silent_since: float) -> None:
        """End all streams that received nothing since a time of the loop; their iteration raises a lost connection."""
        self._pool.cut_streams(silent_since)

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        await self._pool.close()

    def replace_endpoint(self, endpoint: Endpoint) -> None:
        """Use another endpoint for new requests, after a change of the client certificate. Requests in flight continue."""
        self._pool.replace_endpoint(endpoint)
        self._head = None

    async def send(
        self,
        request: Request,
        *,
        before_sending: Callable[[], None] | None = None,
        on_new_connection: bool = False,
    ) -> Response:
        """Send as `requests.Requests.send`; with `on_new_connection`, over a new connection.

        `before_sending` is the check of `ConnectionPool.exchange`.
        """
        began = time.perf_counter()
        try:
            connection = await self._pool.exchange(
                request.method,
                partial(self._encode, request),
                asyncio.get_running_loop().time() + request.timeout_seconds,
                check=before_sending,
                on_new_connection=on_new_connection,
            )
        except OSError as error:
            self._observe(request, 0, time.perf_counter() - began, None)
            raise _no_answer(request, error) from error
        status, body = connection.status, connection.taken()
        self._pool.give_back(connection)
        self._observe(request, status, time.perf_counter() - began, len(body))
        if not 200 <= status <= 299:
            raise self._refusal(request, connection, body)
        return Response(status, body)

    async def stream(self, request: Request, *, silence_seconds: float) -> AsyncGenerator[list[bytes], None]:
        """Open a watch and yield its lines, without line ends and of any length, in the batches in which they arrive.

        The first item is an empty list: the server accepted the watch.

        The iteration ends when the server ends the watch in order; an unfinished last line is yielded as it
        is.

        Args:
            request: the request; its timeout does not apply.
            silence_seconds: how long the server may send nothing.

        Raises:
            ApiError: refused, or, with status 0, cut off or silent for too long (`TIMEOUT`).
        """
        try:
            connection = await self._pool.exchange(
                request.method,
                partial(self._encode, request),
                asyncio.get_running_loop().time() + request.timeout_seconds,
                silence_seconds=silence_seconds,
            )
        except OSError as error:
            self._observe_watch(request, 0)
            raise _no_answer(request, error) from error
        self._observe_watch(request, connection.status)
        try:
            if connection.status != 200:
                pieces = []
                while piece := await connection.take():
                    pieces.append(piece)
                raise self._refusal(request, connection, b"".join(pieces))
            yield []
            begun: list[bytes] = []  # parts of an unfinished line
            while piece := await connection.take():
                for number, lines in enumerate(_batches(_whole_lines(begun, piece))):
                    if number:  # other tasks have run before the first batch
                        await asyncio.sleep(0)
                    yield lines
                if self.watch_interval:
                    await asyncio.sleep(self.watch_interval)
            if begun:
                yield [b"".join(begun)]
        except OSError as error:
            self.in_trouble()
            raise _no_answer(request, error) from error
        finally:
            self._pool.give_back(connection)

    def _encode(self, request: Request) -> bytes:
        headers = () if self._authorization is None else self._authorization.headers()
        if self._head is None or headers != self._authorized_by:
            self._authorized_by = headers
            self._head = self._build_head(headers)
        prefix, constant = self._head
        query = f"?{urlencode(request.params)}" if request.params else ""
        if request.accept != JSON:
            constant = constant.replace(_ACCEPT, f"\r\nAccept: {request.accept}\r\n", 1)
        head = f"{request.method} {prefix}{target(request.path)}{query}{constant}"
        if request.body is None and request.method == "GET":
            return f"{head}\r\n".encode()
        body = request.body or b""
        head = f"{head}Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def _build_head(self, headers: Headers) -> tuple[str, str]:
        """Return the constant parts before and after the path of every request."""
        endpoint = self._pool.endpoint
        constant = (
            f" HTTP/1.1\r\nHost: {endpoint.host}\r\nUser-Agent: {self.user_agent}{_ACCEPT}"
            f"Accept-Encoding: identity\r\n{endpoint.headers}{_lines(headers)}"
        )
        return endpoint.target_prefix, constant

    def _observe(self, request: Request, status: int, seconds: float, received: int | None) -> None:
        self._note_trouble(status)
        if self.observer is not None:
            self.observer.requested(self._host, request, status, seconds, received)

    def _observe_watch(self, request: Request, status: int) -> None:
        self._note_trouble(status)
        if self.observer is not None:
            self.observer.watched(self._host, request.method, status)

    def _note_trouble(self, status: int) -> None:
        if not status or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.in_trouble()

    def _refusal(self, request: Request, connection: HttpProtocol, body: bytes) -> ApiError:
        if connection.status == 401 and self._authorization is not None:
            self._authorization.rejected()
        return answer_error(str(request), connection.status, connection.header(b"retry-after"), body)


def _lines(headers: Headers) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers)


def _ignore() -> None:
    return


def _no_answer(request: Request, error: OSError) -> ApiError:
    """Return the error of a request without an answer."""
    is_late = isinstance(error, TimeoutError)
    reason = (
        NOT_CONNECTED if isinstance(error, NotConnectedError) else TIMEOUT if is_late else CONNECTION_LOST
    )
    return ApiError(0, reason, f"{request}: {reason}: {str(error) or type(error).__name__}")


def _whole_lines(begun: list[bytes], piece: bytes) -> list[bytes]:
    """Return the lines that end in a piece of the received data; a line may be longer than any piece.

    Args:
        begun: parts of an unfinished line; changed here.
        piece: the piece.
    """
    *lines, rest = piece.split(b"\n")
    if lines and begun:
        lines[0] = b"".join((*begun, lines[0]))
        begun.clear()
    if rest:
        begun.append(rest)
    return lines


def _batches(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Split lines into batches that are short to read; empty lines are left out."""
    batch: list[bytes] = []
    n_bytes = 0
    for line in lines:
        if batch and (len(batch) == _LINES_AT_A_TIME or n_bytes + len(line) > _BYTES_AT_A_TIME):
            yield batch
            batch, n_bytes = [], 0
        if line:
            batch.append(line)
            n_bytes += len(line)
    if batch:
        yield batch
