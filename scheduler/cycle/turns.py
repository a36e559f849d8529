"""Runs long decisions in time slices: the lease, the watches and the HTTP endpoints run between two slices."""

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
"""Length of a time slice. Longer slices save little time, and delay other tasks noticeably."""

_WORK_SECONDS: Final = 0.05
"""Maximum time of work that delays all other pods although it could continue in another attempt."""


async def answered_in_turns(ask: Callable[[], T], steps: Steps = UNHEARD) -> T:
    """Call a function until it returns; the work of its NeedsTime exceptions runs in time slices.

    This serves evaluations outside the queue; each call uses the current cluster.

    Args:
        ask: the function.
        steps: replay hooks that record each yield to the event loop, for recorded evaluations.

    Raises:
        RuntimeError: the function raises NeedsTime again and again.
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
    """Run work in time slices, with yields to the event loop in between, and return its result.

    Args:
        work: the work; each step takes a few milliseconds at most.
        steps: replay hooks that record each yield to the event loop, for recorded evaluations.
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
    """Pause an attempt, so that other pods are tried; the cluster may change during the pause.

    Args:
        holds: whether the attempt has assumed pods during the pause.
    """
    yield _HOLDS if holds else _RESTS


class InUnits(Generic[T]):
    """An attempt that can pause: each await runs it until its next pause or its end, and returns its result.

    Args:
        attempt: the attempt.
        none: the result at a pause.

    Attributes:
        is_over: whether it ended or raised.
        holds: whether it is paused with assumed pods.
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
        """Abort a paused attempt."""
        self._attempt.close()


class Turns:
    """Implements `LongWork` within an attempt; the owner of the attempt ends the freeze.

    Args:
        freeze: begun before the first yield to the event loop, so that the evaluated cluster does not change.
        steps: replay hooks that record each yield to the event loop.
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
        """Yield to the event loop, if the current time slice is over."""
        if self._steps.observed(self._now() >= self._until):
            self._freeze.begin()
            await asyncio.sleep(0)
            self._until = self._now() + SLICE_SECONDS
