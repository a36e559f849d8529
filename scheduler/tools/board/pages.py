"""The HTTP paths of the board: the page with its assets, the stream of events, and requests for one pod or node."""

from __future__ import annotations

import asyncio
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from scheduler.configuration.write import to_shown
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.engine.cycle.time_slices import answer_in_slices, run_in_slices
from scheduler.http_server.messages import Page, ServerResponse, json_answer
from scheduler.tools.board import object_details, workloads
from scheduler.tools.board.filters import EVERY_POD, LabelFilter, PodFilter, node_labels
from scheduler.tools.board.hub import Hub
from scheduler.tools.board.objects import object_json
from scheduler.tools.board.pending_pods import PendingPods
from scheduler.tools.board.profile_dry_run import ProfileChangeError, ProfileDryRun, change_in

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
    """A subject, and its connected clients.

    Attributes:
        dry_run: held during a dry run of a profile; there is only one at a time.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.hub = Hub(subject)
        self.dry_run = asyncio.Lock()


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
        page("pending", _pending),
        page("waiting/{name}", _waiting),
        page("labels", _labels),
        page("quotas", _quotas),
        page("groups", _group),
        page("controllers/{namespace}/{kind}/{name}", _controller),
        page("preemptions", _preemptions),
        page("object", _object),
        page("configuration", _configuration),
        page("dry-run", _dry_run),
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
    for some in object_details.found_pods(board.subject, _text(request, "find")):
        found += some
        await asyncio.sleep(0)
    return json_answer(found)


async def _pending(board: Board, request: ServerRequest) -> ServerResponse:
    waiting = await _filtered(board, request)
    return json_answer({"groups": await run_in_slices(waiting.as_json()), **waiting.totals()})


async def _waiting(board: Board, request: ServerRequest) -> ServerResponse:
    name, start = request.parts["name"], _number(request, "start") or 0
    waiting = await _filtered(board, request)
    return _told(waiting.page(name, start, _PODS_A_PAGE), "no pending pod has this cause")


async def _filtered(board: Board, request: ServerRequest) -> PendingPods:
    """Return the pending pods that a request asks for."""
    wanted = PodFilter(
        _text(request, "namespace"), _text(request, "owner"), LabelFilter.of(_text(request, "label"))
    )
    if wanted == EVERY_POD:
        return await board.hub.waiting()
    waiting = PendingPods(board.subject, wanted)
    await run_in_slices(waiting.steps())
    return waiting


async def _labels(board: Board, request: ServerRequest) -> ServerResponse:
    wanted = LabelFilter.of(_text(request, "label"))
    return json_answer(await run_in_slices(node_labels(board.subject, wanted, _text(request, "by"))))


async def _quotas(board: Board, _request: ServerRequest) -> ServerResponse:
    return json_answer(await workloads.quota_usages(board.subject))


async def _group(board: Board, request: ServerRequest) -> ServerResponse:
    key = _text(request, "key")
    return _told(workloads.group_details(board.subject, key), f"no pods of a group {key} are known")


async def _controller(board: Board, request: ServerRequest) -> ServerResponse:
    namespace, owner = request.parts["namespace"], f"{request.parts['kind']}/{request.parts['name']}"
    details = await run_in_slices(workloads.controller_details(board.subject, namespace, owner))
    return _told(details, f"{owner} has no pods in namespace {namespace}")


async def _preemptions(board: Board, _request: ServerRequest) -> ServerResponse:
    if board.subject.preemptions is None:
        return json_answer({"problem": "another scheduler preempts pods here"}, 404)
    return json_answer(await run_in_slices(workloads.past_preemptions(board.subject)))


async def _object(board: Board, request: ServerRequest) -> ServerResponse:
    kind, key = _text(request, "kind"), _text(request, "key")
    return json_answer(await object_json(board.subject, kind, key, request.may_read))


async def _configuration(board: Board, _request: ServerRequest) -> ServerResponse:
    return json_answer(
        {"profiles": to_shown(board.subject.configuration())["profiles"], "addable": sorted(IN_TREE)}
    )


async def _dry_run(board: Board, request: ServerRequest) -> ServerResponse:
    if board.dry_run.locked():
        return json_answer({"problem": "another user tries a profile; try again in a few seconds"})
    async with board.dry_run:
        try:
            changes = [change_in(each) for each in request.query.get("change", ())]
            dry_run = ProfileDryRun(board.subject, _text(request, "profile"), changes)
        except ProfileChangeError as error:
            return json_answer({"problem": str(error)})
        return json_answer(await dry_run.run(request.has_left))


def _text(request: ServerRequest, name: str) -> str:
    return request.query.get(name, [""])[0]


def _told(details: dict[str, Any] | None, without: str) -> ServerResponse:
    return json_answer({"problem": without}, 404) if details is None else json_answer(details)


def _number(request: ServerRequest, name: str) -> int | None:
    text = _text(request, name)
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
