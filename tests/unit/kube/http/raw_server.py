"""A server that sends exactly the bytes of a test, in answer to whole requests."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.kube.http.endpoint import Endpoint

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Visit:
    """One connection, on the server's side."""

    def __init__(self, server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """Read the next request; its end raises IncompleteReadError."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        body = await self._reader.readexactly(int(length or 0))
        self._server.requests.append(head + body)
        return head + body

    def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)


class RawServer:
    """Attributes: requests: all received requests; connections: number of opened connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.requests: list[bytes] = []
        self.connections = 0


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    path: str = "",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve each connection with a function, on a Unix socket or on a port, which is yielded; then close it."""
    visits = set()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.add(asyncio.current_task())
        try:
            with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
                await serve(reader, writer)
        finally:
            writer.close()

    if path:
        listener = await asyncio.start_unix_server(visit, path)
    else:
        listener = await asyncio.start_server(visit, "127.0.0.1", 0, ssl=tls)
    try:
        yield 0 if path else listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for each in visits:
            each.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes their sockets


@asynccontextmanager
async def raw_server(
    serve: Callable[[Visit], Awaitable[None]], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Serve each connection with a function, on a Unix socket, or with `tls` on a port."""

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        await serve(Visit(server, reader, writer))

    with tempfile.TemporaryDirectory() as folder:
        path = "" if tls else str(Path(folder) / "s")
        async with listening(visit, path=path, tls=tls) as port:
            endpoint = (
                Endpoint("http://localhost", unix_socket=path)
                if path
                else Endpoint(f"https://127.0.0.1:{port}")
            )
            server = RawServer(endpoint)
            yield server


async def always_ok(visit: Visit) -> None:
    while True:
        await visit.request()
        visit.say(OK)
