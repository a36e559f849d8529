"""The frames of a WebSocket, for both of its ends: binary messages of limited length.

Source:
    RFC 6455.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONGEST_MESSAGE_BYTES: Final = 2**24
_CONTINUED, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x2, 0x8, 0x9, 0xA
_LAST, _MASKED = 0x80, 0x80
_OPCODE, _LENGTH = 0x0F, 0x7F
_LONGER, _LONGEST = 126, 127
"""Values of the short length, after which the length follows in 2 or 8 bytes."""
_KEY: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_of(key: str) -> str:
    """Return the header `Sec-WebSocket-Accept` for a header `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key.encode() + _KEY, usedforsecurity=False).digest()).decode()


class WebSocket:
    """A connection on which both ends have switched to WebSocket.

    Args:
        is_client: whether this end opened the connection: a client masks what it sends.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._is_client = is_client

    async def send(self, message: bytes) -> None:
        """Send a binary message.

        Raises:
            OSError: the connection was lost.
        """
        self._write(_BINARY, message)
        await self._writer.drain()

    async def close(self) -> None:
        """Send the end of this side's messages."""
        self._write(_CLOSE, b"")
        await self._writer.drain()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages that arrive until the other end closes.

        Raises:
            OSError: the connection was lost, or what arrived is no WebSocket.
        """
        message = b""
        try:
            while True:
                head, payload = await self._frame()
                opcode = head & _OPCODE
                if opcode == _CLOSE:
                    return
                if opcode == _PING:
                    self._write(_PONG, payload)
                if opcode > _BINARY:
                    continue
                message += payload
                if len(message) > LONGEST_MESSAGE_BYTES:
                    raise ConnectionError("a message of the WebSocket is too long")
                if head & _LAST:
                    yield message
                    message = b""
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the connection was lost") from error

    async def _frame(self) -> tuple[int, bytes]:
        head, length = await self._reader.readexactly(2)
        size = length & _LENGTH
        if size >= _LONGER:
            size = int.from_bytes(await self._reader.readexactly(2 if size == _LONGER else 8))
        if size > LONGEST_MESSAGE_BYTES:
            raise ConnectionError("a message of the WebSocket is too long")
        mask = await self._reader.readexactly(4) if length & _MASKED else b""
        payload = await self._reader.readexactly(size)
        return head, _masked(payload, mask) if mask else payload

    def _write(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < _LONGER:
            short, long = size, b""
        elif size < 2**16:
            short, long = _LONGER, size.to_bytes(2)
        else:
            short, long = _LONGEST, size.to_bytes(8)
        mask = os.urandom(4) if self._is_client else b""
        head = bytes((_LAST | opcode, short | (_MASKED if mask else 0)))
        self._writer.write(head + long + mask + (_masked(payload, mask) if mask else payload))


def _masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(repeated)).to_bytes(size)
