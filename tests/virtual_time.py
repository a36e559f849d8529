"""Virtual time: an event loop whose clock jumps to the next timer, so that an hour takes milliseconds.

All that runs in it must take its time from the loop, and live in one process: real I/O between two ends in
the same loop works, for what one end wrote is there at once for the other (Unix sockets; TCP on loopback in
practice). Threads and executors do not.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""What `LoopClock` shows when the loop's time is 0."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits.

    Attributes:
        longest_turn_seconds: of the processor, that one turn of the loop has taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.longest_turn_seconds = 0.0
        self._now = 0.0
        turn_began = time.thread_time()
        poll = self._selector.select  # type: ignore[attr-defined]  # what the loop waits in

        def select(timeout: float | None) -> Any:
            nonlocal turn_began
            now = time.thread_time()
            self.longest_turn_seconds = max(self.longest_turn_seconds, now - turn_began)
            turn_began = now
            ready = poll(0)
            if not ready and timeout is None:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            if not ready and timeout:
                self._now += timeout
            self._reach_next_timer()
            return ready

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now

    def stall(self, seconds: float) -> None:
        """Let time pass in the middle of a turn, as when the process was stopped or something held the loop."""
        self._now += seconds

    def _reach_next_timer(self) -> None:
        """Let a timer that is due within the clock's resolution be due: asyncio calls it, and who looks at the clock then and
        finds it is too early would wait again, at the same time for ever.
        """
        timers = self._scheduled  # type: ignore[attr-defined]
        if timers and 0.0 < timers[0].when() - self._now < self._clock_resolution:  # type: ignore[attr-defined]
            self._now = timers[0].when()


class LoopClock:
    """A clock (scheduler.clock.Clock) that is an event loop's; of the running one unless told."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()

    def monotonic(self) -> float:
        return self._loop.time()

    def utc_now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a virtual-time loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
