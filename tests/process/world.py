"""The processes, and the actions on them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from scheduler.clock import SystemClock
from scheduler.tools.simulator.access.authentication import write_kubeconfig
from tests.process.api_server import NAME, NAMESPACE
from tests.process.proxy import Proxy
from tests.support.commands import forked_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

PATIENCE_SECONDS = 120.0
_END_SECONDS = 15.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Times:
    """Of leader election, in seconds."""

    lease: float
    deadline: float
    retry: float

    @property
    def flags(self) -> list[str]:
        return [
            f"--leader-elect-lease-duration={self.lease:g}s",
            f"--leader-elect-renew-deadline={self.deadline:g}s",
            f"--leader-elect-retry-period={self.retry:g}s",
        ]


USUAL = Times(15, 10, 2)
SHORT = Times(4, 3, 0.5)


def now() -> float:
    """Seconds of the clock that all processes share."""
    return SystemClock().monotonic()


class Server:
    """The API server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    async def do(self, name: str, **arguments: Any) -> Any:
        """Have it carry out a command of `api_server.Commands`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
            return json.loads(await self._process.stdout.readline())


class Replica:
    """A daemon behind a proxy of its own, started anew whenever it ends, as a kubelet does; an async context manager.

    Attributes:
        name: by which the server knows it.
        proxy: between it and the server.
        ends: the exit statuses of those that ended by themselves.
    """

    def __init__(self, name: str, proxy: Proxy, folder: Path, times: Times) -> None:
        self.name = name
        self.proxy = proxy
        self.ends: list[int] = []
        self._log = folder / f"{name}.log"
        self._kubeconfig = folder / f"{name}.kubeconfig"
        self._times = times
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        write_kubeconfig(self._kubeconfig, f"http://127.0.0.1:{self.proxy.port}", self.name, self.name)
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> int:
        """End it in good order and for good; its exit status."""
        assert self._process is not None
        assert self._running is not None
        self._running.cancel()
        self.send(signal.SIGTERM)
        async with asyncio.timeout(_END_SECONDS):
            return await self._process.wait()

    @property
    def messages(self) -> list[str]:
        """What it logged."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line).get("message", "") for line in lines if line.startswith("{")]

    @property
    def stands_by(self) -> bool:
        """Whether it has tried to get the lease since it was last started."""
        return self.messages.count("Attempting to acquire leader lease") > len(self.ends)

    async def _run(self) -> None:
        while True:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    forked_program(), "run",
                    "--kubeconfig", str(self._kubeconfig), "--config-map", f"{NAMESPACE}/{NAME}",
                    "--secure-port=0", "--logging-format=json",
                    f"--leader-elect-resource-namespace={NAMESPACE}", *self._times.flags,
                    stderr=log,
                )  # fmt: skip
            self.ends.append(await self._process.wait())


class World:
    """One API server and its replicas."""

    def __init__(self, server: Server, times: Times) -> None:
        self.server = server
        self.times = times
        self.replicas: list[Replica] = []

    async def state(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.server.do("state")
        return found

    async def leader(self) -> Replica:
        """Return who holds the lease."""
        holder = (await self.state())["holder"]
        return next(replica for replica in self.replicas if replica.name == holder)

    async def settle(self) -> None:
        """Wait until each replica, also one that ended and runs again, leads or stands by."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(replica.stands_by for replica in self.replicas):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(_POLL_SECONDS)
        await self.until(lambda state: bool(state["holder"]))

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until something holds of the server's state, and return that."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds(state := await self.state()):  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(_POLL_SECONDS)
        return state


@asynccontextmanager
async def world(folder: Path, *, replicas: int, times: Times) -> AsyncIterator[World]:
    """Run a server and replicas, of which one leads and the others stand by."""
    names = [f"replica-{number}" for number in range(replicas)]
    async with AsyncExitStack() as stack:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.process.api_server", *names,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        stack.push_async_callback(_kill, process)
        server = Server(process)
        port = await server.do("port")
        it = World(server, times)
        for name in names:
            proxy = await stack.enter_async_context(Proxy(port))
            it.replicas.append(await stack.enter_async_context(Replica(name, proxy, folder, times)))
        yield it


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
