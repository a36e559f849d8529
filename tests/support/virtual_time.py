"""Virtual time, as simulations have it: an hour takes milliseconds. Here its loop measures its turns as well."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.tools.whatif.simulation.virtual_time import EPOCH, LoopClock
from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop as VirtualTimeLoopOfSimulations
from scheduler.worker_thread import THREAD_NAME

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["EPOCH", "LoopClock", "VirtualTimeLoop", "next_poll", "now", "run"]

T = TypeVar("T")

_TURNS_AT_MOST = 20_000
"""Without time going on: whatever is done then ends nowhere."""
_LONGEST_READ_SECONDS = 5.0


class VirtualTimeLoop(VirtualTimeLoopOfSimulations):
    """An event loop that never waits.

    Attributes:
        longest_turn_seconds: of the processor, that one turn of the loop has taken.
        all_turns: number of turns so far.
    """

    def __init__(self) -> None:
        self.longest_turn_seconds = 0.0
        self._turn_began = time.thread_time()
        self._turns = self.all_turns = 0  # the first since time went on
        self._moment = 0.0
        super().__init__()

    def _select(self, timeout: float | None) -> Any:
        now = time.thread_time()
        self.longest_turn_seconds = max(self.longest_turn_seconds, now - self._turn_began)
        self._turn_began = now
        self._turns += 1
        self.all_turns += 1
        if self._moment != self._now:
            self._moment, self._turns = self._now, 0
        if self._turns == _TURNS_AT_MOST:
            raise AssertionError(f"something goes on for ever at {self._now:.3f} s")
        # What is read in a thread takes no time. A thread that ends has sent its result before, so this looks once more.
        until, is_reading = time.monotonic() + _LONGEST_READ_SECONDS, timeout != 0
        while is_reading and time.monotonic() < until:
            is_reading = _is_reading()
            if ready := self._poll(0.001 if is_reading else 0):
                self._reach_next_timer()
                return ready
        return super()._select(timeout)

    def next_change(self) -> float:
        """Return the time of the next timer if no other work is left, else the present time: nothing changes before."""
        timers = self._scheduled  # type: ignore[attr-defined]
        is_working = self._ready or self._held or self._idlers or self._poll(0) or _is_reading()  # type: ignore[attr-defined]
        return self._now if is_working or not timers else float(timers[0].when())


def _is_reading() -> bool:
    return threading.active_count() > 1 and any(
        thread.name == THREAD_NAME for thread in threading.enumerate()
    )


def now() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


async def next_poll(seconds: float, deadline: float = math.inf) -> None:
    """Sleep between two looks at a condition: so long, or a multiple of it if nothing can change before.

    Args:
        seconds: time between two looks.
        deadline: time of the last look.
    """
    loop, times = asyncio.get_running_loop(), 1
    if isinstance(loop, VirtualTimeLoop):
        times = max(1, math.ceil((min(loop.next_change(), deadline) - loop.time()) / seconds))
    await asyncio.sleep(times * seconds)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a virtual-time loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
