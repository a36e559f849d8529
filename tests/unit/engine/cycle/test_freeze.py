"""During a freeze the cluster does not change; afterwards all deferred changes are applied in order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from scheduler.engine.cycle.event_handlers import EventHandler
from scheduler.engine.cycle.freeze import ClusterFreeze
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.shared import Shared
from tests.support.manual_clock import ManualClock
from tests.support.virtual_time_test import virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


class Heard(EventHandler[str]):
    def __init__(self, freeze: ClusterFreeze) -> None:
        shared = Shared(ManualClock(0.0), NoObserver())
        shared.freeze = freeze
        super().__init__(shared)
        self.calls: list[Any] = []

    def _added(self, obj: str) -> Any:
        if obj == "bad":
            raise ValueError(obj)
        self.calls.append(("add", obj))
        return ()

    def _updated(self, old: str, new: str) -> Any:
        self.calls.append(("update", old, new))
        return ()

    def _deleted(self, old: str) -> Any:
        self.calls.append(("delete", old))
        return ()

    def _undecodable(self, identity: Any, error: Any) -> None:
        self.calls.append(("undecodable", identity, error))


@asynccontextmanager
async def frozen(freeze: ClusterFreeze) -> AsyncIterator[None]:
    freeze.begin()
    try:
        yield
    finally:
        await freeze.end()


def tell_everything(handler: Any) -> list[Any]:
    handler.on_add("a")
    handler.on_update("a", "b")
    handler.on_undecodable("b", "why")
    handler.on_delete("b")
    return [("add", "a"), ("update", "a", "b"), ("undecodable", "b", "why"), ("delete", "b")]


def test_without_a_freeze_changes_are_applied_at_once() -> None:
    heard = Heard(ClusterFreeze())
    assert tell_everything(heard) == heard.calls


@virtually
async def test_changes_during_a_freeze_are_applied_in_order_at_its_end() -> None:
    freeze = ClusterFreeze()
    heard = Heard(freeze)
    async with frozen(freeze):
        expected = tell_everything(heard)
        assert heard.calls == []
        assert freeze.is_on
    assert not freeze.is_on
    assert heard.calls == expected


@virtually
async def test_a_failing_deferred_change_does_not_block_the_others(caplog: pytest.LogCaptureFixture) -> None:
    freeze = ClusterFreeze()
    heard = Heard(freeze)
    with caplog.at_level(logging.ERROR):
        async with frozen(freeze):
            heard.on_add("bad")
            heard.on_add("good")
    assert heard.calls == [("add", "good")]
    assert "A deferred change failed" in caplog.text


@virtually
async def test_a_waiting_task_continues_only_without_a_freeze() -> None:
    freeze, seen = ClusterFreeze(), []

    async def wait() -> None:
        await freeze.wait_over()
        seen.append(freeze.is_on)

    async with frozen(freeze):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(1)
        assert not waiting.done()
    async with frozen(freeze):  # again, before the waiting task runs
        await asyncio.sleep(1)
        assert not waiting.done()
    await waiting
    assert seen == [False]
