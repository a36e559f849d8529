"""The frames of a WebSocket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from scheduler.http_server.listener import Listener, listening_socket
from scheduler.http_server.messages import ServerResponse
from scheduler.kube.http.websocket import LONGEST_MESSAGE_BYTES, WebSocket, accept_of

if TYPE_CHECKING:
    from scheduler.http_server.messages import ServerRequest

pytestmark = pytest.mark.run(by=asyncio.run)

LENGTHS = [0, 1, 125, 126, 65_535, 65_536, 300_001]


def test_the_accept_header_is_that_of_the_standard() -> None:
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


async def echo(request: ServerRequest) -> ServerResponse:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = WebSocket(reader, writer, is_client=False)
        async for message in stream.messages():
            await stream.send(message)

    key = request.headers["sec-websocket-key"]
    headers = {"Upgrade": "websocket", "Sec-WebSocket-Accept": accept_of(key)}
    return ServerResponse(conversation, 101, headers=headers)


async def test_another_client_understands_messages_of_any_length() -> None:
    listening = listening_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    listener = Listener(listening, echo, 1000, None, lambda _: None)
    listener.open()
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as stream:
        for length in LENGTHS:
            sent = bytes(number % 251 for number in range(length))
            await stream.send_bytes(sent)
            assert await stream.receive_bytes() == sent
        await stream.ping()
        await stream.send_bytes(b"after the ping")
        assert await stream.receive_bytes() == b"after the ping"
    await listener.close()


class Written:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        return


async def messages_of(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the messages of a client in received bytes, and what it writes."""
    reader, written = asyncio.StreamReader(), Written()
    reader.feed_data(data)
    reader.feed_eof()
    stream = WebSocket(reader, written, is_client=True)  # type: ignore[arg-type]
    return [message async for message in stream.messages()], written.data


@pytest.mark.parametrize("length", LENGTHS)
async def test_a_client_masks_what_it_sends(length: int) -> None:
    written = Written()
    sent = bytes(number % 251 for number in range(length))
    stream = WebSocket(asyncio.StreamReader(), written, is_client=True)  # type: ignore[arg-type]
    await stream.send(sent)
    await stream.close()

    assert written.data[1] & 0x80
    assert length < 10 or sent not in written.data
    assert (await messages_of(written.data))[0] == [sent]


def test_a_message_may_arrive_in_several_frames() -> None:
    pieces = b"\x02\x02ab" + b"\x89\x01!" + b"\x00\x01c" + b"\x80\x01d" + b"\x82\x01e" + b"\x88\x00"
    found, written = asyncio.run(messages_of(pieces))

    assert found == [b"abcd", b"e"]
    assert written[:1] == b"\x8a"  # the answer to the ping


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"\x82\x05ab", "the connection was lost", id="an incomplete frame"),
        pytest.param(b"\x82\x01a", "the connection was lost", id="no end"),
        pytest.param(
            b"\x82\x7f" + (LONGEST_MESSAGE_BYTES + 1).to_bytes(8), "too long", id="a frame that is too long"
        ),
        pytest.param(
            (b"\x02\x7f" + (2**23).to_bytes(8) + bytes(2**23)) * 3,
            "too long",
            id="a message that is too long",
        ),
    ],
)
def test_what_is_no_complete_message_is_an_error(data: bytes, problem: str) -> None:
    with pytest.raises(ConnectionError, match=problem):
        asyncio.run(messages_of(data))
