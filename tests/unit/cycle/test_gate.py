"""While a cycle waits, the cluster does not change; afterwards nothing is missing and everything is in order."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from scheduler.cycle.gate import Gate
from scheduler.cycle.gated_handler import GatedHandler
from tests.virtually import virtually

if TYPE_CHECKING:
    import pytest


class Heard:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_add(self, obj: str) -> None:
        if obj == "bad":
            raise ValueError(obj)
        self.calls.append(("add", obj))

    def on_update(self, old: str, new: str) -> None:
        self.calls.append(("update", old, new))

    def on_delete(self, old: str) -> None:
        self.calls.append(("delete", old))

    def on_undecodable(self, identity: Any, error: Any) -> None:
        self.calls.append(("undecodable", identity, error))


def tell_everything(handler: Any) -> list[Any]:
    handler.on_add("a")
    handler.on_update("a", "b")
    handler.on_undecodable("b", "why")
    handler.on_delete("b")
    return [("add", "a"), ("update", "a", "b"), ("undecodable", "b", "why"), ("delete", "b")]


def test_an_open_gate_lets_everything_pass_at_once() -> None:
    heard = Heard()
    assert tell_everything(GatedHandler(heard, Gate())) == heard.calls


def test_what_comes_to_a_closed_gate_passes_in_order_when_it_opens() -> None:
    heard, gate = Heard(), Gate()
    with gate.closed():
        told = tell_everything(GatedHandler(heard, gate))
        assert heard.calls == []
        assert not gate.is_open
    assert gate.is_open
    assert heard.calls == told


def test_a_change_that_fails_does_not_keep_the_others(caplog: pytest.LogCaptureFixture) -> None:
    heard, gate = Heard(), Gate()
    handler = GatedHandler(heard, gate)
    with caplog.at_level(logging.ERROR), gate.closed():
        handler.on_add("bad")
        handler.on_add("good")
    assert heard.calls == [("add", "good")]
    assert "A change that had to wait could not be made" in caplog.text


@virtually
async def test_who_waits_goes_on_only_while_the_gate_is_open() -> None:
    gate, seen = Gate(), []

    async def wait() -> None:
        await gate.wait_open()
        seen.append(gate.is_open)

    with gate.closed():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(1)
        assert not waiting.done()
    with gate.closed():  # again, before the one who waits had a turn
        await asyncio.sleep(1)
        assert not waiting.done()
    await waiting
    assert seen == [True]
