from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scheduler.kube.client.outages import HOLD_SECONDS, StaleCacheGate

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Away:
    is_away = False

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def when_away(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


async def held(cache_gate: StaleCacheGate, *, at_most: float = 1000.0) -> float:
    """Wait as a scheduler does; return how long."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while cache_gate.is_stale and loop.time() - began < at_most:
        await cache_gate.wait()
    return loop.time() - began


async def test_a_broken_watch_holds_scheduling_until_shortly_after_the_next_one():
    cache_gate = StaleCacheGate(Away())  # type: ignore[arg-type]
    assert not cache_gate.is_stale
    cache_gate.broke("pods")
    asyncio.get_running_loop().call_later(2.0, cache_gate.resumed, "pods")

    assert 2.2 <= await held(cache_gate) <= 2.3


async def test_a_watch_that_breaks_again_extends_the_hold():
    cache_gate = StaleCacheGate(Away())  # type: ignore[arg-type]
    cache_gate.broke("pods")
    cache_gate.resumed("pods")
    await asyncio.sleep(0.1)
    cache_gate.broke("pods")

    assert await held(cache_gate, at_most=5.0) >= 5.0
    cache_gate.complete("pods")
    assert not cache_gate.is_stale


async def test_every_kind_counts():
    cache_gate = StaleCacheGate(Away())  # type: ignore[arg-type]
    cache_gate.broke("pods")
    cache_gate.broke("nodes")
    cache_gate.complete("pods")
    assert cache_gate.is_stale
    cache_gate.complete("nodes")
    assert not cache_gate.is_stale


async def test_the_hold_has_a_time_limit_until_the_cache_is_complete_again(caplog: pytest.LogCaptureFixture):
    cache_gate = StaleCacheGate(Away())  # type: ignore[arg-type]
    cache_gate.broke("pods")
    with caplog.at_level(logging.WARNING):
        assert HOLD_SECONDS <= await held(cache_gate) <= HOLD_SECONDS + 0.1
    assert len(caplog.records) == 1
    cache_gate.broke("nodes")
    assert not cache_gate.is_stale
    cache_gate.complete("nodes")
    cache_gate.complete("pods")

    cache_gate.broke("pods")

    assert HOLD_SECONDS <= await held(cache_gate) <= HOLD_SECONDS + 0.1


async def test_listeners_are_notified_when_a_stale_cache_that_was_used_is_complete_again():
    cache_gate, calls = StaleCacheGate(Away()), []  # type: ignore[arg-type]
    cache_gate.when_caught_up(lambda: calls.append(""))
    cache_gate.broke("pods")
    cache_gate.complete("pods")
    assert not calls, "no pod was tried meanwhile"
    cache_gate.broke("pods")
    cache_gate.broke("nodes")
    await held(cache_gate)
    cache_gate.complete("nodes")
    assert not calls
    cache_gate.complete("pods")

    assert len(calls) == 1


async def test_the_time_of_an_outage_does_not_count_toward_the_hold():
    outages = Away()
    outages.is_away = True
    cache_gate = StaleCacheGate(outages)  # type: ignore[arg-type]
    cache_gate.broke("pods")

    assert await held(cache_gate, at_most=100.0) >= 100.0
    outages.is_away = False
    assert HOLD_SECONDS - 0.1 <= await held(cache_gate) <= HOLD_SECONDS + 0.1


async def test_an_outage_or_a_restore_starts_the_hold_again():
    outages = Away()
    cache_gate = StaleCacheGate(outages)  # type: ignore[arg-type]
    cache_gate.broke("pods")
    await held(cache_gate)
    assert not cache_gate.is_stale

    for callback in outages.callbacks:
        callback()
    assert HOLD_SECONDS <= await held(cache_gate) <= HOLD_SECONDS + 0.1

    cache_gate.restored("nodes")
    assert HOLD_SECONDS <= await held(cache_gate) <= HOLD_SECONDS + 0.1
