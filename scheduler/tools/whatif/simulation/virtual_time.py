"""Virtual time: an event loop whose clock jumps to the next timer, so that a day of a cluster takes seconds.

All code in it must take the time from the loop; running code takes no virtual time. I/O between two ends in the same loop
works, because written data arrives at once. Calls to other processes must use `held`, which stops the clock. Threads and
executors do not work otherwise.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Time of `LoopClock` when the loop's time is 0, by default."""
_OWN_FILES = 1
"""Number of files that every loop watches: the pipe through which other threads wake it."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits, except for calls to other processes."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._watching = self._selector.get_map()  # type: ignore[attr-defined]  # the loop waits in it
        self._poll = self._selector.select  # type: ignore[attr-defined]
        self._selector.select = self._select  # type: ignore[attr-defined]
        self._resolution = time.get_clock_info("monotonic").resolution  # like asyncio
        self._idlers: list[asyncio.Future[None]] = []
        self._held: list[float] = []  # deadlines of calls to other processes, by the real clock

    def time(self) -> float:
        return self._now

    def stall(self, seconds: float) -> None:
        """Advance the time while code runs, as if the process was stopped or the loop was blocked."""
        self._now += seconds

    async def sleep_until(self, at: float) -> None:
        """Return at a time, at once if it has passed."""
        if at > self._now:
            await asyncio.sleep(at - self._now)

    async def idle(self) -> None:
        """Return when no work is left until time advances; several tasks may wait for this."""
        waiter = self.create_future()
        self._idlers.append(waiter)
        await waiter

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Stop the clock during a call to another process, for at most `seconds` of real time."""
        until = time.monotonic() + seconds
        self._held.append(until)
        try:
            yield
        finally:
            self._held.remove(until)

    def _select(self, timeout: float | None) -> Any:
        """Return the ready files, like a selector; advance the time if there is no other work."""
        is_watching = len(self._watching) > _OWN_FILES or bool(self._held)
        ready = self._poll(0) if is_watching else []
        if not ready and timeout != 0:
            ready = self._pass_time(timeout)
        self._reach_next_timer()
        return ready

    def _pass_time(self, timeout: float | None) -> Any:
        if self._idlers:
            for waiter in self._idlers:
                if not waiter.done():
                    waiter.set_result(None)
            self._idlers.clear()
            return []
        if self._held:
            ready = self._poll(max(0.0, min(self._held) - time.monotonic()))
            if ready:
                return ready
        if timeout is None:
            raise RuntimeError("deadlock: every task waits and no timer is set")
        self._now += timeout
        if self._now + self._resolution == self._now:
            # The time is so large that the resolution of a float is coarser.
            self._resolution *= 1024.0
            self._clock_resolution = self._resolution  # asyncio uses this
        return []

    def _reach_next_timer(self) -> None:
        """Advance to a timer that is due within the clock's resolution.

        asyncio calls such a timer. Code that reads the clock then, finds that it is too early, and waits again would wait
        at the same time without end.
        """
        timers = self._scheduled  # type: ignore[attr-defined]
        if timers and 0.0 < timers[0].when() - self._now < self._resolution:
            self._now = timers[0].when()


class LoopClock:
    """A clock (scheduler.clock.Clock) with the time of an event loop.

    Args:
        loop: the loop; None for the running one.
        epoch: the time when the loop's time is 0.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, epoch: datetime = EPOCH) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._epoch = epoch

    def monotonic(self) -> float:
        return self._loop.time()

    def utc_now(self) -> datetime:
        return self._epoch + timedelta(seconds=self._loop.time())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a virtual-time loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
