"""Reused connections to one endpoint, and the exchange of a request for an answer over one of them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING

from scheduler.kube.http.protocol import HttpProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.kube.http.endpoint import Endpoint

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 15.0
"""How long an idle connection is kept: less than a server, or a load balancer before it, keeps it."""

_RESENT = frozenset({"GET", "PUT", "DELETE"})
"""Methods that may be carried out twice: resent once over another connection if no byte of an answer came."""


class NotConnectedError(ConnectionError):
    """No connection could be opened, so the request was never sent; the message has the server and the cause."""


class ConnectionPool:
    """As many connections as requests in flight; the most recently used connection is reused first.

    Lanes and watches limit their own requests. A limit here would let events delay a bind.

    Attributes:
        endpoint: the endpoint of new connections.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._idle: deque[HttpProtocol] = deque()  # the most recently used one last
        self._busy: dict[HttpProtocol, Endpoint] = {}
        self._opening = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    def replace_endpoint(self, endpoint: Endpoint) -> None:
        """Use another endpoint, or other certificates, for new requests; requests in flight continue."""
        self.endpoint = endpoint
        self.close_idle()

    @property
    def is_used(self) -> bool:
        """Whether there is any connection, or one is being opened."""
        return bool(self._idle or self._busy or self._opening)

    @property
    def silent_since(self) -> float | None:
        """The loop's time of the last data received over any connection; None if no stream is open."""
        if not any(connection.is_streaming for connection in self._busy):
            return None
        return max(connection.heard_at for connection in (*self._busy, *self._idle))

    def close_idle(self) -> None:
        """Close the idle connections: they may be dead."""
        while self._idle:
            self._idle.pop().abort()

    def cut_streams(self, silent_since: float) -> None:
        """Abort streams that received nothing since a time of the loop."""
        for connection in list(self._busy):
            if connection.is_streaming and connection.heard_at <= silent_since:
                connection.abort()

    async def exchange(
        self,
        method: str,
        encode: Callable[[], bytes],
        deadline: float,
        *,
        check: Callable[[], None] | None = None,
        silence_seconds: float | None = None,
        on_new_connection: bool = False,
        most_bytes: float = math.inf,
    ) -> HttpProtocol:
        """Send a request and return a connection with the answer, to be given back.

        Args:
            method: the HTTP method.
            encode: returns the request; called when a connection exists.
            deadline: the loop's time at which the answer must be complete; for a stream, the connection.
            check: called before a connection is opened, and again right before the request is written, when there
                is nothing left to wait for. Its exceptions are raised here, and then nothing was sent.
            silence_seconds: for a stream, how long the server may send nothing; its head is there on return.
            on_new_connection: do not reuse a connection.
            most_bytes: the limit of the answer, head included.

        Raises:
            NotConnectedError: nothing was sent.
            OSError: the request was sent, and no answer came, or none in time or within the limit.
        """
        lost: BaseException | None = None
        try:
            while True:
                connection = None if on_new_connection else self.take()
                try:
                    connection = connection or await self._connected(deadline, check)
                    if check is not None:
                        check()
                    # No other task has run since the check.
                    if silence_seconds is None:
                        await connection.begin(encode(), deadline, most_bytes)
                    else:
                        await connection.begin_piecewise(encode(), silence_seconds)
                except BaseException as error:
                    if connection is not None:
                        self.give_back(connection)
                    if lost is not None and isinstance(error, Exception):
                        raise lost from None  # the first try was sent, and may have been carried out
                    if connection is None or not _may_be_resent(method, connection, error):
                        raise
                    lost = error
                else:
                    return connection
        finally:
            lost = None  # its traceback refers to this frame, and so to the connection

    def take(self) -> HttpProtocol | None:
        """Return an idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if self._is_fresh(connection):
                self._busy[connection] = self.endpoint
                return connection
            connection.abort()
        return None

    def give_back(self, connection: HttpProtocol) -> None:
        """Take back a connection from `exchange`; one with a half-read answer is closed."""
        endpoint = self._busy.pop(connection, None)
        if not connection.is_open or endpoint is not self.endpoint:
            connection.abort()
            return
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)

    async def close(self) -> None:
        """Close all connections; requests in flight and later ones fail."""
        self._is_closed = True
        self.close_idle()
        for connection in list(self._busy):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        await asyncio.sleep(0)  # the loop closes their sockets

    async def _connected(self, deadline: float, check: Callable[[], None] | None) -> HttpProtocol:
        if check is not None:
            check()
        endpoint = self.endpoint
        limit = min(deadline, asyncio.get_running_loop().time() + CONNECT_SECONDS)
        self._opening += 1
        try:
            self._check_open()
            async with asyncio.timeout_at(limit):
                connection = await endpoint.connect(HttpProtocol)
            if self._is_closed:
                connection.abort()
            self._check_open()
            self._busy[connection] = endpoint
        except OSError as error:
            raise NotConnectedError(endpoint.why_not(error)) from error
        finally:
            self._opening -= 1
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionAbortedError("closed on this side")

    def _sweep(self) -> None:
        while self._idle and not self._is_fresh(self._idle[0]):
            self._idle.popleft().abort()
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(IDLE_SECONDS, self._sweep) if self._idle else None

    def _is_fresh(self, connection: HttpProtocol) -> bool:
        seconds = asyncio.get_running_loop().time() - connection.idle_since
        return connection.is_open and seconds < IDLE_SECONDS


def _may_be_resent(method: str, connection: HttpProtocol, error: BaseException) -> bool:
    is_lost = isinstance(error, OSError) and not isinstance(error, TimeoutError)
    return is_lost and method in _RESENT and not connection.received
