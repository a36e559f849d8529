"""Whether what is known of the cluster is known to be behind it: who places pods by that waits a little.

kube-scheduler goes on by what it has. Here the time from a server's return until everything is followed again is a
second or two, and what would be decided in it by a picture of before an outage is refused, or wrong.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.client.outages import Outages

logger = logging.getLogger(__name__)

HOLD_SECONDS = 10.0
"""How long a picture that stays behind holds anybody up while the server is there."""
_SETTLE_SECONDS = 0.2
"""What a resumed watch has missed comes at once, and there is no sign that it was all."""
_LOOK_SECONDS = 0.02


class Picture:
    """Which kinds are behind: their watch broke, and the next has not begun.

    Args:
        outages: tells whether the server is there at all.
    """

    def __init__(self, outages: Outages) -> None:
        self._outages = outages
        self._behind: dict[
            str, asyncio.TimerHandle | None
        ] = {}  # kind -> when it will have caught up, if that is known
        self._held_since: float | None = None
        self._is_given_up = False
        self._callbacks: list[Callable[[], None]] = []
        outages.when_away(self._hold_anew)

    @property
    def is_behind(self) -> bool:
        """Whether to `wait` before anything is decided by it."""
        return bool(self._behind) and not self._is_given_up

    def broke(self, kind: str) -> None:
        """Note that a kind is not followed any more."""
        self._settle(kind)
        self._behind[kind] = None

    def resumed(self, kind: str) -> None:
        """Note that a kind is followed again, from where that ended."""
        if kind in self._behind and self._behind[kind] is None:
            loop = asyncio.get_running_loop()
            self._behind[kind] = loop.call_later(_SETTLE_SECONDS, self.complete, kind)

    def complete(self, kind: str) -> None:
        """Note that everything of a kind is known."""
        self._settle(kind)
        if not self._behind:
            self._hold_anew()

    def restored(self, kind: str) -> None:
        """Note that the server went back to an older state, and that what was known of a kind is to be listed anew."""
        self._hold_anew()
        for callback in self._callbacks:
            callback()

    def when_restored(self, callback: Callable[[], None]) -> None:
        """Have something called whenever a kind shows that the server went back to an older state."""
        self._callbacks.append(callback)

    async def wait(self) -> None:
        """Wait for a moment of the time in which it is behind; in the end it does as it is."""
        now = asyncio.get_running_loop().time()
        if self._held_since is None or self._outages.is_away:
            self._held_since = now
        if now - self._held_since >= HOLD_SECONDS:
            self._is_given_up = True
            logger.warning(
                "Scheduling goes on by what is known, though some of it is not followed",
                extra={"kinds": sorted(self._behind), "waited_seconds": HOLD_SECONDS},
            )
            return
        await asyncio.sleep(_LOOK_SECONDS)

    def _hold_anew(self) -> None:
        """What was given up before is another picture than the one that is to come."""
        self._held_since = None
        self._is_given_up = False

    def _settle(self, kind: str) -> None:
        timer = self._behind.pop(kind, None)
        if timer is not None:
            timer.cancel()
