"""Decorators of requests: a condition, a rate limit, and a dry run."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from scheduler.kube.http.request import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.http.request import Request

logger = logging.getLogger(__name__)


class Requests(Protocol):
    """Sends requests: an `ApiConnection`, or a decorator of one."""

    async def send(self, request: Request) -> Response:
        """Send once and wait for the whole answer.

        Raises:
            ApiError: the answer is not 2xx; or, with status 0, no answer came: see the reasons in
                `connection`.
        """
        ...


class GuardedRequests:
    """Requests that are sent only while a condition holds.

    A request may wait for a limit and for a connection, each for seconds, and the process may be suspended
    meanwhile. So the condition is checked again after all waiting, right before the first byte.

    Args:
        connection: sends the requests.
        check: raises when nothing may be sent.
    """

    def __init__(self, connection: ApiConnection, check: Callable[[], None]) -> None:
        self._connection = connection
        self._check = check

    async def send(self, request: Request) -> Response:
        """Send as `ApiConnection.send`; also raises the exceptions of the check, and then nothing was sent."""
        return await self._connection.send(request, before_sending=self._check)


class RateLimitedRequests:
    """Requests at a limited rate, in order of arrival; a burst is sent at once.

    For configurations that set a rate; without one, the number of concurrent requests adapts.

    Args:
        requests: sends the requests.
        qps: requests per second, more than 0.
        burst: the number of requests sent at once after a pause, at least 1.
    """

    def __init__(self, requests: Requests, *, qps: float, burst: int) -> None:
        self._requests = requests
        self._interval_seconds = 1 / qps
        self._ahead_seconds = (burst - 1) / qps
        self._next = float("-inf")  # when the next request may be sent, bursts aside

    async def send(self, request: Request) -> Response:
        """Send as `Requests.send`, after the wait that the rate requires."""
        now = asyncio.get_running_loop().time()
        turn = max(self._next, now - self._ahead_seconds)
        self._next = turn + self._interval_seconds
        if turn > now:
            await asyncio.sleep(turn - now)
            request = request.held_back(turn - now)
        return await self._requests.send(request)


class DryRunRequests:
    """Accepts every write and sends nothing: for a daemon that decides, explains and counts.

    A pod that would be bound is then counted on its node. When another scheduler binds it, the watch shows
    the real node.
    """

    async def send(self, request: Request) -> Response:
        """Return the answer of a server that accepts the write; other tasks run meanwhile, as with a server."""
        logger.debug("Not sent", extra={"method": request.method, "path": request.path})
        await asyncio.sleep(0)
        return Response(200, request.body or b"{}")
