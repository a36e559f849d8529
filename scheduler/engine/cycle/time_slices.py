"""Runs long decisions in time slices: the lease, the watches and the HTTP endpoints run between two slices."""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from scheduler.engine.ports import REAL_TIME
from scheduler.engine.runtime.coroutines import resumed
from scheduler.framework.sliced_work import MAX_RESTARTS, TOO_MANY_RESTARTS, NeedsTime, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from scheduler.engine.cycle.freeze import ClusterFreeze
    from scheduler.engine.ports import Time

T = TypeVar("T")

SLICE_SECONDS: Final = 0.005
"""Length of a time slice. Longer slices save little time, and delay other tasks noticeably."""

_WORK_SECONDS: Final = 0.05
"""Maximum time of work that delays all other pods although it could continue in another attempt."""


async def answer_in_slices(ask: Callable[[], T], time: Time = REAL_TIME) -> T:
    """Call a function until it returns; the work of its NeedsTime exceptions runs in time slices.

    This serves evaluations outside the queue; each call uses the current cluster.

    Args:
        ask: the function.
        time: the time.

    Raises:
        RuntimeError: the function raises NeedsTime again and again.
    """
    for _ in range(MAX_RESTARTS):
        try:
            return ask()
        except NeedsTime as needs:
            if time.has_slices():
                await run_in_slices(needs.steps, time)
            else:
                run_to_end(needs.steps)
    raise RuntimeError(TOO_MANY_RESTARTS)


async def run_in_slices(work: Generator[None, None, T], time: Time = REAL_TIME) -> T:
    """Run work in time slices, with yields to the event loop in between, and return its result.

    Args:
        work: the work; each step takes a few milliseconds at most.
        time: the time.
    """
    until = time.stopwatch() + SLICE_SECONDS
    while True:
        try:
            next(work)
        except StopIteration as end:
            await asyncio.sleep(0)
            result: T = end.value
            return result
        if time.is_over(until):
            await asyncio.sleep(0)
            until = time.stopwatch() + SLICE_SECONDS


_PAUSES: Final = object()
_PAUSES_HOLDING_PODS: Final = object()


@coroutine
def pause_attempt(*, holds: bool) -> Generator[object, None, None]:
    """Pause an attempt, so that other pods are tried; the cluster may change during the pause.

    Args:
        holds: whether the attempt has assumed pods during the pause.
    """
    yield _PAUSES_HOLDING_PODS if holds else _PAUSES


class PausableAttempt(Generic[T]):
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
        self._driven: Any = attempt.__await__()
        self.is_over = self.holds = False

    def __await__(self) -> Generator[Any, Any, T]:
        step, value, self.holds = self._driven.send, None, False
        try:
            while (waits_for := step(value)) is not _PAUSES and waits_for is not _PAUSES_HOLDING_PODS:
                step, value = yield from resumed(self._driven, waits_for)
        except StopIteration as end:
            self.is_over = True
            result: T = end.value
            return result
        except BaseException:
            self.is_over = True
            raise
        self.holds = waits_for is _PAUSES_HOLDING_PODS
        return self._none

    def close(self) -> None:
        """Abort a paused attempt."""
        self._attempt.close()


class TimeSlices:
    """Implements `SlicedWork` within an attempt; the owner of the attempt ends the freeze.

    Args:
        freeze: begun before the first yield to the event loop, so that the evaluated cluster does not change.
        time: says when a slice is over.
    """

    def __init__(self, freeze: ClusterFreeze, time: Time) -> None:
        self._freeze = freeze
        self._time = time
        self._began = self._until = 0.0

    def begin(self) -> None:
        """Begin a slice."""
        self._until = self._time.stopwatch() + SLICE_SECONDS

    async def done(self, work: Generator[None, None, T]) -> T:
        self._began = self._time.stopwatch()
        self._until = self._began + SLICE_SECONDS
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.yield_to_loop()

    def has_time(self) -> bool:
        return not self._time.has_elapsed(self._began, _WORK_SECONDS)

    async def yield_to_loop(self) -> None:
        """Yield to the event loop, if the current time slice is over."""
        if self._time.is_over(self._until):
            self._freeze.begin()
            await asyncio.sleep(0)
            self._until = self._time.stopwatch() + SLICE_SECONDS
