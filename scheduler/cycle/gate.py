"""Keeps the cluster as it is while a scheduling cycle waits for an extender.

A cycle that waits for nobody needs none of this: nothing else runs meanwhile. One that does closes the gate; what
the API server tells is then noted and done when the cycle has ended, and bindings that have failed wait with
taking their pods back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)


class Gate:
    """Open, unless a cycle is waiting."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._opened.set()
        self._later: deque[Callable[[], None]] = deque()

    @property
    def is_open(self) -> bool:
        """Whether the cluster may change."""
        return self._opened.is_set()

    def when_open(self, change: Callable[[], None]) -> None:
        """Make a change of the cluster now, or, in the order they came, once the gate opens."""
        if self.is_open:
            change()
        else:
            self._later.append(change)

    async def wait_open(self) -> None:
        """Wait until the cluster may change; it may until the caller next waits for something."""
        while not self.is_open:
            await self._opened.wait()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Keep the cluster as it is."""
        self._opened.clear()
        try:
            yield
        finally:
            self._opened.set()
            while self._later:
                _make(self._later.popleft())


def _make(change: Callable[[], None]) -> None:
    try:
        change()
    except Exception:
        # As in the store that would have made it at once: what is known is kept, and the others follow.
        logger.exception("A change that had to wait could not be made")
