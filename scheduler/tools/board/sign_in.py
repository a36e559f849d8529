"""Sign-in to the board, by the authorization of the other endpoints, and the board on this machine only.

A browser sends no bearer token by itself. A rejected browser receives a form for a token. The token is then kept in a
session cookie that scripts cannot read and that is sent only to the board. Each request is authorized with it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from contextlib import asynccontextmanager
from html import escape
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

import msgspec

from scheduler.daemon.server.http_server import Application, serving
from scheduler.http_server.messages import Page, ServerResponse
from scheduler.tools.board.pages import HEADERS, PATH, board_pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from scheduler.daemon.server.http_server import Guard
    from scheduler.http_server.messages import ReadObject, ServerRequest
    from scheduler.tools.board.pages import Board

SIGN_IN: Final = f"{PATH}/sign-in"
COOKIE: Final = "__Secure-custom-scheduler-board"
_ATTRIBUTES: Final = f"Path={PATH}; Secure; HttpOnly; SameSite=Strict"
_LONGEST_TOKEN: Final = 3800
"""Browsers do not keep longer cookies."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
_TELLING: Final = frozenset({"sec-fetch-site", "origin", "authorization"})
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_STYLE: Final = (
    ":root{color-scheme:light dark;font:1rem/1.5 system-ui,sans-serif}"
    "body{max-width:34rem;margin:10vh auto;padding:0 1rem}"
    "input,button{font:inherit;padding:.4rem .6rem}input{width:100%;box-sizing:border-box;margin:.3rem 0 1rem}"
    "code{overflow-wrap:anywhere}"
)
_HEADERS: Final = {
    **HEADERS,
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'",
}


class SignIn:
    """Delegates to another guard, with the token of the board's cookie.

    Args:
        guard: the guard that decides.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def refusal(self, request: ServerRequest) -> ServerResponse | None:
        """Return the rejection of a request; None if it is accepted."""
        if not (request.path == PATH or request.path.startswith(f"{PATH}/")):
            return await self._guard.refusal(request)
        if request.path == SIGN_IN and request.method == "POST":
            return await _signed_in(request)
        token = _token_in(request.headers.get("cookie", ""))
        if token and "authorization" not in request.headers and request.method in {"GET", "HEAD"}:
            request.headers = {**request.headers, "authorization": f"Bearer {token}"}
        refusal = await self._guard.refusal(request)
        if refusal is None or "text/html" not in request.headers.get("accept", ""):
            return refusal
        why = _message(refusal) if token else ""
        return refusal._replace(
            body=_form(why), content_type="text/html; charset=utf-8", headers={**refusal.headers, **_HEADERS}
        )


class LocalOnly:
    """Accepts requests for this machine's own names: a web page whose host name resolves to this machine is rejected."""

    async def refusal(self, request: ServerRequest) -> ServerResponse | None:
        """Return the rejection of a request; None if it is accepted."""
        host = request.headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        request.may_read = _may  # the objects are read with the rights of the user who runs the command
        return (
            None
            if name in _LOCAL
            else ServerResponse(b"403 use the host name localhost\n", HTTPStatus.FORBIDDEN)
        )


async def _may(_read: ReadObject) -> bool:
    return True


async def _signed_in(request: ServerRequest) -> ServerResponse:
    """Keep the entered token in the cookie; the next request shows whether it is valid."""
    # A form on another site could sign a user in with another's token, unnoticed. A request without any of these headers is
    # not from a current browser, unless it has a token already, which no form can send.
    is_known = bool(_TELLING & request.headers.keys())
    if request.is_of_another_site or not is_known:
        return ServerResponse(b"403 request from another site\n", HTTPStatus.FORBIDDEN)
    body = await request.read()
    token = parse_qs(body.decode("latin-1"), max_num_fields=4).get("token", [""])[0].strip()
    if not _TOKEN.fullmatch(token) or len(token) > _LONGEST_TOKEN:
        return ServerResponse(
            _form("This is not a token."), HTTPStatus.BAD_REQUEST, "text/html; charset=utf-8", _HEADERS
        )
    headers = {**_HEADERS, "Location": PATH, "Set-Cookie": f"{COOKIE}={token}; {_ATTRIBUTES}"}
    return ServerResponse(b"", HTTPStatus.SEE_OTHER, headers=headers)


def _token_in(cookies: str) -> str:
    try:
        found = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None and _TOKEN.fullmatch(found.value) else ""


def _message(refusal: ServerResponse) -> str:
    assert isinstance(refusal.body, bytes), "rejections have short bodies"
    try:
        return str(msgspec.json.decode(refusal.body)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "Not allowed."


def _form(why: str) -> bytes:
    problem = f'<p role="alert"><strong>{escape(why)}</strong></p>' if why else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sign in - custom-scheduler</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><main><h1>The board of custom-scheduler</h1>{problem}
<p>You need permission to <code>get</code> the paths <code>{PATH}</code> and <code>{PATH}/*</code>. Create a token, for
example with <code>kubectl -n NAMESPACE create token SERVICEACCOUNT</code>, and paste it here:</p>
<form method="post" action="{SIGN_IN}"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus>
<button>Sign in</button></form></main></body></html>
""".encode()


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
