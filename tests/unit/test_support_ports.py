"""A port that a test gives to a process stays free for that process."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.support.ports import free_port


def test_no_connection_is_accepted_before_the_server_listens() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free_port()))


def test_another_socket_cannot_be_bound_to_the_port() -> None:
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", free_port()))


async def test_a_server_can_listen_on_the_port() -> None:
    port = free_port()
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", port) as server:
        assert server.sockets[0].getsockname()[1] == port
