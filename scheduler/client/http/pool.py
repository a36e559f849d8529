"""Connections to one endpoint, kept for the next request."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from scheduler.client.http.protocol import HttpProtocol

if TYPE_CHECKING:
    from scheduler.client.http.endpoint import Endpoint

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 15.0
"""How long a connection is kept unused: not longer than a server, or a balancer before it, would keep it."""


class ConnectionPool:
    """As many connections as there are requests under way; those used last are used first.

    Lanes and watches limit themselves, so there is no limit here, which would let events hold up a bind.

    Attributes:
        endpoint: where new connections lead.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._idle: deque[HttpProtocol] = deque()  # the one that was used last at the end
        self._busy: dict[HttpProtocol, Endpoint] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    def replace_endpoint(self, endpoint: Endpoint) -> None:
        """Lead new requests elsewhere, or there with another certificate; what is under way goes on."""
        self.endpoint = endpoint
        self.close_idle()

    @property
    def silent_since(self) -> float | None:
        """The loop's time when something was heard last over any connection; None where no stream is open."""
        if not any(connection.is_streaming for connection in self._busy):
            return None
        return max(connection.heard_at for connection in (*self._busy, *self._idle))

    def close_idle(self) -> None:
        """Close what is kept for the next request: it may lead nowhere."""
        while self._idle:
            self._idle.pop().abort()

    def cut_streams(self, silent_since: float) -> None:
        """Have streams fail that brought nothing since then, by the loop's time."""
        for connection in list(self._busy):
            if connection.is_streaming and connection.heard_at <= silent_since:
                connection.abort()

    def take(self) -> HttpProtocol | None:
        """Hand out a connection that is there already, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if self._is_fresh(connection):
                self._busy[connection] = self.endpoint
                return connection
            connection.abort()
        return None

    async def open(self, deadline: float) -> HttpProtocol:
        """Hand out a new connection.

        Args:
            deadline: the loop's time until which it must be there, at most `CONNECT_SECONDS` from now.

        Raises:
            OSError: nobody took it, or not in time.
        """
        self._check_open()
        endpoint = self.endpoint
        now = asyncio.get_running_loop().time()
        async with asyncio.timeout_at(min(deadline, now + CONNECT_SECONDS)):
            connection = await endpoint.connect(HttpProtocol)
        try:
            self._check_open()
        except ConnectionError:
            connection.abort()
            raise
        self._busy[connection] = endpoint
        return connection

    def give_back(self, connection: HttpProtocol) -> None:
        """Take back what `take` or `open` handed out; one with an answer half read is closed."""
        endpoint = self._busy.pop(connection, None)
        if not connection.is_open or endpoint is not self.endpoint:
            connection.abort()
            return
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)

    async def close(self) -> None:
        """Close all connections; what is under way fails, and so does what begins."""
        self._is_closed = True
        self.close_idle()
        for connection in list(self._busy):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        await asyncio.sleep(0)  # their sockets are closed by the loop

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
