"""Reused connections to one endpoint."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from scheduler.kube.http.protocol import HttpProtocol

if TYPE_CHECKING:
    from scheduler.kube.http.endpoint import Endpoint

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 15.0
"""How long an idle connection is kept: less than a server, or a load balancer before it, keeps it."""


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
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    def replace_endpoint(self, endpoint: Endpoint) -> None:
        """Use another endpoint, or other certificates, for new requests; requests in flight continue."""
        self.endpoint = endpoint
        self.close_idle()

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

    def take(self) -> HttpProtocol | None:
        """Return an idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if self._is_fresh(connection):
                self._busy[connection] = self.endpoint
                return connection
            connection.abort()
        return None

    async def open(self, deadline: float) -> HttpProtocol:
        """Return a new connection.

        Args:
            deadline: time limit on the loop's clock, at most `CONNECT_SECONDS` from now.

        Raises:
            OSError: the connection failed, or took too long.
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
        """Take back a connection from `take` or `open`; one with a half-read answer is closed."""
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
