"""A lane for urgent requests: as many under way as the server bears, which are sent in lines that take turns."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING

from scheduler.client.connection import TIMEOUT
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scheduler.client.adaptive_limit import AdaptiveLimit
    from scheduler.client.http.request import Request, Response
    from scheduler.client.requests import Requests

    _Ticket = tuple[int, int]
    """A round, and a number that says which request came first."""

MAX_TRIES = 10
"""How often one request is sent while the server asks to come later; as client-go."""
_DEFAULT_RETRY_SECONDS = 1.0


class Lane:
    """Sends requests of its callers' own tasks; at once where there is room, else in lines that take turns.

    A request that the server puts off (429, or 503 with Retry-After: it did not begin with it) stops the
    whole lane for as long as the server asks, and then goes before those that came later.

    Args:
        requests: where they go when their turn comes.
        limit: how many may be under way.
    """

    def __init__(self, requests: Requests, limit: AdaptiveLimit) -> None:
        self._requests = requests
        self._limit = limit
        self._numbers = itertools.count()
        self._waiting: list[tuple[_Ticket, asyncio.Future[None]]] = []  # a heap
        self._last: dict[Hashable, int] = {}  # line -> the round of its last request, while requests wait
        self._granted = 0  # the round of the request whose turn it was last
        self._in_flight = 0
        self._present = 0
        self._resume: asyncio.TimerHandle | None = None  # the server asked to wait until then
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def present(self) -> int:
        """How many requests are waiting or under way."""
        return self._present

    @property
    def is_crowded(self) -> bool:
        """Whether requests wait for their turn."""
        return self._present > self._in_flight

    @property
    def free(self) -> int:
        """How many more requests could be under way."""
        return max(0, self._limit.value - self._in_flight)

    async def wait_idle(self) -> None:
        """Wait until nothing is waiting or under way."""
        await self._idle.wait()

    async def send(self, request: Request, line: Hashable = None) -> Response:
        """Send one request when its turn comes, again if the server puts it off.

        Args:
            request: what to send.
            line: requests of one line are sent in order of their coming. Lines take turns, so that a request of one does
                not wait for thousands of another.

        Raises:
            ApiError: of the request; 429 after `MAX_TRIES`.
        """
        ticket = self._ticket(line)
        self._present += 1
        self._idle.clear()
        try:
            for tries_left in reversed(range(MAX_TRIES)):
                its_turn = request
                if self._has_room and not self._waiting:
                    self._in_flight += 1
                    self._granted = ticket[0]
                else:
                    its_turn = request.held_back(await self._wait_turn(ticket))
                try:
                    return await self._send_once(its_turn)
                except ApiError as error:
                    if not _was_put_off(error) or not tries_left:
                        raise
                finally:
                    self._in_flight -= 1
                    self._grant()
            raise AssertionError("the last try returns or raises")
        finally:
            self._present -= 1
            if not self._present:
                self._idle.set()

    @property
    def _has_room(self) -> bool:
        return self._resume is None and self._in_flight < self._limit.value

    async def _send_once(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            response = await self._requests.send(request)
        except ApiError as error:
            if _was_put_off(error):
                self._stop(
                    _DEFAULT_RETRY_SECONDS if error.retry_after_seconds is None else error.retry_after_seconds
                )
            if _was_put_off(error) or error.reason == TIMEOUT:
                self._limit.overloaded(started=started, now=loop.time())
            raise
        self._limit.answered(started=started, now=loop.time(), all_used=self.is_crowded)
        return response

    def _ticket(self, line: Hashable) -> _Ticket:
        """Return the next place in a line: in each round there is one request of each line."""
        found = self._last[line] = max(self._granted, self._last.get(line, 0)) + 1
        return found, next(self._numbers)

    async def _wait_turn(self, ticket: _Ticket) -> float:
        """Wait for a place in flight and take it; return for how many seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        turn: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (ticket, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._in_flight -= 1
                self._grant()
            raise
        return loop.time() - began

    def _grant(self) -> None:
        """Give the free places to those whose turn it is, unless the server asked to wait."""
        while self._waiting and self._has_room:
            (round_, _), turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._granted = round_
                turn.set_result(None)
                self._in_flight += 1
        if not self._waiting:
            self._last.clear()

    def _stop(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        resume_at = loop.time() + seconds
        if self._resume is not None:
            if resume_at <= self._resume.when():
                return
            self._resume.cancel()
        self._resume = loop.call_at(resume_at, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self._grant()


def _was_put_off(error: ApiError) -> bool:
    return error.status == 429 or (error.status == 503 and error.retry_after_seconds is not None)
