"""Access to the board, and the sign-in of browsers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from scheduler.http_server.messages import ServerRequest, ServerResponse, json_answer
from scheduler.tools.board.sign_in import COOKIE, SIGN_IN, LocalOnly, SignIn

if TYPE_CHECKING:
    from collections.abc import Mapping

LIKES_HTML = "text/html,application/xhtml+xml,*/*;q=0.8"


class Guard:
    """Lets `Bearer good` in; `asked` is what it was shown."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def refusal(self, request: ServerRequest) -> ServerResponse | None:
        token = request.headers.get("authorization", "")
        self.asked.append(token)
        if token == "Bearer good":
            return None
        return json_answer({"message": f'forbidden: User "<b>{token}" cannot get'}, 403 if not token else 401)


def request(path: str, method: str = "GET", body: bytes = b"", **headers: str) -> ServerRequest:
    async def read() -> bytes:
        return body

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ServerRequest(method, path, {}, named, "127.0.0.1", shows_certificate=False, read=read)


def answer(asked: ServerRequest, guard: Guard | None = None) -> ServerResponse | None:
    return asyncio.run(SignIn(guard or Guard()).refusal(asked))


@pytest.mark.parametrize("path", ["/board", "/board/", "/board/data/stream", "/board/assets/main.js"])
def test_without_a_token_the_board_shows_nothing(path: str) -> None:
    refused = answer(request(path))

    assert refused is not None
    assert (refused.status, refused.content_type) == (403, "application/json")


def test_a_browser_gets_a_form_with_the_refusal() -> None:
    refused = answer(request("/board", accept=LIKES_HTML))

    assert refused is not None
    assert isinstance(refused.body, bytes)
    assert refused.status == 403
    assert b'<form method="post" action="/board/sign-in">' in refused.body
    assert "script-src" not in refused.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/metrics", "/debug/cache", "/boards", "/"])
def test_the_cookie_is_used_for_the_board_only(path: str) -> None:
    guard = Guard()

    refused = answer(request(path, cookie=f"{COOKIE}=good", accept=LIKES_HTML), guard)

    assert refused is not None
    assert refused.content_type == "application/json"
    assert guard.asked == [""]


def test_the_cookie_replaces_the_token_in_every_request() -> None:
    assert answer(request("/board/data/stream", cookie=f"a=b; {COOKIE}=good")) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_cookie_permits_reads_only(method: str) -> None:
    assert answer(request("/board/data/stream", method, cookie=f"{COOKIE}=good")) is not None


def test_a_header_takes_precedence_over_the_cookie() -> None:
    assert answer(request("/board", cookie=f"{COOKIE}=good", authorization="Bearer other")) is not None


def test_signing_in_stores_the_token_away_from_scripts_and_other_pages() -> None:
    signed = answer(
        request(SIGN_IN, "POST", urlencode({"token": " go.od_-9 "}).encode(), sec_fetch_site="same-origin")
    )

    assert signed is not None
    assert (signed.status, signed.headers["Location"]) == (303, "/board")
    assert (
        signed.headers["Set-Cookie"] == f"{COOKIE}=go.od_-9; Path=/board; Secure; HttpOnly; SameSite=Strict"
    )


@pytest.mark.parametrize(
    "token",
    ["", "a\r\nSet-Cookie: b", "a;b", "<script>", "a b", "ü", "a" * 4000],
    ids=lambda token: repr(token[:9]),
)
def test_an_invalid_token_is_not_stored(token: str) -> None:
    refused = answer(request(SIGN_IN, "POST", urlencode({"token": token}).encode(), sec_fetch_site="none"))

    assert refused is not None
    assert refused.status == 400
    assert "Set-Cookie" not in refused.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site", "origin": "https://board:10259"}, 403),
        ({"sec_fetch_site": "", "origin": "https://board:10259"}, 403),
        ({"origin": "https://elsewhere"}, 403),
        ({"origin": "https://board:10260"}, 403),
        ({"origin": "https://board"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://[::1"}, 403),
        ({"origin": "https://elsewhere", "sec_fetch_site": "none"}, 403),
        ({"origin": "https://elsewhere", "authorization": "Bearer good"}, 403),
        ({}, 403),
        ({"origin": "https://Board:10259"}, 303),
        ({"origin": "https://before.the.proxy", "sec_fetch_site": "same-origin"}, 303),
        ({"sec_fetch_site": "same-origin"}, 303),
        ({"sec_fetch_site": "none"}, 303),
        ({"authorization": "Bearer good"}, 303),
    ],
)
def test_a_form_of_another_site_cannot_sign_in(headers: Mapping[str, str], status: int) -> None:
    signed = answer(request(SIGN_IN, "POST", b"token=good", host="board:10259", **headers))

    assert signed is not None
    assert signed.status == status
    assert ("Set-Cookie" in signed.headers) == (status == 303)


def test_the_reason_of_a_refused_token_is_shown_as_text() -> None:
    refused = answer(request("/board", cookie=f"{COOKIE}=bad", accept=LIKES_HTML))

    assert refused is not None
    assert isinstance(refused.body, bytes)
    assert refused.status == 401
    assert b"&lt;b&gt;Bearer bad" in refused.body


@pytest.mark.parametrize(
    ("host", "is_let_in"),
    [
        ("127.0.0.1:8080", True),
        ("localhost:8080", True),
        ("localhost", True),
        ("[::1]:8080", True),
        ("[::1]", True),
        ("example.com:8080", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_a_board_on_localhost_accepts_only_requests_for_localhost(host: str, is_let_in: bool) -> None:
    refused = asyncio.run(LocalOnly().refusal(request("/board", host=host)))

    assert (refused is None) == is_let_in
