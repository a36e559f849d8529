"""The network faults between one client and a server, for all its connections at once."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from enum import Enum
from typing import Self

from scheduler.clock import SystemClock

_PIECE_BYTES = 2**16
_SLOW_PIECE_BYTES = 2**10
_SLOW_SECONDS = 0.01
_BINDING = re.compile(rb"POST (\S+/binding) HTTP")


class Way(Enum):
    """How bytes fare."""

    OPEN = "open"
    SLOW = "slow"
    """About 100 KB a second."""
    HELD = "held"
    """They come when it is open again, as when a server stands still."""
    EATEN = "eaten"
    """They are taken and never arrive, and connections are taken and lead nowhere."""
    CUT = "cut"
    """Connections are closed, and none is taken."""


class Proxy:
    """Passes on what there is between a client and the server at a port; an async context manager.

    Attributes:
        port: where it listens.
        bindings: the path of each Binding -> when the client sent the last of them, whenever it arrives.
    """

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.bindings: dict[str, float] = {}
        self._server_port = server_port
        self._way = Way.OPEN
        self._open = asyncio.Event()
        self._open.set()
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def become(self, way: Way) -> None:
        """Treat all connections like this from now on."""
        was, self._way = self._way, way
        if way in {Way.HELD, Way.EATEN}:
            self._open.clear()
        else:
            self._open.set()
        if way is Way.CUT:
            await self._close()
        elif was is Way.CUT:
            await self._listen()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._way is Way.EATEN:
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(back)
        for ends in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass_on(*ends))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                data = await reader.read(_SLOW_PIECE_BYTES if self._way is Way.SLOW else _PIECE_BYTES)
                for path in _BINDING.findall(data):
                    self.bindings[path.decode()] = SystemClock().monotonic()
                if self._way is Way.EATEN:
                    await asyncio.Event().wait()  # this connection is lost for good
                await self._open.wait()
                if not data:
                    return
                if self._way is Way.SLOW:
                    await asyncio.sleep(_SLOW_SECONDS)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            self._writers.discard(writer)
            with suppress(RuntimeError):  # the loop ends
                writer.close()
