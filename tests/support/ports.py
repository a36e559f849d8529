"""Ports for processes that tests start and that need their port on the command line."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that no other program is given.

    This process keeps a socket bound to the port until it ends, so the system does not choose the
    port for another socket that is bound or connected. The socket does not listen: a connection is
    refused, and a server that sets SO_REUSEADDR, as asyncio and Go do, can listen on the port.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = reserved.getsockname()[1]
    reserved.detach()
    return int(port)
