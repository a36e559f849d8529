"""The limit of an extender's response."""

from __future__ import annotations

import traceback
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from scheduler.configuration.types import Extender
from scheduler.extensions.extenders.http_extender import HttpExtender
from scheduler.extensions.extenders.wire import ExtenderError
from tests.support.builders import node, pod
from tests.support.extender_server import scripted_extender
from tests.support.virtual_time_test import virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MIB = 1024 * 1024


@asynccontextmanager
async def very_long() -> AsyncIterator[str]:
    """Serve a response that is very long."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(64):
            await answer.write(b" " * MIB)
        return answer

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site.name
    finally:
        await runner.cleanup()


def asking(url: str) -> HttpExtender:
    return HttpExtender(
        Extender(url_prefix=url, filter_verb="filter", node_cache_capable=True), "extenders[0]"
    )


@virtually
async def test_a_very_long_response_is_an_error_and_not_read_to_the_end() -> None:
    async with very_long() as url:
        extender = asking(url)
        with pytest.raises(ExtenderError, match=r"the response has more than 8\d{6} bytes"):
            await extender.filter(pod("web"), [node("n1")])
        await extender.close()


@virtually
async def test_a_stored_error_retains_nothing_of_the_response() -> None:
    async with very_long() as url:
        extender = asking(url)
        with pytest.raises(ExtenderError) as caught:
            await extender.filter(pod("web"), [node("n1")])
        await extender.close()

    error: BaseException | None = caught.value
    kept = 0
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            pieces = [each for each in frame.f_locals.values() if isinstance(each, list)]
            kept += sum(len(piece) for each in pieces for piece in each if isinstance(piece, bytes))
            kept += sum(len(each) for each in frame.f_locals.values() if isinstance(each, bytes))
        error = error.__cause__
    assert kept < MIB


@virtually
async def test_a_response_may_repeat_the_names_of_its_request_with_reasons() -> None:
    names = [f"n{number}" for number in range(10_000)]
    answer = {"NodeNames": names, "FailedNodes": dict.fromkeys(names, "x" * 700)}
    async with scripted_extender({"filter": answer}) as server:
        extender = asking(server.url)
        found = await extender.filter(pod("web"), [node(name) for name in names])
        assert len(found.failed) == len(names)
        await extender.close()
