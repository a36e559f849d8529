"""An API server with scripted answers, over a real Unix socket."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import defaultdict, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Received:
    method: str
    path: str
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """A plain answer, after some seconds."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    after: float = 0.0

    async def give(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.after)
        text = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return web.Response(status=self.status, body=text, headers=self.headers)


class NoAnswer:
    """Closes the connection after reading the request."""

    async def give(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@dataclass
class Stream:
    """A watch: dicts are sent as lines, bytes as they are, numbers are waits; then it ends or hangs."""

    steps: list[dict[str, Any] | bytes | float]
    then: str = "hang"  # or "close", "cut"

    async def give(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for step in self.steps:
            if isinstance(step, (int, float)):
                await asyncio.sleep(step)
            else:
                await response.write(step if isinstance(step, bytes) else json.dumps(step).encode() + b"\n")
        if self.then == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif self.then == "hang":
            await asyncio.Event().wait()
        return response


Step = Answer | NoAnswer | Stream


class ScriptedServer:
    """Answers with the first unused step for a method and path; hangs after the last step."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.received: list[Received] = []
        self._script: dict[tuple[str, str], deque[Step]] = defaultdict(deque)

    def script(self, method: str, path: str, *steps: Step) -> None:
        self._script[method, path].extend(steps)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("http://localhost", unix_socket=self.socket)

    def connection(self, **options: Any) -> ApiConnection:
        return ApiConnection(self.endpoint, **options)

    def of(self, method: str, path: str = "") -> list[Received]:
        return [each for each in self.received if each.method == method and each.path.startswith(path)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.received.append(
            Received(
                request.method,
                request.path,
                dict(request.query),
                await request.read(),
                dict(request.headers),
                asyncio.get_running_loop().time(),
            )
        )
        steps = self._script[request.method, request.path]
        if not steps:
            await asyncio.Event().wait()
        return await steps.popleft().give(request)


@asynccontextmanager
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    with tempfile.TemporaryDirectory() as folder:
        server = ScriptedServer(str(Path(folder) / "s"))
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{tail:.*}", server.handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.0)
        await runner.setup()
        await web.UnixSite(runner, server.socket).start()
        try:
            yield server
        finally:
            await runner.cleanup()


def status(code: int, reason: str, message: str = "so it is", **details: Any) -> dict[str, Any]:
    """Return a v1.Status of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        **({"details": details} if details else {}),
    }


def failure(code: int, reason: str = "", **headers: str) -> Answer:
    return Answer(
        code, status(code, reason), {name.replace("_", "-"): value for name, value in headers.items()}
    )
