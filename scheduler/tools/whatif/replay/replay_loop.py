"""An event loop for replays, whose time is set from outside, and which waits for no I/O."""

from __future__ import annotations

import asyncio
from typing import Any


class ReplayLoop(asyncio.SelectorEventLoop):
    """An event loop for tasks that wait only for each other and for timers.

    Attributes:
        now: the time, in seconds; timers that are due are called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        poll: Any = self._selector  # type: ignore[attr-defined]  # the loop waits in it
        poll.select = lambda _timeout: ()  # there is no I/O

    def time(self) -> float:
        return self.now

    async def settle(self) -> None:
        """Run all tasks until each waits for a later event; called by one of the tasks."""
        ready: Any = self._ready  # type: ignore[attr-defined]  # there is no public API
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        while ready or (timers and timers[0].when() <= self.now):  # noqa: ASYNC110  # this yields to the other tasks
            await asyncio.sleep(0)
