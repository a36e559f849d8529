"""An event loop that never waits, for these tests: its clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import functools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

START = datetime(2026, 11, 21, 1, 34, 13, 840695, tzinfo=UTC)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        poll = self._selector.select

        def select(timeout: float | None) -> Any:
            ready = poll(0)
            if not ready and timeout is None:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            if not ready and timeout:
                self._now += timeout
            return ready

        self._selector.select = select

    def time(self) -> float:
        return self._now


class LoopClock:
    """A clock that shows the running loop's time."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def utc_now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in virtual time, with a minute of it at most left after the last timer."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
