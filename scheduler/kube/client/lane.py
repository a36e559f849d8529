"""A lane for urgent requests: an adaptive limit bounds the requests in flight; waiting requests are queued."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING

from scheduler.errors import ApiError
from scheduler.kube.client.connection import TIMEOUT
from scheduler.retries import DEFERRED, DEFERRED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scheduler.kube.client.requests import Requests
    from scheduler.kube.http.request import Request, Response

_QUEUED_TIMES = 2.0
_QUEUED_SECONDS = 0.005
_FORGETTING = 1.0002
"""Factor by which the lowest latency grows with each answer: the server, or the network to it, may have changed."""
_LEARNING = 0.05
"""Weight of a new answer in the average latency, which is measured while the limit is at its initial value."""


class AdaptiveLimit:
    """Grows while answers are quick, at first by one with each answer; shrinks while requests queue or answers are slow.

    There is no fixed rate: a small server is not overloaded and a large one is used fully. Where answers take
    much longer than the lowest latency, requests queue at the server. More concurrent requests would only
    lengthen that queue, in which the watch events of bound pods wait too, and open more connections. So the
    limit shrinks, to its initial value at the least. At the initial value, the average latency is learnt: a
    server that other clients load is slow however few requests this client sends, and without this floor the
    limit would shrink to nothing. No I/O, no clock; the caller reports when each request began and how it
    ended.
    """

    def __init__(self, *, initial: int = 8, maximum: int = 128, slow_seconds: float = 1.0) -> None:
        """Start at an intermediate limit.

        Args:
            initial: the first limit, and the lowest one while requests queue.
            maximum: the highest limit: what a connection pool and a server's queue can take.
            slow_seconds: an answer that takes longer is a sign of too many requests in flight.
        """
        self._value = self._initial = float(initial)
        self._maximum = float(maximum)
        self._slow_seconds = slow_seconds
        self._shrunk_at = float("-inf")
        self._quick_seconds = float("inf")  # recent low latency
        self._is_new = True  # nothing has queued yet

    @property
    def value(self) -> int:
        """The current limit, at least 1."""
        return int(self._value)

    def answered(self, *, started: float, now: float, all_used: bool) -> None:
        """Record an answer.

        Args:
            started: when the request was sent, in seconds of any one clock.
            now: the current time of the same clock.
            all_used: whether the limit delayed other requests; a limit that is not reached does not grow.
        """
        seconds = now - started
        quick = self._quick_seconds
        if self._value <= self._initial and not self._is_new and quick < float("inf"):
            self._quick_seconds += _LEARNING * (seconds - quick)
        else:
            self._quick_seconds = min(seconds, quick * _FORGETTING)
        if seconds > self._slow_seconds:
            self._shrink(0.7, started, now)
        elif self._queues(seconds):
            self._is_new = False
            self._value = max(min(self._initial, self._value), self._value - 1 / self._value)
        elif all_used and started > self._shrunk_at:
            self._value = min(self._maximum, self._value + (1 if self._is_new else 1 / self._value))

    def _queues(self, seconds: float) -> bool:
        """Return whether an answer that took this long waited for other requests."""
        return seconds > _QUEUED_TIMES * self._quick_seconds + _QUEUED_SECONDS

    def overloaded(self, *, started: float, now: float) -> None:
        """Record that the server reported overload, or did not answer in time."""
        self._shrink(0.5, started, now)

    def _shrink(self, factor: float, started: float, now: float) -> None:
        # A request sent before the last shrinking says nothing about the present limit.
        self._is_new = False
        if started > self._shrunk_at:
            self._value = max(1.0, self._value * factor)
            self._shrunk_at = now


if TYPE_CHECKING:
    _Ticket = tuple[int, int]
    """(round, number); the number orders requests by arrival."""


class Lane:
    """Sends the requests of its callers' tasks, at once while the limit allows, else in lines that take turns.

    A request that the server defers (429, or 503 with Retry-After: the server did not begin it) stops the
    whole lane for as long as the server asks, and then goes before all later requests.

    Args:
        requests: sends the requests.
        limit: the limit of requests in flight.
    """

    def __init__(self, requests: Requests, limit: AdaptiveLimit) -> None:
        self._requests = requests
        self._limit = limit
        self._numbers = itertools.count()
        self._waiting: list[tuple[_Ticket, asyncio.Future[None]]] = []  # a heap
        self._last: dict[Hashable, int] = {}  # line -> round of its last request, while requests wait
        self._granted = 0  # round of the last started request
        self._in_flight = 0
        self._present = 0
        self._resume: asyncio.TimerHandle | None = None  # set while the server's Retry-After lasts
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def present(self) -> int:
        """The number of requests waiting or in flight."""
        return self._present

    @property
    def is_saturated(self) -> bool:
        """Whether requests wait for the limit."""
        return self._present > self._in_flight

    @property
    def free(self) -> int:
        """How many more requests the limit allows."""
        return max(0, self._limit.value - self._in_flight)

    async def wait_idle(self) -> None:
        """Wait until no request is waiting or in flight."""
        await self._idle.wait()

    async def send(self, request: Request, line: Hashable = None) -> Response:
        """Send one request in its turn, again if the server defers it.

        Args:
            request: the request.
            line: requests of one line are sent in order of arrival. Lines take turns, so that a request of one does
                not wait for thousands of another.

        Raises:
            ApiError: the request failed; 429 after the tries of `DEFERRED`.
        """
        ticket = self._ticket(line)
        self._present += 1
        self._idle.clear()
        try:
            for tries in itertools.count(1):
                its_turn = request
                if self._has_room and not self._waiting:
                    self._in_flight += 1
                    self._granted = ticket[0]
                else:
                    its_turn = request.held_back(await self._wait_turn(ticket))
                try:
                    return await self._send_once(its_turn)
                except ApiError as error:
                    if not DEFERRED.allows(error, tries):
                        raise
                finally:
                    self._in_flight -= 1
                    self._grant()
            raise AssertionError("counting ends nowhere")
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
            if error.is_deferred:
                seconds = error.retry_after_seconds
                self._stop(DEFERRED_SECONDS if seconds is None else seconds)
            if error.is_deferred or error.reason == TIMEOUT:
                self._limit.overloaded(started=started, now=loop.time())
            raise
        self._limit.answered(started=started, now=loop.time(), all_used=self.is_saturated)
        return response

    def _ticket(self, line: Hashable) -> _Ticket:
        """Return the next ticket of a line: each round has one request of each line."""
        found = self._last[line] = max(self._granted, self._last.get(line, 0)) + 1
        return found, next(self._numbers)

    async def _wait_turn(self, ticket: _Ticket) -> float:
        """Wait until the limit allows the request and count it as in flight; return the seconds waited."""
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
        """Let requests start in turn as far as the limit allows, unless the server asked to wait."""
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
