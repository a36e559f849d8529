"""One keep-alive connection: a request is sent in one write, and llhttp parses the answer as it arrives."""

from __future__ import annotations

import asyncio
import math
import socket
from typing import cast

import httptools

_READ_AHEAD_BYTES = 2**21

UNACKNOWLEDGED_SECONDS = 5
"""How long sent data may stay unacknowledged by the peer's system before the connection is lost.

Data lost with the connection is not delivered later. So a Binding of a leader that is cut off does not arrive
after another leader took over: by default the renew deadline ends this many seconds before the lease does.
"""
_IDLE_SECONDS, _PROBE_SECONDS = 5, 2
_DEAD_PEERS = {  # not every system has all of them
    "SO_KEEPALIVE": (socket.SOL_SOCKET, 1),
    "TCP_KEEPIDLE": (socket.IPPROTO_TCP, _IDLE_SECONDS),
    "TCP_KEEPINTVL": (socket.IPPROTO_TCP, _PROBE_SECONDS),
    "TCP_KEEPCNT": (socket.IPPROTO_TCP, 3),
    "TCP_USER_TIMEOUT": (socket.IPPROTO_TCP, UNACKNOWLEDGED_SECONDS * 1000),
}
"""Keepalive options. A peer that vanishes is detected after about ten seconds, also on an idle connection."""


class AnswerTooLargeError(ConnectionError):
    """The answer exceeds the limit of its request; the connection is closed."""


def _anew(error: Exception) -> Exception:
    """Return a copy of an error to raise: the traceback of a raised one refers to the connection, which keeps the error."""
    return type(error)(*error.args)


class HttpProtocol(asyncio.Protocol):
    """One connection, with one request in flight at a time.

    Call `begin` and await its result, then read the body with `taken`; or call `begin_piecewise` and read the
    body with `take` as it arrives.

    Attributes:
        status: status of the answer; 0 while there is none.
        headers: headers of the answer by name, unchanged; of several with one name, the last one.
        on_header: receives a header from the parser.
        received: bytes of the answer so far, head included.
        idle_since: the loop's time at the end of the last request.
        heard_at: the loop's time of the last data received, or else of connecting.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.received = 0
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self.heard_at = self._loop.time()
        self._transport: asyncio.Transport | None = None
        self.on_header = self.headers.__setitem__  # no method: an answer has some ten headers
        self._parser = httptools.HttpResponseParser(self)
        self._error: Exception | None = None  # why the connection cannot be used any more
        self._keeps_alive = True
        self._is_busy = False  # until the answer is complete
        self._waiter: asyncio.Future[None] | None = None
        self._body: list[bytes] = []
        self._is_piecewise = False
        self._most_bytes = math.inf
        self._ahead_bytes = 0  # unread bytes of a body that is read piecewise
        self._is_paused = False
        self._silence_seconds: float | None = None
        self._deadline = 0.0
        self._watchdog: asyncio.TimerHandle | None = None

    @property
    def is_streaming(self) -> bool:
        """Whether an answer of unlimited length is being read as it arrives."""
        return self._is_busy and self._silence_seconds is not None

    @property
    def is_open(self) -> bool:
        """Whether the connection can send another request."""
        return (
            self._keeps_alive
            and not self._is_busy
            and self._error is None
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def header(self, name: bytes) -> str | None:
        """Return a header of the answer by its name in lower case."""
        for each, value in self.headers.items():
            if each.lower() == name:
                return value.decode("latin-1")
        return None

    def begin(self, request: bytes, deadline: float, most_bytes: float = math.inf) -> asyncio.Future[None]:
        """Send head and body of a request; the system has all it accepts at once when this returns.

        Args:
            request: head and body.
            deadline: the loop's time at which the answer must be complete.
            most_bytes: the limit of the answer, head included.

        Returns:
            A future, done when the answer is complete; its error is a TimeoutError, an AnswerTooLargeError, or
            an OSError if the connection was lost or the answer is not HTTP.
        """
        self._silence_seconds = None
        self._most_bytes = most_bytes
        self._is_piecewise = False
        self._watch(deadline)
        return self._write(request)

    def begin_piecewise(self, request: bytes, silence_seconds: float | None = None) -> asyncio.Future[None]:
        """Send a request as `begin` does; the answer is read as it arrives.

        Args:
            request: head and body.
            silence_seconds: how long the server may send nothing; None for no limit.

        Returns:
            A future, done when status and headers are there; errors as of `begin`.
        """
        self._silence_seconds = silence_seconds
        self._most_bytes = math.inf
        self._is_piecewise = True
        if silence_seconds is not None:
            self._watch(self._loop.time() + silence_seconds)
        return self._write(request)

    async def take(self) -> bytes:
        """Wait for more of the body and return the unread part, b"" at its end; raises the errors of `begin`."""
        while not self._body and self._is_busy:
            if self._error is not None:
                raise _anew(self._error)
            self._waiter = self._loop.create_future()
            await self._waiter
        return self.taken()

    def taken(self) -> bytes:
        """Return the unread part of the body."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._ahead_bytes = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return body

    def abort(self) -> None:
        """Close the connection, also with a request in flight."""
        self._fail(ConnectionAbortedError("closed on this side"))

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in {socket.AF_INET, socket.AF_INET6}:
            for name, (level, value) in _DEAD_PEERS.items():
                if hasattr(socket, name):
                    connected.setsockopt(level, getattr(socket, name), value)

    def data_received(self, data: bytes) -> None:
        if not self._is_busy:
            # Unsolicited, such as the 408 of a server that closes an idle connection.
            self.abort()
            return
        self.received += len(data)
        if self.received > self._most_bytes:
            self._body.clear()  # an owner of the error must not keep it
            self._fail(AnswerTooLargeError(f"the response has more than {self._most_bytes} bytes"))
            return
        self.heard_at = self._loop.time()
        if self._silence_seconds is not None:
            self._deadline = self.heard_at + self._silence_seconds
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"unreadable answer: {error!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_busy and exc is None and self.status and self._ends_with_connection():
            self._complete()
        self._fail(exc or ConnectionResetError("Server disconnected"))
        # Both refer back to this object: without them it is freed at once, without the garbage collector.
        del self._parser
        self._transport = None

    # Callbacks of the parser.

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim response
            self.headers.clear()
            return
        self.status = status
        if self._is_piecewise:
            self._wake()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        if not self._is_piecewise:
            return
        self._ahead_bytes += len(body)
        if self._ahead_bytes > _READ_AHEAD_BYTES and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self.status:
            self._keeps_alive = self._parser.should_keep_alive()
            self._complete()

    def _write(self, request: bytes) -> asyncio.Future[None]:
        assert self._transport is not None
        self.status = 0
        self.headers.clear()
        self.received = 0
        self._body.clear()  # a reader that was cancelled did not read it
        self._ahead_bytes = 0
        self._is_busy = True
        self._waiter = self._loop.create_future()
        self._transport.write(request)
        return self._waiter

    def _complete(self) -> None:
        self._is_busy = False
        self.idle_since = self._loop.time()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(_anew(self._error))
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _ends_with_connection(self) -> bool:
        return self.header(b"content-length") is None and self.header(b"transfer-encoding") is None

    def _watch(self, deadline: float) -> None:
        """Limit the time of the answer with a timer that is reused: requests are many and short."""
        self._deadline = deadline
        if self._watchdog is None or deadline < self._watchdog.when():
            if self._watchdog is not None:
                self._watchdog.cancel()
            self._watchdog = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._watchdog = None
        if not self._is_busy:
            return
        if self._loop.time() < self._deadline:
            self._watchdog = self._loop.call_at(self._deadline, self._look)
        else:
            self._fail(TimeoutError("no answer in time"))
