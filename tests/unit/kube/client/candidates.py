"""Candidates for one Lease of a simulated API server, each with a connection of its own."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.configuration.types import LeaderElection
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.lease import LeaderElector
from scheduler.kube.http.endpoint import Endpoint
from scheduler.objects.wording import Duration
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.faults import requests
from scheduler.tools.simulator.server import ApiServer
from tests.support.frozen_processes import Freezer
from tests.support.virtual_time import LoopClock, next_poll, now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

LEASES = "leases.coordination.k8s.io"
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/custom-scheduler"
LEASE_SECONDS, DEADLINE_SECONDS, RETRY_SECONDS = 15.0, 10.0, 2.0


@dataclass
class Candidate:
    """A running elector, as in the daemon.

    Attributes:
        led: (from, until) of each time it led, by its own clock; until is None while it leads.
    """

    elector: LeaderElector
    freezer: Freezer
    led: list[tuple[float, float | None]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def kill(self) -> None:
        assert self.task is not None
        self.task.cancel()

    async def run(self) -> None:
        """Lead whenever possible, without end."""
        loop = asyncio.get_running_loop()
        while True:
            await self.elector.acquire()
            began = loop.time()
            self.led.append((began, None))
            await self.elector.keep()
            self.led[-1] = began, loop.time()


class Candidates:
    """A server, and the candidates for its lease."""

    def __init__(self, server: ApiServer, stack: AsyncExitStack) -> None:
        self.server = server
        self._stack = stack

    async def elector(self, identity: str, *, seed: int = 1, **settings: Any) -> LeaderElector:
        assert self.server.socket_path is not None
        connection = ApiConnection(Endpoint("http://localhost", unix_socket=self.server.socket_path))
        await self._stack.enter_async_context(connection)
        election = LeaderElection(
            **{
                name: Duration(int(value * 1e9)) if isinstance(value, int | float) else value
                for name, value in settings.items()
            }
        )
        return LeaderElector(connection, election, identity=identity, clock=LoopClock(), random=Random(seed))

    @asynccontextmanager
    async def candidate(self, identity: str, **options: Any) -> AsyncIterator[Candidate]:
        """Run a candidate; at the end it stops without releasing the lease, as a killed process does."""
        freezer = Freezer()
        with freezer.inside():
            it = Candidate(await self.elector(identity, **options), freezer)
            it.task = asyncio.create_task(it.run())
        try:
            yield it
        finally:
            freezer.thaw()
            it.kill()
            await asyncio.wait({it.task})

    @property
    def lease(self) -> dict[str, Any]:
        """The lease; empty if it does not exist."""
        try:
            return self.server.store.get(LEASES, "custom-scheduler", "kube-system")
        except StatusError:
            return {}

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.lease.get("spec", {}))

    def write(self, spec: dict[str, Any], **metadata: Any) -> None:
        """Write the lease as another client would."""
        found = self.lease
        if found:
            merged = {**found["metadata"], **metadata}
            self.server.store.update(LEASES, {**found, "metadata": merged, "spec": {**found["spec"], **spec}})
        else:
            self.server.store.create(
                LEASES,
                {
                    "metadata": {"name": "custom-scheduler", "namespace": "kube-system", **metadata},
                    "spec": spec,
                },
            )

    def hold(self, identity: str, **spec: Any) -> None:
        """Write the lease as another holder with the usual durations would."""
        self.write(
            {
                "holderIdentity": identity,
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-01T00:00:00.000000Z",
                "renewTime": "2026-01-01T00:00:00.000000Z",
                "leaseTransitions": 0,
                **spec,
            }
        )

    def delete(self) -> None:
        self.server.store.delete(LEASES, "custom-scheduler", "kube-system")

    @contextmanager
    def refused(self, code: int = 500, **what: Any) -> Iterator[None]:
        """Refuse requests for leases: all, or one verb."""
        fault = self.server.faults.refuse(code, requests(resource="leases", **what))
        try:
            yield
        finally:
            self.server.faults.remove(fault)

    def asked(self, method: str) -> list[float]:
        """The times at which the lease was read or written, without watches."""
        return [each.at_seconds for each in self.server.requests.matching(method=method, path=PATH)]


@asynccontextmanager
async def candidates(folder: Path) -> AsyncIterator[Candidates]:
    """Run a server on a Unix socket in `folder`."""
    async with ApiServer(clock=LoopClock(), socket_path=folder / "s") as server, AsyncExitStack() as stack:
        yield Candidates(server, stack)


async def until(holds: Any, *, seconds: float = 120.0) -> float:
    """Wait until a condition holds, checked every 10 ms; return the time."""
    deadline = now() + seconds
    while not holds():
        assert now() < deadline, f"it does not hold after {seconds} s"
        await next_poll(0.01, deadline)
    return now()
