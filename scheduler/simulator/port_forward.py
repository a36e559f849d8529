"""Simulates a kubelet that forwards a pod's port: a port of this machine stands for the pod's.

Source:
    Kubernetes v1.36, staging/src/k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import WSMsgType, web

PROTOCOL: Final = "v4.channel.k8s.io"
_PIECE: Final = 2**16


async def forward(http: web.BaseRequest, asked: int, port: int) -> web.StreamResponse:
    """Relay a connection for a pod's port to a port of this machine, until either side ends it."""
    stream = web.WebSocketResponse(protocols=(PROTOCOL,))
    await stream.prepare(http)
    told = asked.to_bytes(2, "little")
    for channel in (b"\0", b"\1"):
        await stream.send_bytes(channel + told)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        await stream.send_bytes(b"\1" + f"error forwarding port: {error}".encode())
        await stream.close()
        return stream
    answering = asyncio.create_task(_answer(reader, stream))
    try:
        async for message in stream:
            if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
                writer.write(message.data[1:])
                await writer.drain()
    finally:
        answering.cancel()
        writer.close()
    return stream


async def _answer(reader: asyncio.StreamReader, stream: web.WebSocketResponse) -> None:
    with suppress(ConnectionError):  # the client disconnected
        while piece := await reader.read(_PIECE):
            await stream.send_bytes(b"\0" + piece)
        await stream.close()
