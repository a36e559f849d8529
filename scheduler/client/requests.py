"""Where requests are sent, and what may stand before the connection: a condition, a rate, or nothing at all behind."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from scheduler.client.http.request import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.client.connection import ApiConnection
    from scheduler.client.http.request import Request

logger = logging.getLogger(__name__)


class Requests(Protocol):
    """Where requests are sent: an `ApiConnection`, or one of those below before it."""

    async def send(self, request: Request) -> Response:
        """Ask once and wait for the whole answer.

        Raises:
            ApiError: the answer is not 2xx; or, with status 0, there was none: see the reasons in `connection`.
        """
        ...


class GuardedRequests:
    """Requests over a connection that go out only while a condition holds.

    A request may wait for its turn and for a connection, each for seconds, and the process may be stopped meanwhile. So
    the condition is asked again when all of that is over, right before the first byte.

    Args:
        check: raises when nothing may go out.
    """

    def __init__(self, connection: ApiConnection, check: Callable[[], None]) -> None:
        self._connection = connection
        self._check = check

    async def send(self, request: Request) -> Response:
        """Ask as `ApiConnection.send`; raises besides what the check raises, and then nothing was sent."""
        return await self._connection.send(request, before_sending=self._check)


class RateLimitedRequests:
    """Requests at no more than so many a second, in the order they came; a burst may go out at once.

    For who asks for a rate; without, concurrency adapts.

    Args:
        requests: where they go when their turn comes.
        qps: requests a second, more than 0.
        burst: how many may go out at once after a pause, at least 1.
    """

    def __init__(self, requests: Requests, *, qps: float, burst: int) -> None:
        self._requests = requests
        self._interval_seconds = 1 / qps
        self._ahead_seconds = (burst - 1) / qps
        self._next = float("-inf")  # when the next one may go out if there were no burst

    async def send(self, request: Request) -> Response:
        """Ask as `Requests.send`, when it is this one's turn."""
        now = asyncio.get_running_loop().time()
        turn = max(self._next, now - self._ahead_seconds)
        self._next = turn + self._interval_seconds
        if turn > now:
            await asyncio.sleep(turn - now)
            request = request.held_back(turn - now)
        return await self._requests.send(request)


class Rehearsal:
    """Takes every write for done and sends nothing: for a daemon that decides, explains and counts.

    So a pod that would be bound is counted on its node from then on, as if it were; when it is really bound, by
    whomever, the watch says where.
    """

    async def send(self, request: Request) -> Response:
        """Answer as a server would that has nothing to object; as with one, others have their turn meanwhile."""
        logger.debug("Not sent", extra={"method": request.method, "path": request.path})
        await asyncio.sleep(0)
        return Response(200, request.body or b"{}")
