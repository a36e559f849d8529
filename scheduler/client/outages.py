"""Notices when the API server goes away and when it is back: one view for all who ask it.

Whoever fails alone would wait for longer and longer, and find out late that the server is well again. So while it is
not, it is asked about twice a second, cheaply and by one, and the others wait for that.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from scheduler.client.http.request import Request
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.client.connection import ApiConnection

logger = logging.getLogger(__name__)

ASK_SECONDS = 0.5
"""How often a server that is away is asked whether it is back."""
SILENCE_SECONDS = 15.0
"""After how long without a byte over any connection a server is asked whether it is there."""
_ANSWER_SECONDS = 2.0
_TOLD_SECONDS = 30.0
_READY = Request("GET", "/readyz", timeout_seconds=_ANSWER_SECONDS)
_REFUSALS = frozenset({401, 403, 404})
"""Answers of a server that is there and does not say more to everybody."""


class Outages:
    """Follows whether the API server is well.

    Args:
        connection: whose failures make it ask, and whose connections are given up when they may lead nowhere.
    """

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._suspected = asyncio.Event()
        self._asked_at = 0.0  # the loop's time
        self._since: float | None = None  # the loop's time, of an outage that lasts
        self._over = asyncio.Event()  # replaced by another once it is set
        self._when_away: list[Callable[[], None]] = []
        self._when_over: list[Callable[[], None]] = []
        connection.in_trouble = self._suspected.set

    @property
    def is_away(self) -> bool:
        """Whether the server was asked and did not answer that it is well."""
        return self._since is not None

    def when_over(self, callback: Callable[[], None]) -> None:
        """Have something called at the end of each outage."""
        self._when_over.append(callback)

    def when_away(self, callback: Callable[[], None]) -> None:
        """Have something called at the beginning of each outage."""
        self._when_away.append(callback)

    async def pause(self, seconds: float) -> bool:
        """Wait so long, or until an outage is over, if there is one; whether one was."""
        over = self._over
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()
        return over.is_set()

    async def run(self) -> NoReturn:
        """Follow it until cancelled; without, no outage is ever seen."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._silence_left()):
                    await self._suspected.wait()
            if self._suspected.is_set() or self._silence_left() <= 0:
                await self._ask_until_well()
                # What fails while the server is well is no reason to ask it all the time.
                await asyncio.sleep(ASK_SECONDS)
                self._suspected.clear()

    def _silence_left(self) -> float:
        """Return after how many more seconds without a byte to ask."""
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
        """Say what is wrong with the server; over a new connection, for the old ones may be what is wrong."""
        try:
            await self._connection.send(_READY, anew=True)
        except ApiError as error:
            return None if error.status in _REFUSALS else str(error)
        return None
