"""Keeps the cluster as it is while a scheduling cycle waits for an extender, or lets others have a turn.

A cycle that does neither needs none of this: nothing else runs meanwhile. While one that does is at work, what the
API server shows is noted and done when the cycle has ended, and bindings that have failed wait with taking their pods
back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from scheduler.steps import UNHEARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.steps import Steps

logger = logging.getLogger(__name__)

_SLICE_SECONDS = 0.005
"""How long changes that had to wait are made before others have their turn: an extender may take minutes."""


class ClusterFreeze:
    """Whether our picture of the cluster may change.

    Args:
        steps: are told where changes that had to wait are left for the next slice.
    """

    def __init__(self, steps: Steps = UNHEARD) -> None:
        self._steps = steps
        self._over = asyncio.Event()
        self._over.set()
        self._later: deque[Callable[[], None]] = deque()

    @property
    def is_on(self) -> bool:
        """Whether nothing may change."""
        return not self._over.is_set()

    def do_later(self, change: Callable[[], None]) -> None:
        """Make a change once the freeze is over; several are made in the order they came."""
        self._later.append(change)

    async def wait_over(self) -> None:
        """Wait until the cluster may change; it may until the caller next waits for something."""
        while self.is_on:
            await self._over.wait()

    def begin(self) -> None:
        """Keep the cluster as it is until `end`; nothing if it is kept already."""
        self._over.clear()

    async def end(self) -> None:
        """Let the cluster change: what had to wait is done, others having their turns between."""
        try:
            while self._make_some():
                self._over.clear()  # what comes now comes after what is left
                await asyncio.sleep(0)
        finally:  # cancelled or not
            self._over.set()
            while self._later:
                _make(self._later.popleft())

    def _make_some(self) -> bool:
        """Make changes for a while; whether some are left."""
        self._over.set()
        until = time.perf_counter() + _SLICE_SECONDS
        while self._later:
            _make(self._later.popleft())
            if self._later and self._steps.observed(time.perf_counter() >= until):
                return True
        return False


def _make(change: Callable[[], None]) -> None:
    try:
        change()
    except Exception:
        # As in the store that would have made it at once: what is known is kept, and the others follow.
        logger.exception("A change that had to wait could not be made")
