"""Freezes the state of the cluster while a scheduling cycle waits for an extender, or yields to the event loop.

Other cycles need no freeze, because nothing else runs meanwhile. During a freeze, watch events are deferred until the
cycle ends, and failed bindings wait before they undo their assumptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from scheduler.engine.ports import REAL_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.engine.ports import Time

logger = logging.getLogger(__name__)

_SLICE_SECONDS = 0.005
"""Duration of one slice of deferred changes: there may be many, because an extender may take minutes."""


class ClusterFreeze:
    """Controls whether the cached state of the cluster may change.

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
