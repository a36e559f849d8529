"""What plugins learn of web servers: whom we believe, who we say we are, and what goes wrong."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from scheduler.app.web_client import WebClient
from scheduler.certificates.key_pair import load_key_pair
from scheduler.certificates.made import Issued, issue
from tests.virtually import virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(scope="module")
def issued() -> Issued:
    return issue("web", addresses=["127.0.0.1"])


@asynccontextmanager
async def serving(issued: Issued | None = None) -> AsyncIterator[str]:
    """Run a server that answers with the Authorization header it got; yields its URL."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(
            text=request.headers.get("Authorization", "nobody"), status=int(request.query.get("status", 200))
        )

    context = None
    if issued is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_key_pair(context, issued.serving)
    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"http{'s' if context else ''}://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client() -> AsyncIterator[WebClient]:
    made = WebClient()
    try:
        yield made
    finally:
        await made.close()


async def get(url: str, **options: Any) -> bytes:
    async with client() as asking:
        return await asking.http_get(url, **options)


@virtually
async def test_an_unknown_authority_is_believed_only_when_it_is_given_or_none_is_asked_for(
    issued: Issued, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(issued.authority)
    async with serving(issued) as url:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await get(url)
        assert await get(url, ca_file=str(ca_file)) == b"nobody"
        assert await get(url, insecure=True) == b"nobody"


@virtually
async def test_an_authority_that_was_replaced_is_read_again(issued: Issued, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(issue("another").authority)
    async with serving(issued) as url, client() as asking:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await asking.http_get(url, ca_file=str(ca_file))
        newer = tmp_path / "newer.crt"
        newer.write_bytes(issued.authority)
        newer.replace(ca_file)
        assert await asking.http_get(url, ca_file=str(ca_file)) == b"nobody"


@virtually
async def test_a_token_is_read_anew_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    async with serving() as url, client() as asking:
        for content in ("first\n", "second"):
            token.write_text(content)
            answer = await asking.http_get(url, bearer_token_file=str(token))
            assert answer == f"Bearer {content.strip()}".encode()


@pytest.mark.parametrize(
    ("option", "content", "told"),
    [
        pytest.param("bearer_token_file", None, "No such file.*given", id="no token file"),
        pytest.param("bearer_token_file", b" \n", "given: not a bearer token", id="an empty token"),
        pytest.param("bearer_token_file", b"a\r\nX: y", "given: not a bearer token", id="two lines"),
        pytest.param("bearer_token_file", b"\xff", "given: not a bearer token", id="no text"),
        pytest.param("ca_file", None, "No such file.*given", id="no CA file"),
        pytest.param("ca_file", b"x", "given: not certificates in PEM", id="no certificate"),
    ],
)
@virtually
async def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, option: str, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "given").write_bytes(content)
    with pytest.raises(OSError, match=told):
        await get("http://127.0.0.1:1/", **{option: str(tmp_path / "given")})


@virtually
async def test_another_status_and_no_answer_are_errors_that_name_the_url() -> None:
    async with serving() as url:
        with pytest.raises(OSError, match=rf"GET {url}\?status=503: 503 Service Unavailable: b'nobody'"):
            await get(f"{url}?status=503")
    with pytest.raises(OSError, match=f"GET {url}: ClientConnectorError"):
        await get(url)
