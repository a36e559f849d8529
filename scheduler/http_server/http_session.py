"""One connection to the server, in HTTP/1.1: requests are read and answered one after another.

Source:
    for time limits of clients: kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/secure_serving.go.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, contextmanager, nullcontext, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs, unquote

import httptools

from scheduler.http_server.messages import (
    ClientGoneError,
    RequestTooLongError,
    ServerRequest,
    ServerResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.http_server.messages import Conversation, Handler

logger = logging.getLogger(__name__)

LONGEST_HEAD_BYTES = 2**16
FIRST_BYTE_SECONDS = 32.0
"""How long a new connection may send nothing."""
_MOST_HEADERS = 256
LONGEST_TARGET_BYTES = 2048
_MOST_QUERIES = 32
"""The number of query parameters: parsing longer targets or queries costs milliseconds."""
_IDLE_SECONDS = 3600.0
"""How long an idle connection is kept: longer than clients and load balancers keep theirs."""
_HEAD_SECONDS = 32.0
"""How long the header of a request may take."""
_BODY_SECONDS = 60.0
"""How long the body of a request may take."""
_SMALL_BODY_BYTES = 2**16
_LINGERING_SECONDS = 10.0
"""How long an unneeded body is read: a client that is still writing does not see the response."""
_TAKING_SECONDS = 60.0
"""How long a client may take to read enough of a response so that more can be written."""
_UNREAD_BYTES = 2**16
"""Written data that a client need not have read; asyncio's own limit."""
_READ_BYTES = 2**16
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n").fullmatch
_GONE = (OSError, asyncio.IncompleteReadError)  # OSError includes ssl.SSLError and TimeoutError


class _UnreadableError(Exception):
    """The received bytes are not a valid request."""

    def __init__(self, status: HTTPStatus) -> None:
        self.answer = ServerResponse(f"{status.value} {status.phrase}\n".encode(), status)


class ClientRecord(Protocol):
    """The state of a client in the listener.

    Attributes:
        peer: the key by which connections of one client are counted.
        is_known: whether the client was admitted; set here after an admitted request.
        large_bodies: limits the large bodies that are read at a time, over all connections.
    """

    is_known: bool

    @property
    def peer(self) -> str: ...

    def pause_seconds(self) -> float:
        """Count a response, and return the delay before the next request is read."""
        ...

    @property
    def large_bodies(self) -> asyncio.Semaphore: ...

    def we_wait(self) -> None:
        """Record that the server waits for the client: the connection may be closed, which cancels the session."""
        ...

    def peer_waits(self) -> None:
        """Record that the client waits for the server."""
        ...


class _Head:
    """The header of a request.

    Raises:
        httptools.HttpParserError: the lines are not a request.
        ValueError: there are too many query parameters.
        _UnreadableError: a limit is exceeded, or the header is incomplete.
    """

    def __init__(self, lines: bytes, longest_target_bytes: int) -> None:
        self._url = b""
        self.header_values: dict[str, list[str]] = {}
        self._n_headers = 0
        self._is_whole = False
        self.method = ""
        self.keeps_alive = False
        self._parser = httptools.HttpRequestParser(self)
        # An upgrade to another protocol is ignored: the request is answered in HTTP/1.1.
        with suppress(httptools.HttpParserUpgrade):
            self._parser.feed_data(lines)
        del self._parser  # it refers to this object
        if self._n_headers > _MOST_HEADERS:
            raise _UnreadableError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if not self._is_whole:
            raise _UnreadableError(HTTPStatus.BAD_REQUEST)
        if len(self._url) > longest_target_bytes:
            raise _UnreadableError(HTTPStatus.REQUEST_URI_TOO_LONG)
        self.headers = {name: ",".join(values) for name, values in self.header_values.items()}
        url = httptools.parse_url(self._url)
        self.path = unquote((url.path or b"/").decode("latin-1"))
        query = (url.query or b"").decode("latin-1")
        self.query = parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_QUERIES)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._n_headers += 1
        if self._n_headers > _MOST_HEADERS:
            return
        self.header_values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        parser = self._parser
        self._is_whole = True
        self.method = parser.get_method().decode()
        # A client of HTTP/1.0 needs a header to keep a connection, and cannot read a chunked response.
        is_new = parser.get_http_version() == "1.1" and not parser.should_upgrade()
        self.keeps_alive = is_new and parser.should_keep_alive()


class SessionReader(asyncio.StreamReader):
    """The bytes that a client sends.

    Attributes:
        has_ended: whether the client has closed the connection.
        on_end: called when it does; None for nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(LONGEST_HEAD_BYTES, loop)
        self.has_ended = False
        self.on_end: Callable[[], object] | None = None

    def feed_eof(self) -> None:
        super().feed_eof()
        self._end()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._end()

    def _end(self) -> None:
        self.has_ended = True
        if self.on_end is not None:
            self.on_end()


class HttpSession:
    """One connection.

    Args:
        handler: answers requests.
        longest_body_bytes: limit of a request's body; a longer one is not read.
        longest_target_bytes: limit of a request's path and query.
        client: notified when either side waits for the other.

    Attributes:
        is_idle: whether no request is in progress.
    """

    def __init__(
        self,
        reader: SessionReader,
        writer: asyncio.StreamWriter,
        handler: Handler,
        longest_body_bytes: int,
        longest_target_bytes: int,
        client: ClientRecord,
    ) -> None:
        self.is_idle = True
        self._has_answered = False
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._longest_body_bytes = longest_body_bytes
        self._longest_target_bytes = longest_target_bytes
        self._client = client
        self._unread_bytes = 0  # of the body of the request that is being answered
        self._has_unread_chunks = False

    async def run(self) -> bool:
        """Answer requests until the connection ends; return False if the server ended it and must drop unwritten data."""
        try:
            while await self._answer_next():
                self.is_idle = True
                # Also for 0 seconds: requests that have already arrived must not block the loop's other work.
                await asyncio.sleep(self._client.pause_seconds())
        except TimeoutError:
            return self.is_idle and self._has_answered
        except (*_GONE, ClientGoneError) as error:
            return not isinstance(error.__cause__, TimeoutError)
        return True

    async def _answer_next(self) -> bool:
        """Wait for a request and answer it; return whether another one may follow."""
        self._client.we_wait()
        try:
            head = await self._head()
        except _UnreadableError as error:
            await self._write(error.answer, keeps_alive=False, is_whole=True)
            return False
        self.is_idle = False
        self._client.peer_waits()
        answer = await self._answer(head)
        self._client.we_wait()
        if callable(answer.body):
            await self._switch(answer, answer.body)
            return False
        keeps_alive = head.keeps_alive and not self._has_unread_chunks
        await self._write(answer, keeps_alive=keeps_alive, is_whole=head.method != "HEAD")
        await self._skip_body()
        self._has_answered = True
        return keeps_alive

    async def _answer(self, head: _Head) -> ServerResponse:
        async def read() -> bytes:
            self._client.we_wait()
            body = await self._body(is_expected=head.headers.get("expect", "").lower() == "100-continue")
            self._client.peer_waits()
            return body

        shows_certificate = self._writer.get_extra_info("peercert") is not None
        client = self._client
        client.is_known = client.is_known or shows_certificate
        request = ServerRequest(
            head.method,
            head.path,
            head.query,
            head.headers,
            client.peer,
            shows_certificate,
            read,
            header_values=head.header_values,
            has_left=lambda: self._reader.has_ended,
        )
        try:
            answer = await self._handler(request)
        except ClientGoneError:
            raise
        except Exception:
            logger.exception("Page failed", extra={"method": head.method, "path": head.path})
            return ServerResponse(b"500 Internal Server Error\n", HTTPStatus.INTERNAL_SERVER_ERROR)
        client.is_known = client.is_known or request.is_let_in
        return answer

    async def _head(self) -> _Head:
        try:
            async with asyncio.timeout(_IDLE_SECONDS if self._has_answered else FIRST_BYTE_SECONDS) as limit:
                begun = await self._reader.readexactly(1)
                limit.reschedule(asyncio.get_running_loop().time() + _HEAD_SECONDS)
                lines = begun + await self._reader.readuntil(b"\r\n\r\n")
            head = _Head(lines, self._longest_target_bytes)
            self._unread_bytes = int(head.headers.get("content-length", "0"))
        except asyncio.LimitOverrunError as error:
            raise _UnreadableError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
        except (httptools.HttpParserError, ValueError) as error:
            raise _UnreadableError(HTTPStatus.BAD_REQUEST) from error
        encoding = head.headers.get("transfer-encoding", "").lower()
        if encoding not in {"", "chunked"}:
            raise _UnreadableError(HTTPStatus.LENGTH_REQUIRED)
        self._has_unread_chunks = bool(encoding)
        return head

    async def _body(self, *, is_expected: bool) -> bytes:
        if not (self._unread_bytes or self._has_unread_chunks):
            return b""
        self._check_length(self._unread_bytes)
        is_large = self._has_unread_chunks or self._unread_bytes > _SMALL_BODY_BYTES
        try:
            async with (
                asyncio.timeout(_BODY_SECONDS),
                self._client.large_bodies if is_large else nullcontext(),
            ):
                if is_expected:
                    self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                if self._has_unread_chunks:
                    return await self._chunks()
                body = await self._reader.readexactly(self._unread_bytes)
        except (*_GONE, asyncio.LimitOverrunError) as error:
            raise ClientGoneError from error
        self._unread_bytes = 0
        return body

    async def _chunks(self) -> bytes:
        """Read a body of unknown length; one that is too long, or is not valid, ends the connection."""
        body = bytearray()
        while True:
            line = await self._reader.readuntil(b"\r\n")
            found = _CHUNK_SIZE(line)
            if found is None:
                raise ClientGoneError
            size = int(found[1], 16)
            if not size:
                break
            self._check_length(len(body) + size)
            body += await self._reader.readexactly(size)
            if await self._reader.readexactly(2) != b"\r\n":
                raise ClientGoneError
        if await self._reader.readexactly(2) != b"\r\n":  # trailers
            raise ClientGoneError
        self._has_unread_chunks = False
        return bytes(body)

    def _check_length(self, length: int) -> None:
        if length > self._longest_body_bytes:
            raise RequestTooLongError(f"a request is at most {self._longest_body_bytes} bytes long")

    async def _skip_body(self) -> None:
        async with asyncio.timeout(_LINGERING_SECONDS):
            while self._has_unread_chunks and await self._reader.read(_READ_BYTES):
                pass
            while self._unread_bytes:
                skipped = len(await self._reader.read(min(self._unread_bytes, _READ_BYTES)))
                if not skipped:
                    raise ConnectionResetError
                self._unread_bytes -= skipped

    async def _write(self, answer: ServerResponse, *, keeps_alive: bool, is_whole: bool) -> None:
        body = answer.body
        assert not callable(body)
        if not (keeps_alive or isinstance(body, bytes | AsyncGenerator)):
            body = await _joined(body)
        length = f"Content-Length: {len(body)}" if isinstance(body, bytes) else "Transfer-Encoding: chunked"
        head = _encoded_head(
            answer,
            f"Content-Type: {answer.content_type}",
            *([] if keeps_alive else ["Connection: close"]),
            length,
        )
        if not is_whole:
            self._writer.write(head)
        elif isinstance(body, bytes):
            self._writer.write(head + body)  # one write: two would wait for each other
        else:
            self._writer.write(head)
            if isinstance(body, AsyncGenerator):
                await self._write_as_it_comes(body)
            else:
                for piece in filter(None, body):
                    await self._write_piece(piece)
            self._writer.write(b"0\r\n\r\n")
        await self._taken()

    async def _switch(self, answer: ServerResponse, conversation: Conversation) -> None:
        self._writer.write(_encoded_head(answer, "Connection: Upgrade"))
        with self._ending_with_the_client():
            await conversation(self._reader, self._writer)

    async def _write_as_it_comes(self, body: AsyncGenerator[bytes, None]) -> None:
        with self._ending_with_the_client():
            async with aclosing(body):
                async for piece in body:
                    await self._write_piece(piece)

    @contextmanager
    def _ending_with_the_client(self) -> Iterator[None]:
        """Cancel the session in the block when the client closes the connection, or when the server closes."""
        self.is_idle = True  # a stream has no end to wait for
        if self._reader.has_ended:
            raise ConnectionResetError
        task = asyncio.current_task()
        assert task is not None
        self._reader.on_end = task.cancel
        try:
            yield
        finally:
            self._reader.on_end = None

    async def _write_piece(self, piece: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await self._taken()
        await asyncio.sleep(0)

    async def _taken(self) -> None:
        """Wait until the client has read enough of the written data."""
        transport = self._writer.transport
        if transport.get_write_buffer_size() <= _UNREAD_BYTES and not transport.is_closing():
            return  # the usual case, without a timer
        async with asyncio.timeout(_TAKING_SECONDS):
            await self._writer.drain()


def _encoded_head(answer: ServerResponse, *more: str) -> bytes:
    date = answer.headers.get("Date") or time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    lines = [
        f"HTTP/1.1 {answer.status:d} {HTTPStatus(answer.status).phrase}",
        *(f"{name}: {value}" for name, value in {**answer.headers, "Date": date}.items()),
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _joined(pieces: Iterable[bytes]) -> bytes:
    """Return all pieces joined; other tasks run between two pieces."""
    found = []
    for piece in pieces:
        found.append(piece)
        await asyncio.sleep(0)
    return b"".join(found)
