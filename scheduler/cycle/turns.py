"""Long decisions in slices: between two of them the lease, the watches and the pages have their turn."""

from __future__ import annotations

import asyncio
import time
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from scheduler.framework.long_work import MOST_TIMES, TOO_OFTEN, NeedsTime, at_once
from scheduler.steps import UNHEARD, resumed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from scheduler.clock import Clock
    from scheduler.cycle.freeze import ClusterFreeze
    from scheduler.steps import Steps

T = TypeVar("T")

SLICE_SECONDS: Final = 0.005
"""After so long the others have their turn. Longer ones save little, and are felt by who waits."""

_WORK_SECONDS: Final = 0.05
"""How long a plugin may keep all other pods waiting, by work that it could go on with in another attempt."""


async def answered_in_turns(ask: Callable[[], T], steps: Steps = UNHEARD) -> T:
    """Ask until there is an answer; what plugins need time for is done in slices, between which others have their turn.

    For those that judge beside the queue: they ask on the cluster as it is, each time anew.

    Args:
        ask: asks.
        steps: are told of each turn that others have, where that is part of what is recorded.

    Raises:
        RuntimeError: plugins need time again and again.
    """
    for _ in range(MOST_TIMES):
        try:
            return ask()
        except NeedsTime as needs:
            if steps.needs_time():
                await in_slices(needs.steps, steps)
            else:
                at_once(needs.steps)
    raise RuntimeError(TOO_OFTEN)


async def in_slices(work: Generator[None, None, T], steps: Steps = UNHEARD) -> T:
    """Do work in slices, between which others have their turn, and return what it comes to.

    Args:
        work: each step takes a few milliseconds at most.
        steps: are told of each turn that others have, where that is part of what is recorded.
    """
    until = time.perf_counter() + SLICE_SECONDS
    while True:
        try:
            next(work)
        except StopIteration as end:
            await asyncio.sleep(0)
            result: T = end.value
            return result
        if steps.observed(time.perf_counter() >= until):
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_SECONDS


_RESTS: Final = object()
_HOLDS: Final = object()


@coroutine
def rest(*, holds: bool) -> Generator[object, None, None]:
    """End a unit of an attempt, so that other pods may be tried; the cluster may be another one afterwards.

    Args:
        holds: whether pods are assumed for the attempt meanwhile.
    """
    yield _HOLDS if holds else _RESTS


class InUnits(Generic[T]):
    """An attempt that is made a unit at a time: awaited, it goes on until it rests or has ended, and returns what it came to.

    Args:
        attempt: which.
        none: is returned where it rests.

    Attributes:
        is_over: whether it has ended, or raised.
        holds: whether it rests, and pods are assumed for it.
    """

    def __init__(self, attempt: Coroutine[Any, Any, T], none: T) -> None:
        self._attempt, self._none = attempt, none
        self._steps: Any = attempt.__await__()
        self.is_over = self.holds = False

    def __await__(self) -> Generator[Any, Any, T]:
        step, value, self.holds = self._steps.send, None, False
        try:
            while (waits_for := step(value)) is not _RESTS and waits_for is not _HOLDS:
                step, value = yield from resumed(self._steps, waits_for)
        except StopIteration as end:
            self.is_over = True
            result: T = end.value
            return result
        except BaseException:
            self.is_over = True
            raise
        self.holds = waits_for is _HOLDS
        return self._none

    def close(self) -> None:
        """Give up an attempt that rests."""
        self._attempt.close()


class Turns:
    """Fulfils `LongWork` within an attempt, at the end of which its owner ends the freeze.

    Args:
        freeze: begun before others first have a turn, so that what is judged stays as it is.
        steps: are told of each turn that others have.
    """

    def __init__(self, freeze: ClusterFreeze, clock: Clock, steps: Steps = UNHEARD) -> None:
        self._freeze = freeze
        self._steps = steps
        self._now = clock.monotonic
        self._began = self._until = 0.0

    def begin(self) -> None:
        """Begin a slice."""
        self._until = self._now() + SLICE_SECONDS

    async def done(self, steps: Generator[None, None, T]) -> T:
        self._began = self._now()
        self._until = self._began + SLICE_SECONDS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.give_way()

    def has_time(self) -> bool:
        return not self._steps.observed(self._now() - self._began >= _WORK_SECONDS)

    async def give_way(self) -> None:
        """Let the others have a turn, if they have not had one for as long as a slice takes."""
        if self._steps.observed(self._now() >= self._until):
            self._freeze.begin()
            await asyncio.sleep(0)
            self._until = self._now() + SLICE_SECONDS
