"""The listening addresses of the server."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from scheduler.daemon.server.http_server import serving
from scheduler.errors import ConfigurationError
from tests.unit.daemon.server.one_request import some_pages

pytestmark = pytest.mark.run(by=asyncio.run)


def status_at(host: str, url_host: str) -> int:
    async def question() -> int:
        async with (
            serving(some_pages(), host, 0) as port,
            aiohttp.ClientSession() as session,
            session.get(f"http://{url_host}:{port}/healthz") as response,
        ):
            return response.status

    return asyncio.run(question())


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::", ""])  # noqa: S104 - that is what is tested
@pytest.mark.parametrize("asked", ["127.0.0.1", "[::1]"])
def test_all_addresses_are_those_of_ipv4_and_of_ipv6(everywhere: str, asked: str) -> None:
    if asked == "[::1]" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")

    assert status_at(everywhere, asked) == 200


@pytest.mark.parametrize(("host", "asked"), [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost")])
def test_one_address_may_be_named(host: str, asked: str) -> None:
    assert status_at(host, asked) == 200


async def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"cannot listen on port {port} of 127\.0\.0\.1: "):
            async with serving(some_pages(), "127.0.0.1", port):
                pass


async def test_an_invalid_address_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on port 0 of nowhere\.invalid: "):
        async with serving(some_pages(), "nowhere.invalid", 0):
            pass
