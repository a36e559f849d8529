"""Decorators of requests: a condition, a rate limit, a dry run; requests at startup, and reads of one pod."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from itertools import count, repeat
from typing import TYPE_CHECKING, Protocol

from scheduler.errors import ApiError, SchedulerError
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.request import Request, Response
from scheduler.objects.decode import decode_pod
from scheduler.retries import ALSO_REFUSED, DEFERRED, DEFERRED_SECONDS, TOKEN_SECONDS, Backoff, Refusals

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo

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


class TimeLimitedRequests:
    """Requests that take effect within a time limit, or never.

    This client closes the connection after that time, and the API server gives the request up after it.

    Args:
        requests: sends the requests.
        seconds: the time limit.
    """

    def __init__(self, requests: Requests, seconds: float) -> None:
        self._requests = requests
        self._seconds = seconds

    async def send(self, request: Request) -> Response:
        """Send as `Requests.send`."""
        return await self._requests.send(request.within(self._seconds))


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


class RetriedRequests:
    """Requests that are sent again if the server defers them; see `DEFERRED`.

    Args:
        requests: sends the requests.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def send(self, request: Request) -> Response:
        """Send as `Requests.send`, again after the time for which the server asks."""
        return await DEFERRED.send(
            partial(self._requests.send, request), repeat(DEFERRED_SECONDS), asyncio.sleep
        )


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


ASK_SECONDS = 1.0
REFUSAL_SECONDS = 10.0
"""How long a refusal is retried: a server that has just started refuses everything until it has read its roles."""
_TOLD_SECONDS = 30.0
_ANSWER_SECONDS = 5.0  # after that, the next try may reach another server


class StoppedError(SchedulerError):
    """The process was stopped while it waited for the API server."""


class StartupRequests:
    """Requests that are sent again until the server answers them, or refuses them for good.

    Only for requests that may be carried out twice.

    Args:
        requests: sends the requests.
        stop: ends the waiting once it is set.
        meanwhile: a context that is entered while waiting for the server.
    """

    def __init__(
        self,
        requests: Requests,
        stop: asyncio.Event,
        *,
        meanwhile: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    ) -> None:
        self._requests = requests
        self._stop = stop
        self._meanwhile = meanwhile

    async def send(self, request: Request) -> Response:
        """Send as `Requests.send`.

        Raises:
            ApiError: refused.
            StoppedError: the process is stopping.
        """
        try:
            return await self._requests.send(request)
        except ApiError as error:
            if not ALSO_REFUSED.allows(error, 1):
                raise
            first = error
        async with self._meanwhile():
            return await self._ask_on(request, first)

    async def _ask_on(self, request: Request, error: ApiError) -> Response:
        loop = asyncio.get_running_loop()
        began = loop.time()
        tell_at = began
        refusals = Refusals(REFUSAL_SECONDS)
        for tries in count(2):
            waited = loop.time() - began
            if refusals.accepts(error, loop.time()) or not ALSO_REFUSED.allows(error, tries):
                raise error
            if loop.time() >= tell_at:
                tell_at = loop.time() + _TOLD_SECONDS
                logger.warning(
                    "Waiting for the API server", extra={"error": str(error), "waited_seconds": round(waited)}
                )
            await self._pause(error.pause_seconds(ASK_SECONDS))
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    return await self._requests.send(request)
            except TimeoutError:
                error = ApiError(0, "Timeout", f"{request}: no answer within {_ANSWER_SECONDS:g} s")
            except ApiError as again:
                error = again
        raise AssertionError("counting ends nowhere")

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return
        raise StoppedError("stopped while waiting for the API server")


_MAXIMUM_SECONDS = 5.0
_TRIES_UNTIL_TOLD = 5


class ApiPodReader:
    """Reads pods one at a time; used when the answer to a Binding leaves open whether it took effect."""

    def __init__(self, connection: ApiConnection, random: Random) -> None:
        self._connection = connection
        self._random = random

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        """Return the current pod, None if it does not exist.

        Retries for as long as the API server is in trouble: the resources of a pod that may be bound can be
        neither given to another pod nor considered lost. A refusal is retried for a minute.

        Raises:
            ApiError: refused.
            ObjectError: the answer cannot be read.
        """
        backoff = Backoff(self._random, initial_seconds=0.2, maximum_seconds=_MAXIMUM_SECONDS)
        loop, refusals = asyncio.get_running_loop(), Refusals(TOKEN_SECONDS)
        for tries in count(1):
            try:
                answer = await self._connection.send(Request("GET", PODS.path(namespace, name)))
            except ApiError as error:
                if error.status == 404:
                    return None
                if refusals.accepts(error, loop.time()) or not ALSO_REFUSED.allows(error, tries):
                    raise
                if tries == _TRIES_UNTIL_TOLD:
                    fields = {"pod": f"{namespace}/{name}", "status": error.status, "error": str(error)}
                    logger.warning(
                        "Cannot read the pod after a Binding without an answer; retrying", extra=fields
                    )
                await asyncio.sleep(error.pause_seconds(backoff.next_seconds()))
            else:
                return decode_pod(answer.body)
        raise AssertionError("counting ends nowhere")
