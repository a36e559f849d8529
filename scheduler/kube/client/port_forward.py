"""Forwards a port of a pod through the API server and the kubelet, as `kubectl port-forward` does.

The local end is a Unix socket in a folder that only this user can enter, so that no other user of this
machine can use the connection. Each connection is a WebSocket of its own, by aiohttp: the own client has no
WebSockets, and a command that runs for seconds needs none that is faster.

Source:
    Kubernetes v1.36, staging/src/k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go: the first byte
    of each message is its channel, and the first message of each channel repeats the port.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import aiohttp

from scheduler.kube.certificates.trust import system_context
from scheduler.kube.client.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.kube.client.connection import ApiConnection

PROTOCOL: Final = "v4.channel.k8s.io"
DATA: Final = 0
_PIECE: Final = 2**16
_OPENING_SECONDS: Final = 10.0


class Forwarded:
    """A forwarded port of a pod.

    Attributes:
        path: path of the local Unix socket.
        problem: why the last connection failed or ended; "" for no problem.
    """

    def __init__(self, path: Path, connection: ApiConnection, namespace: str, pod: str, port: int) -> None:
        self.path = path
        self.problem = ""
        self._connection = connection
        self._carried: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        server = connection.endpoint.server
        self._url = f"{server}{PODS.path(namespace, pod, 'portforward')}?ports={port}"

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection from now on."""
        carrying = asyncio.create_task(self._carry(reader, writer))
        self._carried[carrying] = writer
        carrying.add_done_callback(self._carried.pop)

    async def end(self) -> None:
        """Close all forwarded connections."""
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
        return aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(socket) if socket else None, cookie_jar=aiohttp.DummyCookieJar()
        )

    async def _open(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        endpoint, authorization = self._connection.endpoint, self._connection.authorization
        return await session.ws_connect(
            self._url,
            protocols=(PROTOCOL,),
            headers={} if authorization is None else {"Authorization": authorization},
            ssl=endpoint.tls or system_context(),
            server_hostname=endpoint.server_hostname,
            proxy=endpoint.proxy or None,
        )


@asynccontextmanager
async def forwarded(
    connection: ApiConnection, namespace: str, pod: str, port: int
) -> AsyncIterator[Forwarded]:
    """Forward a port of a pod to a Unix socket while the block runs; nothing is sent before the first connection."""
    with TemporaryDirectory() as folder:
        way = Forwarded(Path(folder) / "port", connection, namespace, pod, port)
        server = await asyncio.start_unix_server(way.take, way.path)
        try:
            yield way
        finally:
            server.close()
            await way.end()


async def _send(reader: asyncio.StreamReader, stream: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(ConnectionError):  # the other side closed it; the receiver reports that
        while piece := await reader.read(_PIECE):
            await stream.send_bytes(bytes((DATA,)) + piece)
        await stream.close()


async def _receive(stream: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> str:
    """Forward received data until the end; return the kubelet's error, "" for none."""
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
