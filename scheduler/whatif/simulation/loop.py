"""Virtual time: an event loop whose clock jumps to the next timer, so that a day of a cluster takes seconds.

All that runs in it takes its time from the loop, so that what it does takes none. Real I/O between two ends in the same loop
works, for what one end wrote is there at once for the other. Whoever asks somebody outside says so by `held`: meanwhile
the clock stands still. Threads and executors do not work otherwise.
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
"""What `LoopClock` shows when the loop's time is 0, unless told."""
_OWN_FILES = 1
"""What a loop watches though nobody asked: the pipe by which other threads wake it."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits, but for those outside who were asked something."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._watching = self._selector.get_map()  # type: ignore[attr-defined]  # what the loop waits in
        self._poll = self._selector.select  # type: ignore[attr-defined]
        self._selector.select = self._select  # type: ignore[attr-defined]
        self._resolution = time.get_clock_info("monotonic").resolution  # as asyncio has it
        self._idlers: list[asyncio.Future[None]] = []
        self._held: list[float] = []  # until when those outside are waited for, by the real clock

    def time(self) -> float:
        return self._now

    def stall(self, seconds: float) -> None:
        """Let time pass in the middle of a turn, as when the process was stopped or something held the loop."""
        self._now += seconds

    async def sleep_until(self, at: float) -> None:
        """Return at a time, at once if it is over."""
        if at > self._now:
            await asyncio.sleep(at - self._now)

    async def idle(self) -> None:
        """Return once nothing is left that can be done before time passes; others may wait for the same."""
        waiter = self.create_future()
        self._idlers.append(waiter)
        await waiter

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Let the clock stand still while somebody outside is waited for, but no longer than so many real seconds."""
        until = time.monotonic() + seconds
        self._held.append(until)
        try:
            yield
        finally:
            self._held.remove(until)

    def _select(self, timeout: float | None) -> Any:
        """Return what can be read and written, as a selector does; pass the time if there is nothing else to do."""
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
        if self._now + self._resolution == self._now:  # so late that the clock is coarser
            self._resolution *= 1024.0
            self._clock_resolution = self._resolution  # what asyncio goes by
        return []

    def _reach_next_timer(self) -> None:
        """Let a timer that is due within the clock's resolution be due.

        For asyncio calls it, and who looks at the clock then and finds it is too early would wait again, at the same time
        for ever.
        """
        timers = self._scheduled  # type: ignore[attr-defined]
        if timers and 0.0 < timers[0].when() - self._now < self._resolution:
            self._now = timers[0].when()


class LoopClock:
    """A clock (scheduler.clock.Clock) that is an event loop's.

    Args:
        loop: the running one unless told.
        epoch: what it shows when the loop's time is 0.
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
