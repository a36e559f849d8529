"""The HTTP paths of the board: the page with its assets, the stream of events, and requests for one pod or node."""

from __future__ import annotations

import asyncio
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from scheduler.engine.cycle.time_slices import answer_in_slices
from scheduler.http_server.messages import Page, ServerResponse, json_answer
from scheduler.tools.board import object_details
from scheduler.tools.board.hub import Hub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scheduler.http_server.messages import Handler, ServerRequest
    from scheduler.tools.board.subject import Subject

PATH: Final = "/board"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The page runs only packaged scripts, and sends nothing elsewhere."""
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PODS_A_PAGE: Final = 200
_LONGEST_NUMBER = 9


class Board:
    """A subject, and its connected clients."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.hub = Hub(subject)


def board_pages(board: Callable[[], Awaitable[Board]]) -> Sequence[Page]:
    """Return the pages of a board, which is created with the first request."""

    def page(path: str, handler: Callable[[Board, ServerRequest], Awaitable[ServerResponse]]) -> Page:
        async def answer(request: ServerRequest) -> ServerResponse:
            return _guarded(await handler(await board(), request))

        return Page(f"{PATH}/data/{path}", answer)

    return [
        Page(PATH, _asset_at("index.html")),
        Page(f"{PATH}/", _asset_at("index.html")),
        *(Page(f"{PATH}/assets/{name}", _asset_at(name)) for name in _assets() if name != "index.html"),
        page("stream", _stream),
        page("pods", _found),
        page("pods/{namespace}/{name}", _pod),
        page("nodes/{name}", _node),
        page("waiting/{name}", _waiting),
    ]


def board_of(subject: Subject) -> Callable[[], Awaitable[Board]]:
    """Return a function that returns the board of an existing subject."""
    board = Board(subject)

    async def give() -> Board:
        return board

    return give


def _guarded(answer: ServerResponse) -> ServerResponse:
    return answer._replace(headers={**HEADERS, **answer.headers})


async def _stream(board: Board, request: ServerRequest) -> ServerResponse:
    body = board.hub.stream() if request.method == "GET" else b""
    return ServerResponse(body, content_type="text/event-stream")


async def _pod(board: Board, request: ServerRequest) -> ServerResponse:
    key = f"{request.parts['namespace']}/{request.parts['name']}"
    number = _number(request, "attempt")
    details = await answer_in_slices(partial(object_details.pod_details, board.subject, key, number))
    if details is not None:
        details["events"] = await object_details.pod_events(board.subject, key)
    return _told(details, f"pod {key} is unknown")


async def _node(board: Board, request: ServerRequest) -> ServerResponse:
    name = request.parts["name"]
    return _told(object_details.node_details(board.subject, name), f"there is no node {name}")


async def _found(board: Board, request: ServerRequest) -> ServerResponse:
    found: list[str] = []
    for some in object_details.found_pods(board.subject, request.query.get("find", [""])[0]):
        found += some
        await asyncio.sleep(0)
    return json_answer(found)


async def _waiting(board: Board, request: ServerRequest) -> ServerResponse:
    name, start = request.parts["name"], _number(request, "start") or 0
    waiting = await board.hub.waiting()
    return _told(waiting.page(name, start, _PODS_A_PAGE), "no pending pod has this cause")


def _told(details: dict[str, Any] | None, without: str) -> ServerResponse:
    return json_answer({"problem": without}, 404) if details is None else json_answer(details)


def _number(request: ServerRequest, name: str) -> int | None:
    text = request.query.get(name, [""])[0]
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else None


# The assets of the page.


def _asset_at(name: str) -> Handler:
    suffix = name[name.rindex(".") :]

    async def answer(_request: ServerRequest) -> ServerResponse:
        return _guarded(ServerResponse(_assets()[name], content_type=_TYPES[suffix]))

    return answer


@cache
def _assets() -> dict[str, bytes]:
    """Return name -> content of all assets; read once."""
    folder = files(__package__) / "assets"
    return {
        each.name: each.read_bytes()
        for place in (folder, folder / "vendor")
        for each in place.iterdir()
        if any(each.name.endswith(suffix) for suffix in _TYPES)
    }
