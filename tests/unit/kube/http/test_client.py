"""Requests to any web server: redirects, headers, cookies, compressed and large answers, and many servers."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from scheduler.kube.http.client import HttpClient, HttpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from scheduler.kube.http.request import Response

MOST_BYTES = 10_000


@asynccontextmanager
async def client() -> AsyncIterator[HttpClient]:
    made = HttpClient()
    try:
        yield made
    finally:
        await made.close()


async def send(asking: HttpClient, url: str, method: str = "GET", **options: Any) -> Response:
    return await asking.send(method, url, timeout_seconds=5.0, most_bytes=MOST_BYTES, **options)


class Server:
    """Redirects `/STATUS/...` to the given locations, and answers all other requests with `ok`.

    Attributes: requests: method, path with query, Authorization, Cookie and body of each request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, str | None, str | None, bytes]] = []
        self.locations: dict[str, str] = {}
        self.headers: Mapping[str, str] = {}
        self.body = b"ok"

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = request.headers
        self.requests.append(
            (
                request.method,
                request.path_qs,
                headers.get("Authorization"),
                headers.get("Cookie"),
                await request.read(),
            )
        )
        location = self.locations.get(request.path)
        if location is None:
            return web.Response(body=self.body, headers=self.headers)
        status = int(request.path.split("/")[1])
        return web.Response(status=status, headers={"Location": location, "Set-Cookie": "a=b"})


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    answering = Server()
    server = web.Server(answering.handle, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    answering.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield answering
    finally:
        listener.close()
        await server.shutdown(0.1)


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (301, ("GET", b"")),
        (302, ("GET", b"")),
        (303, ("GET", b"")),
        (307, ("POST", b"{}")),
        (308, ("POST", b"{}")),
    ],
)
async def test_redirects_are_followed_as_in_go(status: int, again: tuple[str, bytes]) -> None:
    async with serving() as server, client() as asking:
        server.locations[f"/{status}/a"] = "../b?c=d"

        assert (await send(asking, f"{server.url}/{status}/a", "POST", body=b"{}")).body == b"ok"
        method, path, *_, body = server.requests[-1]
        assert (method, path, body) == (again[0], "/b?c=d", again[1])


async def test_a_redirect_to_another_server_gets_no_headers_and_no_cookie() -> None:
    async with serving() as server, serving() as other, client() as asking:
        server.locations["/302/here"] = "/302/there"
        server.locations["/302/there"] = f"{other.url}/x"
        await send(asking, f"{server.url}/302/here", headers={"Authorization": "Bearer t"})

        sent = [request[2:4] for request in (*server.requests, *other.requests)]
        assert sent == [("Bearer t", None), ("Bearer t", None), (None, None)]


async def test_redirects_end_after_ten() -> None:
    async with serving() as server, client() as asking:
        server.locations["/302/"] = "/302/"
        with pytest.raises(HttpError, match="more than 10 redirects"):
            await send(asking, f"{server.url}/302/")
        assert len(server.requests) == 11


async def test_a_redirect_to_a_file_is_returned() -> None:
    async with serving() as server, client() as asking:
        server.locations["/302/"] = "file:///etc/hostname"
        assert (await send(asking, f"{server.url}/302/")).status == 302


async def test_each_redirect_of_a_request_is_checked() -> None:
    async with serving() as server, client() as asking:
        server.locations["/307/"] = "/b"
        checks: list[int] = []

        def check() -> None:
            checks.append(len(server.requests))
            if server.requests:
                raise RuntimeError("may not")

        with pytest.raises(RuntimeError, match="may not"):
            await send(asking, f"{server.url}/307/", "POST", body=b"{}", check=check)
        assert (checks, len(server.requests)) == ([0, 0, 1], 1)


async def test_user_and_spaces_of_a_url_are_encoded_for_http() -> None:
    async with serving() as server, client() as asking:
        await send(asking, f"{server.url.replace('//', '//me:p%40ss@')}/a b?c=é#d")
        assert server.requests[0][1:3] == ("/a%20b?c=%C3%A9", "Basic bWU6cEBzcw==")


async def test_a_multi_line_header_is_an_error_without_its_value() -> None:
    async with serving() as server, client() as asking:
        with pytest.raises(HttpError, match=r"a header is more than one line of text$"):
            await send(asking, server.url, headers={"X-Token": "s3cret\r\nHost: other"})
        assert not server.requests


async def test_a_compressed_response_is_an_error() -> None:
    async with serving() as server, client() as asking:
        server.body, server.headers = gzip.compress(bytes(2**20)), {"Content-Encoding": "gzip"}
        with pytest.raises(HttpError, match="compressed with 'gzip', which was not requested"):
            await send(asking, server.url)


@pytest.mark.parametrize("part", ["body", "head"])
async def test_a_large_response_is_an_error_and_the_next_one_is_read(part: str) -> None:
    async with serving() as server, client() as asking:
        if part == "body":
            server.body = bytes(MOST_BYTES)
        else:
            server.headers = {"X": "y" * MOST_BYTES}
        with pytest.raises(HttpError, match=f"the response has more than {MOST_BYTES} bytes"):
            await send(asking, server.url)
        server.body, server.headers = bytes(MOST_BYTES // 2), {}
        assert len((await send(asking, server.url)).body) == MOST_BYTES // 2


async def test_pools_of_unused_servers_are_dropped() -> None:
    async with client() as asking:
        for number in range(1, 20):
            with pytest.raises(HttpError):
                await send(asking, f"http://127.0.0.1:{number}")
        assert len(asking._pools) == 1


async def test_a_connection_is_reused() -> None:
    async with serving() as server, client() as asking:
        for _ in range(3):
            await send(asking, server.url)
        (pool,) = asking._pools.values()
        assert len(pool._idle) == 1
