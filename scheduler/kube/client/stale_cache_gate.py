"""Tracks whether the cache is known to be stale; scheduling then pauses for a moment.

kube-scheduler continues with a stale cache. Here the time from the server's return until all watches are open
again is a second or two, and a decision made in it from a state before the outage would be refused, or wrong.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.kube.client.outages import Outages

logger = logging.getLogger(__name__)

HOLD_SECONDS = 10.0
"""How long a stale cache delays scheduling while the server is available."""
_SETTLE_SECONDS = 0.2
"""A resumed watch sends the missed events at once, but nothing marks their end."""
_LOOK_SECONDS = 0.02


class StaleCacheGate:
    """The kinds whose cache is stale: their watch ended, and the next one has not begun.

    Args:
        outages: knows whether the server is available.
    """

    def __init__(self, outages: Outages) -> None:
        self._outages = outages
        self._behind: dict[
            str, asyncio.TimerHandle | None
        ] = {}  # kind -> timer until it is complete, None while its watch is closed
        self._held_since: float | None = None
        self._is_given_up = False
        self._callbacks: list[Callable[[], None]] = []
        outages.when_away(self._start_hold)

    @property
    def is_stale(self) -> bool:
        """Whether to `wait` before any decision from the cache."""
        return bool(self._behind) and not self._is_given_up

    def broke(self, kind: str) -> None:
        """Record that the watch of a kind ended."""
        self._settle(kind)
        self._behind[kind] = None

    def resumed(self, kind: str) -> None:
        """Record that the watch of a kind resumed from its last version."""
        if kind in self._behind and self._behind[kind] is None:
            loop = asyncio.get_running_loop()
            self._behind[kind] = loop.call_later(_SETTLE_SECONDS, self.complete, kind)

    def complete(self, kind: str) -> None:
        """Record that the cache of a kind is complete."""
        self._settle(kind)
        if not self._behind:
            self._start_hold()

    def restored(self, kind: str) -> None:
        """Record that the server went back to an older state, so that the kind must be listed again."""
        self._start_hold()
        for callback in self._callbacks:
            callback()

    def when_restored(self, callback: Callable[[], None]) -> None:
        """Register a callback for each kind that shows that the server went back to an older state."""
        self._callbacks.append(callback)

    async def wait(self) -> None:
        """Wait for a moment while the cache is stale; after `HOLD_SECONDS` scheduling continues with it."""
        now = asyncio.get_running_loop().time()
        if self._held_since is None or self._outages.is_away:
            self._held_since = now
        if now - self._held_since >= HOLD_SECONDS:
            self._is_given_up = True
            logger.warning(
                "Scheduling continues with a stale cache: some kinds are not watched",
                extra={"kinds": sorted(self._behind), "waited_seconds": HOLD_SECONDS},
            )
            return
        await asyncio.sleep(_LOOK_SECONDS)

    def _start_hold(self) -> None:
        """Restart the waiting time: a stale cache that was given up is not the present one."""
        self._held_since = None
        self._is_given_up = False

    def _settle(self, kind: str) -> None:
        timer = self._behind.pop(kind, None)
        if timer is not None:
            timer.cancel()
