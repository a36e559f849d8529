"""A leader as a process of its own that the system stops for a while: real time, real signals, real sockets."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.tools.simulator.access.authentication import write_kubeconfig
from scheduler.tools.simulator.faults import binds
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.processes import started, until
from tests.support.replicas import LEASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

PODS, LATE_PODS = 100, 20
BIND_SECONDS = 0.8
PATIENCE_SECONDS = 60.0
FLAGS = (
    "--secure-port", "0",
    "--logging-format", "json",
    "--leader-elect=true",
    "--leader-elect-lease-duration", "2s",
    "--leader-elect-renew-deadline", "1.5s",
    "--leader-elect-retry-period", "0.3s",
    "--leader-elect-resource-namespace", "default",
)  # fmt: skip


class Relay:
    """Passes on all there is between one client and the server, and keeps what the client sent."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        for task in (self._pass_on(reader, back, self.sent), self._pass_on(there, writer, bytearray())):
            self._tasks.add(asyncio.create_task(task))

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        try:
            while data := await reader.read(2**16):
                kept += data
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def relayed(server: ApiServer, kubeconfig: Path) -> AsyncIterator[Relay]:
    """Write a kubeconfig that leads to the server by way of a relay."""
    relay = Relay(int(server.url.rpartition(":")[2]))
    listener = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    write_kubeconfig(kubeconfig, f"http://127.0.0.1:{port}", None, "admin")
    try:
        yield relay
    finally:
        listener.close()
        await relay.close()


@asynccontextmanager
async def process(kubeconfig: Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "scheduler", "run", "--kubeconfig", kubeconfig)
    with log.open("wb") as stderr:
        async with started(*command, *FLAGS, stderr=stderr) as it:
            yield it


async def quiet(relay: Relay) -> None:
    """Wait until the client waits for the answers to its bindings, with no request half written."""
    count = -1
    while count != (count := relay.sent.count(b"POST ")):  # noqa: ASYNC110 - it is in another process
        await asyncio.sleep(BIND_SECONDS / 4)


def placed(server: ApiServer) -> int:
    return sum(1 for pod in server.store.list("pods") if pod["spec"].get("nodeName"))


def holder(server: ApiServer) -> str | None:
    """Who holds the lease; None while there is none."""
    found: list[dict[str, Any]] = server.store.list(LEASES)
    return str(found[0]["spec"]["holderIdentity"]) if found else None


def messages(log: Path) -> list[str]:
    return [json.loads(line)["message"] for line in log.read_text().splitlines()]


async def test_a_process_that_was_stopped_sends_no_binding_when_it_resumes(tmp_path: Path) -> None:
    first_log, second_log = tmp_path / "first.log", tmp_path / "second.log"

    async with ApiServer() as server, relayed(server, tmp_path / "relayed") as relay:
        server.store.create("nodes", node_object("n1", cpu="64", pods=1000))
        server.faults.delay(BIND_SECONDS, binds)
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with process(tmp_path / "relayed", first_log) as first:
            await until(lambda: holder(server))
            elected = holder(server)
            async with process(kubeconfig, second_log) as second:
                await until(lambda: "Attempting to acquire leader lease" in messages(second_log))
                for number in range(PODS):
                    server.store.create("pods", pod_object(f"p-{number}", cpu="10m"))
                await until(lambda: placed(server) >= PODS // 10)
                await quiet(relay)

                first.send_signal(signal.SIGSTOP)
                await until(lambda: placed(server) == PODS)
                assert holder(server) != elected
                before = len(relay.sent)
                assert 0 < relay.sent.count(b"/binding HTTP") < PODS
                for number in range(LATE_PODS):
                    server.store.create("pods", pod_object(f"late-{number}", cpu="10m"))
                first.send_signal(signal.SIGCONT)

                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert await first.wait() == 1
                await until(lambda: placed(server) == PODS + LATE_PODS)
                woken = bytes(relay.sent[before:])
                second.send_signal(signal.SIGTERM)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert await second.wait() == 0

        assert b"/binding HTTP" not in woken
        assert b"PATCH " not in woken
        assert b"POST " not in woken
        bound = Counter(
            each.path for each in server.requests if each.path.endswith("/binding") and each.status == 201
        )
        assert len(bound) == PODS + LATE_PODS
        assert set(bound.values()) == {1}
        assert holder(server) == "", "released"
    assert "leaderelection lost" in messages(first_log)
    assert "Released lease" in messages(second_log)
