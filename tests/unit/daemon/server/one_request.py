"""One request to a server that runs as long as the request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from scheduler.daemon.server.http_server import application, serving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.daemon.server.http_server import Application


class Answer(NamedTuple):
    """The response; `headers` ignores case."""

    status: int
    text: str
    headers: Mapping[str, str]


def some_pages(**options: Any) -> Application:
    """Endpoints with the settings of the test."""
    return application(
        **{
            "metrics": lambda _: (b"up 1\n", {"Content-Type": "text/plain"}),
            "live": {},
            "ready": {},
            **options,
        }
    )


def ask(app: Application, path: str, method: str = "GET", **headers: str) -> Answer:
    """Serve endpoints on a free port of loopback and send one request."""

    async def question() -> Answer:
        async with serving(app, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}{path}"
            async with session.request(method, url, headers=headers) as response:
                return Answer(response.status, await response.text(), response.headers)

    return asyncio.run(question())
