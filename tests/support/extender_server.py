"""An HTTP extender with scripted responses over real HTTP, which records its requests."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping


@dataclass
class Hangs:
    """An answer that does not come before the test ends."""

    until: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class ScriptedExtender:
    """The server.

    Attributes:
        answers: verb -> what is answered: JSON of it, or `bytes` as they are, an HTTP status, `Hangs`, or a function
            of the request that returns one of these.
        asked: (verb, decoded request), in order.
        url: where it is.
    """

    answers: dict[str, Any]
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        verb = request.path.lstrip("/")
        said = json.loads(await request.read())
        self.asked.append((verb, said))
        answer = self.answers[verb]
        if callable(answer):
            answer = answer(said)
        if isinstance(answer, Hangs):
            await answer.until.wait()
            answer = {}
        if isinstance(answer, int):
            return web.Response(status=answer)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=body, content_type="application/json")


@asynccontextmanager
async def scripted_extender(
    answers: dict[str, Any | Callable[[Any], Any]], *, context: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedExtender]:
    """Serve an extender on loopback.

    Args:
        answers: verb -> answer, see `ScriptedExtender`; may be changed while it runs.
        context: serves HTTPS.
    """
    extender = ScriptedExtender(answers)
    server = web.Server(extender.handle, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    port = listener.sockets[0].getsockname()[1]
    extender.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    try:
        yield extender
    finally:
        for answer in answers.values():
            if isinstance(answer, Hangs):
                answer.until.set()
        listener.close()
        await server.shutdown(0.1)
