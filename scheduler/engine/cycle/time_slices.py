"""Runs long decisions in time slices, and freezes the state of the cluster meanwhile.

The lease, the watches and the HTTP endpoints run between two slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from scheduler.engine.ports import REAL_TIME
from scheduler.framework.sliced_work import MAX_RESTARTS, TOO_MANY_RESTARTS, NeedsTime, resumed
from scheduler.loop_work import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from scheduler.engine.ports import Time

logger = logging.getLogger(__name__)

_SLICE_SECONDS = 0.005
"""Duration of one slice of deferred changes: there may be many, because an extender may take minutes."""


class ClusterFreeze:
    """Controls whether the cached state of the cluster may change while a scheduling cycle awaits an extender, or yields.

    Other cycles need no freeze, because nothing else runs meanwhile. During a freeze, watch events are deferred until the
    cycle ends, and failed bindings wait before they undo their assumptions.

    Args:
        time: says when deferred changes are left for the next slice.
    """

    def __init__(self, time: Time = REAL_TIME) -> None:
        self._time = time
        self._over = asyncio.Event()
        self._over.set()
        self._later: deque[Callable[[], None]] = deque()

    @property
    def is_on(self) -> bool:
        """Whether a freeze is active."""
        return not self._over.is_set()

    def do_later(self, change: Callable[[], None]) -> None:
        """Defer a change until the end of the freeze; deferred changes keep their order."""
        self._later.append(change)

    async def wait_over(self) -> None:
        """Wait for the end of a freeze; no freeze begins before the caller's next await."""
        while self.is_on:
            await self._over.wait()

    def begin(self) -> None:
        """Begin a freeze until `end`; does nothing during a freeze."""
        self._over.clear()

    async def end(self) -> None:
        """End the freeze: make the deferred changes in slices."""
        try:
            while self._make_some():
                self._over.clear()  # new changes follow the remaining ones
                await asyncio.sleep(0)
        finally:  # cancelled or not
            self._over.set()
            while self._later:
                _make(self._later.popleft())

    def _make_some(self) -> bool:
        """Make one slice of deferred changes; return whether some are left."""
        self._over.set()
        until = self._time.stopwatch() + _SLICE_SECONDS
        while self._later:
            _make(self._later.popleft())
            if self._later and self._time.is_over(until):
                return True
        return False


def _make(change: Callable[[], None]) -> None:
    try:
        change()
    except Exception:
        # As in the store, which makes changes at once: the state is kept, and the next change follows.
        logger.exception("A deferred change failed")


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
