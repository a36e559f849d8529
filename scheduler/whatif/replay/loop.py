"""An event loop whose time is what it is told to be, and which waits for nobody."""

from __future__ import annotations

import asyncio
from typing import Any


class ReplayLoop(asyncio.SelectorEventLoop):
    """An event loop for tasks that wait for each other and for timers only.

    Attributes:
        now: seconds; timers are called when it has come to theirs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        poll: Any = self._selector  # type: ignore[attr-defined]  # what the loop waits in
        poll.select = lambda _timeout: ()  # nothing comes from outside

    def time(self) -> float:
        return self.now

    async def settle(self) -> None:
        """Let all tasks go on until each waits for something that is yet to come; called by one of them."""
        ready: Any = self._ready  # type: ignore[attr-defined]  # nobody else knows
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        while ready or (timers and timers[0].when() <= self.now):  # noqa: ASYNC110  # that is to wait for the others
            await asyncio.sleep(0)
