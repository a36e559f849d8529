from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scheduler.client.picture import HOLD_SECONDS, Picture
from tests.virtually import virtually

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Away:
    is_away = False

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def when_away(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


async def held(picture: Picture, *, at_most: float = 1000.0) -> float:
    """Wait as a scheduler does; return how long."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while picture.is_behind and loop.time() - began < at_most:
        await picture.wait()
    return loop.time() - began


@virtually
async def test_a_watch_that_broke_holds_up_until_the_next_has_begun_and_had_a_moment():
    picture = Picture(Away())  # type: ignore[arg-type]
    assert not picture.is_behind
    picture.broke("pods")
    asyncio.get_running_loop().call_later(2.0, picture.resumed, "pods")

    assert 2.2 <= await held(picture) <= 2.3


@virtually
async def test_a_watch_that_breaks_again_in_that_moment_holds_up_on():
    picture = Picture(Away())  # type: ignore[arg-type]
    picture.broke("pods")
    picture.resumed("pods")
    await asyncio.sleep(0.1)
    picture.broke("pods")

    assert await held(picture, at_most=5.0) >= 5.0
    picture.complete("pods")
    assert not picture.is_behind


@virtually
async def test_every_kind_counts():
    picture = Picture(Away())  # type: ignore[arg-type]
    picture.broke("pods")
    picture.broke("nodes")
    picture.complete("pods")
    assert picture.is_behind
    picture.complete("nodes")
    assert not picture.is_behind


@virtually
async def test_in_the_end_it_does_as_it_is_until_it_was_whole_once(caplog: pytest.LogCaptureFixture):
    picture = Picture(Away())  # type: ignore[arg-type]
    picture.broke("pods")
    with caplog.at_level(logging.WARNING):
        assert HOLD_SECONDS <= await held(picture) <= HOLD_SECONDS + 0.1
    assert len(caplog.records) == 1
    picture.broke("nodes")
    assert not picture.is_behind
    picture.complete("nodes")
    picture.complete("pods")

    picture.broke("pods")

    assert HOLD_SECONDS <= await held(picture) <= HOLD_SECONDS + 0.1


@virtually
async def test_while_the_server_is_away_nothing_could_be_bound_so_that_time_does_not_count():
    outages = Away()
    outages.is_away = True
    picture = Picture(outages)  # type: ignore[arg-type]
    picture.broke("pods")

    assert await held(picture, at_most=100.0) >= 100.0
    outages.is_away = False
    assert HOLD_SECONDS - 0.1 <= await held(picture) <= HOLD_SECONDS + 0.1


@virtually
async def test_a_server_that_goes_away_or_back_has_another_picture_than_the_one_that_was_given_up():
    outages = Away()
    picture = Picture(outages)  # type: ignore[arg-type]
    picture.broke("pods")
    await held(picture)
    assert not picture.is_behind

    for callback in outages.callbacks:
        callback()
    assert HOLD_SECONDS <= await held(picture) <= HOLD_SECONDS + 0.1

    picture.restored("nodes")
    assert HOLD_SECONDS <= await held(picture) <= HOLD_SECONDS + 0.1
