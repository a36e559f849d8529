"""Detects outages of the API server for all its clients, and whether the cache is known to be stale.

Clients that retry alone wait longer and longer, and learn late that the server is back. So during an outage
one task probes the server twice a second, at low cost, and the clients wait for its result.

kube-scheduler continues with a stale cache. Here the time from the server's return until all watches are open
again is a second or two, and a decision made in it from a state before the outage would be refused, or wrong.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from scheduler.errors import ApiError
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.kube.client.connection import ApiConnection

logger = logging.getLogger(__name__)

ASK_SECONDS = 0.5
"""Interval of probes during an outage."""
SILENCE_SECONDS = 15.0
"""After this long without data on any connection the server is probed."""
_ANSWER_SECONDS = 2.0
_TOLD_SECONDS = 30.0
_READY = Request("GET", "/readyz", timeout_seconds=_ANSWER_SECONDS)
_REFUSALS = frozenset({401, 403, 404})
"""Statuses of a server that is running but restricts access."""


class Outages:
    """Follows whether the API server is available.

    Args:
        connection: its failures start a probe; its connections are closed when they may be dead.
    """

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._suspected = asyncio.Event()
        self._asked_at = 0.0  # the loop's time
        self._since: float | None = None  # the loop's time at the start of the current outage
        self._over = asyncio.Event()  # replaced by another once it is set
        self._when_away: list[Callable[[], None]] = []
        self._when_over: list[Callable[[], None]] = []
        self._when_well: list[Callable[[], None]] = []
        connection.in_trouble = self._suspected.set

    @property
    def is_away(self) -> bool:
        """Whether the last probe of the server failed."""
        return self._since is not None

    def when_over(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of each outage."""
        self._when_over.append(callback)

    def when_away(self, callback: Callable[[], None]) -> None:
        """Register a callback for the beginning of each outage."""
        self._when_away.append(callback)

    def when_well(self, callback: Callable[[], None]) -> None:
        """Register a callback for the first answer after failed requests, whether or not there was an outage."""
        self._when_well.append(callback)

    async def pause(self, seconds: float) -> bool:
        """Wait for some seconds, or for the end of an outage; return whether an outage ended."""
        over = self._over
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()
        return over.is_set()

    async def run(self) -> NoReturn:
        """Follow the server until cancelled; without this task, no outage is detected."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._silence_left()):
                    await self._suspected.wait()
            if self._suspected.is_set() or self._silence_left() <= 0:
                await self._ask_until_well()
                if self._suspected.is_set():
                    for callback in self._when_well:
                        callback()
                # Failures while the server is well must not cause continuous probes.
                await asyncio.sleep(ASK_SECONDS)
                self._suspected.clear()

    def _silence_left(self) -> float:
        """Return the seconds until a probe is due for silence."""
        since = self._connection.silent_since
        if since is None:
            return SILENCE_SECONDS
        return max(since, self._asked_at) + SILENCE_SECONDS - asyncio.get_running_loop().time()

    async def _ask_until_well(self) -> None:
        loop = asyncio.get_running_loop()
        began = self._asked_at = tell_at = loop.time()
        while (problem := await self._problem()) is not None:
            if self._since is None:
                self._since = began
                self._connection.close_idle()
                for callback in self._when_away:
                    callback()
            if loop.time() >= tell_at:
                tell_at = loop.time() + _TOLD_SECONDS
                away_seconds = round(loop.time() - began, 1)
                logger.warning("API server is away", extra={"error": problem, "away_seconds": away_seconds})
            await asyncio.sleep(ASK_SECONDS)
        if self._since is not None:
            self._end(began)

    def _end(self, began: float) -> None:
        seconds = asyncio.get_running_loop().time() - began
        logger.info("API server is back", extra={"away_seconds": round(seconds, 1)})
        self._since = None
        self._connection.cut_streams(began)
        for callback in self._when_over:
            callback()
        over, self._over = self._over, asyncio.Event()
        over.set()

    async def _problem(self) -> str | None:
        """Probe the server over a new connection, since existing ones may be broken; return the problem, None if well."""
        try:
            await self._connection.send(_READY, on_new_connection=True)
        except ApiError as error:
            return None if error.status in _REFUSALS else str(error)
        return None


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
        # kind -> timer until it is complete, None while its watch is closed
        self._behind: dict[str, asyncio.TimerHandle | None] = {}
        self._held_since: float | None = None
        self._is_given_up = False
        self._when_restored: list[Callable[[], None]] = []
        self._when_caught_up: list[Callable[[], None]] = []
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
            caught_up = self._when_caught_up if self._is_given_up else ()
            self._start_hold()
            for callback in caught_up:
                callback()

    def restored(self, kind: str) -> None:
        """Record that the server went back to an older state, so that the kind must be listed again."""
        self._start_hold()
        for callback in self._when_restored:
            callback()

    def when_restored(self, callback: Callable[[], None]) -> None:
        """Register a callback for each kind that shows that the server went back to an older state."""
        self._when_restored.append(callback)

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of each period in which scheduling continued with a stale cache."""
        self._when_caught_up.append(callback)

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
