"""A forwarded port of a pod, over real sockets; a fake kubelet forwards the data."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.port_forward import Forwarded, forwarded
from scheduler.kube.http.endpoint import Endpoint
from scheduler.tools.simulator.access.rbac import User
from scheduler.tools.simulator.server import ApiServer
from tests.unit.kube.http.raw_server import Visit, raw_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.kube.client.login import Headers

pytestmark = pytest.mark.run(by=asyncio.run)

POD = "kube-system/leader"
ROOT = "root"


class Token:
    def __init__(self, token: str) -> None:
        self._token = token

    def headers(self) -> Headers:
        return (("Authorization", f"Bearer {self._token}"),)

    def rejected(self) -> None:
        return


@asynccontextmanager
async def way(port: int | None, *, token: str = ROOT) -> AsyncIterator[Forwarded]:
    """Forward to a port of this machine, as if it were a pod's; with None, the pod does not exist."""
    async with ApiServer(token=ROOT, rbac=True, users={"ann": User("ann")}) as server:
        if port is not None:
            server.ports[POD] = port
        connection = ApiConnection(Endpoint(server.url), authorization=Token(token))
        async with connection, forwarded(connection, *POD.split("/"), 10259) as found:
            yield found


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """Listen, and answer each line with its reverse."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.write(line[:-1][::-1] + b"\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**22)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def said(to: Forwarded, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(to.path, limit=2**22)
    writer.write(line)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


async def test_bytes_are_forwarded_on_several_connections_at_once():
    async with echo() as port, way(port) as to:
        many = b"x" * 300_000 + b"y"  # more than one message, and more than a socket's buffer
        answers = await asyncio.gather(*(said(to, line + b"\n") for line in (b"abc", b"", many)))

        assert answers == [b"cba\n", b"\n", many[::-1] + b"\n"]
        assert to.problem == ""


@pytest.mark.parametrize(
    ("port", "token", "problem"),
    [
        pytest.param(1, "root", "error forwarding port: ", id="no listener"),
        pytest.param(None, "root", "the API server answered 501 to pods/portforward", id="no such pod"),
        pytest.param(1, "ann", "the API server answered 403 to pods/portforward", id="not allowed"),
    ],
)
async def test_a_failed_port_forward_has_a_reason(port: int | None, token: str, problem: str):
    async with way(port, token=token) as to:
        assert await said(to, b"abc\n") == b""
        assert to.problem.startswith(problem)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(b"", "the API server did not answer to pods/portforward", id="no answer"),
        pytest.param(b"nonsense\r\n\r\n", "the API server answered  to pods/portforward", id="no HTTP"),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n",
            "the API server answered without a WebSocket to pods/portforward",
            id="another protocol",
        ),
    ],
)
async def test_an_answer_without_a_websocket_is_an_error(answer: bytes, problem: str):
    async def serve(visit: Visit) -> None:
        assert b"Upgrade: websocket\r\n" in await visit.request()
        visit.say(answer)

    async with (
        raw_server(serve) as server,
        ApiConnection(server.endpoint) as connection,
        forwarded(connection, *POD.split("/"), 10259) as to,
    ):
        assert await said(to, b"abc\n") == b""
        assert to.problem == problem


async def test_a_port_forward_is_private_and_leaves_nothing_behind():
    begun: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    silent = await asyncio.start_server(lambda _, there: begun.put_nowait(there), "127.0.0.1", 0)
    async with silent:
        async with way(silent.sockets[0].getsockname()[1]) as to:
            folder = to.path.parent
            assert folder.stat().st_mode & 0o077 == 0
            assert folder.stat().st_uid == os.getuid()
            reader, writer = await asyncio.open_unix_connection(to.path)  # which stays open
            there = await begun.get()
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        there.close()  # since 3.12 a server waits for it
    assert not folder.exists()
