"""Work that is driven step by step runs as it would by itself, with any driver."""

from __future__ import annotations

from random import Random
from types import coroutine
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.daemon.recording.recorder import Recorder
from scheduler.daemon.recording.recording_files import Header
from scheduler.engine.runtime.budget import LoopBudget
from tests.recording.memory_recording import Tape
from tests.support.errors import raises
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    Drive = Callable[[Coroutine[Any, Any, list[str]]], Coroutine[Any, Any, list[str]]]


class LostError(Exception):
    """What is waited for does not come."""


@coroutine
def answer() -> Generator[None, Any, Any]:
    return (yield)


async def work(said: list[str]) -> list[str]:
    for _ in range(2):
        try:
            await answer()
            said.append("came")
        except LostError:
            said.append("lost")
        except GeneratorExit:
            said.append("closed")
            raise
    return said


async def run_in_slices(driven: Coroutine[Any, Any, list[str]]) -> list[str]:
    return await LoopBudget().run_in_slices(driven)


def recorded(driven: Coroutine[Any, Any, list[str]]) -> Coroutine[Any, Any, list[str]]:
    clock = ManualClock()
    return Recorder(clock, Tape(), Header.fresh(clock, Random(1))).task(driven, "work")


@pytest.mark.parametrize("drive", [run_in_slices, recorded], ids=lambda drive: drive.__name__)
class TestDriven:
    def test_sent_values_and_raised_errors_reach_the_work(self, drive: Drive) -> None:
        driven = drive(work([]))
        driven.send(None)
        driven.throw(LostError())
        with raises(StopIteration, value=["lost", "came"]):
            driven.send(None)

    def test_closing_the_driver_closes_the_work(self, drive: Drive) -> None:
        said: list[str] = []
        inner = work(said)
        driven = drive(inner)
        driven.send(None)
        driven.close()

        assert said == ["closed"]
