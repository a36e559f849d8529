"""A board on this machine only."""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from scheduler.daemon.server.http_server import Application, serving
from scheduler.daemon.server.messages import Page, ServerResponse
from scheduler.tools.board.pages import PATH, board_pages
from scheduler.tools.board.sign_in import LocalOnly

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from scheduler.daemon.server.messages import ServerRequest
    from scheduler.tools.board.pages import Board

_ADDRESS: Final = "127.0.0.1"
_LONGEST_REQUEST_BYTES: Final = 4096


@asynccontextmanager
async def serving_board(board: Callable[[], Awaitable[Board]], port: int = 0) -> AsyncIterator[str]:
    """Serve a board on this machine while the block runs, and yield its URL; port 0 is any free port.

    Raises:
        ConfigurationError: the port cannot be used.
    """
    pages = [Page("/", _to_the_board), *board_pages(board)]
    async with serving(Application(pages, LocalOnly(), _LONGEST_REQUEST_BYTES), _ADDRESS, port) as taken:
        yield f"http://{_ADDRESS}:{taken}{PATH}"


async def _to_the_board(_request: ServerRequest) -> ServerResponse:
    return ServerResponse(b"", HTTPStatus.FOUND, headers={"Location": PATH})
