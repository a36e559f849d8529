"""Forwards a port of a pod through the API server and the kubelet, as `kubectl port-forward` does.

The local end is a Unix socket in a folder that only this user can enter, so that no other user of this
machine can use the connection. Each connection is a WebSocket of its own.

Source:
    Kubernetes v1.36, staging/src/k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go: the first byte
    of each message is its channel, and the first message of each channel repeats the port.
"""

from __future__ import annotations

import asyncio
import base64
import os
from contextlib import asynccontextmanager, suppress
from http.client import HTTPException, parse_headers
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from scheduler.kube.client.resources import PODS
from scheduler.kube.http.websocket import WebSocket, accept_of

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
        self._path = f"{PODS.path(namespace, pod, 'portforward')}?ports={port}"

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
            async with asyncio.timeout(_OPENING_SECONDS):
                from_server, to_server = await self._connected()
            try:
                async with asyncio.timeout(_OPENING_SECONDS):
                    await self._open(from_server, to_server)
                stream = WebSocket(from_server, to_server, is_client=True)
                sending = asyncio.create_task(_send(reader, stream))
                try:
                    self.problem = await _receive(stream, writer)
                finally:
                    sending.cancel()
            finally:
                to_server.close()
        except (OSError, HTTPException) as error:
            self.problem = str(error) or type(error).__name__
        finally:
            writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader()
        opened: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        await self._connection.endpoint.connect(
            lambda: asyncio.StreamReaderProtocol(reader, lambda _, writer: opened.set_result(writer))
        )
        return reader, await opened

    async def _open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Switch a connection to the WebSocket.

        Raises:
            OSError: the server refuses it, or the connection was lost.
        """
        endpoint = self._connection.endpoint
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {endpoint.target_prefix}{self._path} HTTP/1.1",
            f"Host: {endpoint.host}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: {PROTOCOL}",
            f"Sec-WebSocket-Key: {key}",
        ]
        headers = f"{endpoint.headers}{self._connection.authorization}"
        writer.write(("\r\n".join(lines) + f"\r\n{headers}\r\n").encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionResetError("the API server did not answer to pods/portforward") from error
        first, _, rest = head.partition(b"\r\n")
        status = first.decode("latin-1").split()[1:2]
        if status != ["101"]:
            raise ConnectionError(f"the API server answered {' '.join(status)} to pods/portforward")
        if parse_headers(BytesIO(rest)).get("Sec-WebSocket-Accept") != accept_of(key):
            raise ConnectionError("the API server answered without a WebSocket to pods/portforward")


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


async def _send(reader: asyncio.StreamReader, stream: WebSocket) -> None:
    with suppress(ConnectionError):  # the other side closed it; the receiver reports that
        while piece := await reader.read(_PIECE):
            await stream.send(bytes((DATA,)) + piece)
        await stream.close()


async def _receive(stream: WebSocket, writer: asyncio.StreamWriter) -> str:
    """Forward received data until the end; return the kubelet's error, "" for none."""
    begun = set[int]()
    problem = b""
    async for message in stream.messages():
        if not message:
            continue
        channel, piece = message[0], message[1:]
        if channel not in begun:
            begun.add(channel)
        elif channel == DATA:
            writer.write(piece)
            await writer.drain()
        else:
            problem += piece
    return problem.decode(errors="replace")
