"""A plain HTTP client for tests of the simulated API server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from scheduler.tools.simulator.server import ApiServer
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PODS = "/api/v1/namespaces/default/pods"


class Client:
    """Asks one server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request; returns the status and the decoded body."""
        data = None if body is None else json.dumps(body)
        if data is not None:
            headers = {"Content-Type": "application/json", **headers}
        async with self.session.request(
            method, f"http://localhost{path}", data=data, headers=headers
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    def watch(self, path: str) -> Watching:
        return Watching(self.session, path)


class Watching:
    """A watch that collects its events while it runs.

    Attributes:
        events: what has come so far.
        ended: whether the server ended it in good order.
        lost: whether the connection was cut.
    """

    def __init__(self, session: aiohttp.ClientSession, path: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.ended = self.lost = False
        self._task = asyncio.create_task(self._run(session, path))

    async def _run(self, session: aiohttp.ClientSession, path: str) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with session.get(f"http://localhost{path}", timeout=timeout) as response:
                async for line in response.content:
                    self.events.append(json.loads(line))
            self.ended = True
        except aiohttp.ClientError:
            self.lost = True

    @property
    def seen(self) -> list[tuple[str, str]]:
        """The events so far: type and name."""
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.events]

    async def wait_end(self) -> None:
        await self._task

    async def __aenter__(self) -> Self:
        await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def serving(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[ApiServer, Client]]:
    """Run a server on a Unix socket, in the time of the running loop, and a client of it."""
    socket = str(tmp_path / "socket")
    async with (
        ApiServer(clock=LoopClock(), socket_path=socket, **options) as server,
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket)) as session,
    ):
        yield server, Client(session)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
