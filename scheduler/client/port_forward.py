"""A port of a pod, by way of the API server and the kubelet, as `kubectl port-forward` has it.

It is listened for on a Unix socket in a folder that nobody else may enter, so that no other user of this machine can
use the way as well. Each connection is a WebSocket of its own.

Source:
    Kubernetes v1.36, staging/src/k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go: of each message the first
    byte is its channel, and the first message of each channel repeats the port.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import aiohttp

from scheduler.client.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.client.connection import ApiConnection

PROTOCOL: Final = "v4.channel.k8s.io"
DATA: Final = 0
_PIECE: Final = 2**16
_OPENING_SECONDS: Final = 10.0


class Forwarded:
    """A port of a pod.

    Attributes:
        path: of the Unix socket behind which it is.
        problem: why the last connection could not be made, or ended; "" if all is well.
    """

    def __init__(self, path: Path, connection: ApiConnection, namespace: str, pod: str, port: int) -> None:
        self.path = path
        self.problem = ""
        self._connection = connection
        self._carried: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        server = connection.endpoint.server
        self._url = f"{server}{PODS.path(namespace, pod, 'portforward')}?ports={port}"

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection from now on."""
        carrying = asyncio.create_task(self._carry(reader, writer))
        self._carried[carrying] = writer
        carrying.add_done_callback(self._carried.pop)

    async def end(self) -> None:
        """Cut what is carried."""
        for carrying, writer in self._carried.items():
            carrying.cancel()
            writer.close()
        await asyncio.gather(*self._carried, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._session() as session:
                async with asyncio.timeout(_OPENING_SECONDS):
                    stream = await self._open(session)
                async with stream:
                    sending = asyncio.create_task(_send(reader, stream))
                    try:
                        self.problem = await _receive(stream, writer)
                    finally:
                        sending.cancel()
        except aiohttp.WSServerHandshakeError as error:
            self.problem = f"the API server answered {error.status} to pods/portforward"
        except (aiohttp.ClientError, OSError) as error:
            self.problem = str(error) or type(error).__name__
        finally:
            writer.close()

    def _session(self) -> aiohttp.ClientSession:
        socket = str(self._connection.endpoint.unix_socket)
        return aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket) if socket else None)

    async def _open(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        endpoint, authorization = self._connection.endpoint, self._connection.authorization
        return await session.ws_connect(
            self._url,
            protocols=(PROTOCOL,),
            headers={} if authorization is None else {"Authorization": authorization},
            ssl=endpoint.tls or True,
            server_hostname=endpoint.server_hostname,
            proxy=endpoint.proxy or None,
        )


@asynccontextmanager
async def forwarded(
    connection: ApiConnection, namespace: str, pod: str, port: int
) -> AsyncIterator[Forwarded]:
    """Have a port of a pod on a Unix socket while the block runs; nothing is asked before the first connection."""
    with TemporaryDirectory() as folder:
        way = Forwarded(Path(folder) / "port", connection, namespace, pod, port)
        server = await asyncio.start_unix_server(way.take, way.path)
        try:
            yield way
        finally:
            server.close()
            await way.end()


async def _send(reader: asyncio.StreamReader, stream: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(ConnectionError):  # the other side ended it, and whoever receives knows
        while piece := await reader.read(_PIECE):
            await stream.send_bytes(bytes((DATA,)) + piece)
        await stream.close()


async def _receive(stream: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> str:
    """Hand on what comes until the end; return what the kubelet says went wrong, "" if nothing."""
    begun = set[int]()
    problem = b""
    async for message in stream:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, piece = message.data[0], message.data[1:]
        if channel not in begun:
            begun.add(channel)
        elif channel == DATA:
            writer.write(piece)
            await writer.drain()
        else:
            problem += piece
    return problem.decode(errors="replace")
