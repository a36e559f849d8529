"""An HTTP extender that has its moods: it refuses nodes, breaks, hangs, talks nonsense, and is not there."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from aiohttp import web

from tests.faults.actors.actor import Actor

if TYPE_CHECKING:
    from collections.abc import Callable

_HANGS_SECONDS = 60.0
"""Longer than any extender is waited for."""


class Extenders(Actor):
    """Whoever runs a web service beside the scheduler."""

    name = "extender"
    pause_seconds: ClassVar[tuple[float, float]] = (1.0, 15.0)

    def begin(self) -> None:
        self._moods: dict[str, Callable[[str, dict[str, Any]], Any]] = {
            "is well": self._well,
            "refuses some nodes": self._refusing,
            "refuses all nodes for good": self._refusing_all,
            "breaks": lambda *_: 500,
            "talks nonsense": lambda *_: self.random.choice(
                (b"", b"{", b"[]", b'{"NodeNames":[1]}', b'{"nodenames":"x"}')
            ),
            "names nodes that are not there": lambda *_: {"NodeNames": ["nowhere"]},
            "scores beyond all bounds": self._scoring_wildly,
            "tells of an error": lambda *_: {"Error": "on purpose"},
            "hangs": lambda *_: None,
        }
        self._mood = "is well"
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server = web.Server(self._handle, access_log=None)
        self._listening: asyncio.Server | None = None
        url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        is_ignorable = self.random.random() < 0.5
        self.stage.plan = replace(self.stage.plan, extender=(url, is_ignorable))

    async def run(self, until: float) -> None:
        self._listening = await asyncio.get_running_loop().create_server(self._server, sock=self._socket)
        await super().run(until)

    async def act(self) -> None:
        self._mood = self.random.choice(list(self._moods))
        self.tell(self._mood)

    def calm(self) -> None:
        self._mood = "is well"

    def end(self) -> None:
        if self._listening is not None:
            self._listening.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        verb, asked = request.path.strip("/"), json.loads(await request.read())
        answer = self._moods[self._mood](verb, asked)
        if answer is None:
            await asyncio.sleep(_HANGS_SECONDS)
            answer = 503
        if isinstance(answer, int):
            return web.Response(status=answer)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=body, content_type="application/json")

    def _well(self, verb: str, asked: dict[str, Any]) -> Any:
        names = asked["NodeNames"]
        if verb == "prioritize":
            return [{"Host": name, "Score": len(name) % 10} for name in names]
        return {"NodeNames": names}

    def _refusing(self, verb: str, asked: dict[str, Any]) -> Any:
        if verb == "prioritize":
            return self._well(verb, asked)
        kept = [name for name in asked["NodeNames"] if self.random.random() < 0.5]
        refused = {name: "refused on purpose" for name in asked["NodeNames"] if name not in kept}
        return {"NodeNames": kept, "FailedNodes": refused}

    def _refusing_all(self, verb: str, asked: dict[str, Any]) -> Any:
        if verb == "prioritize":
            return self._well(verb, asked)
        return {
            "NodeNames": [],
            "FailedAndUnresolvableNodes": dict.fromkeys(asked["NodeNames"], "refused on purpose"),
        }

    def _scoring_wildly(self, verb: str, asked: dict[str, Any]) -> Any:
        if verb == "prioritize":
            return [
                {"Host": name, "Score": self.random.choice((-1, 11, 2**62))} for name in asked["NodeNames"]
            ]
        return self._well(verb, asked)
