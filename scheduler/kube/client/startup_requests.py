"""Requests at startup: they wait for a server that is unavailable instead of failing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from scheduler.errors import ApiError, SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.kube.client.requests import Requests
    from scheduler.kube.http.request import Request, Response

logger = logging.getLogger(__name__)

ASK_SECONDS = 1.0
REFUSAL_SECONDS = 10.0
"""How long a refusal is retried: a server that has just started refuses everything until it has read its roles."""
_TOLD_SECONDS = 30.0
_ANSWER_SECONDS = 5.0  # after that, the next try may reach another server
_REFUSALS = frozenset({401, 403})


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
            if not _may_pass(error):
                raise
            first = error
        async with self._meanwhile():
            return await self._ask_on(request, first)

    async def _ask_on(self, request: Request, error: ApiError) -> Response:
        loop = asyncio.get_running_loop()
        began = loop.time()
        tell_at = began
        refused_since: float | None = None
        while True:
            waited = loop.time() - began
            if error.status not in _REFUSALS:
                refused_since = None
            elif refused_since is None:
                refused_since = loop.time()
            is_believed = refused_since is not None and loop.time() - refused_since >= REFUSAL_SECONDS
            if is_believed or not _may_pass(error):
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

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return
        raise StoppedError("stopped while waiting for the API server")


def _may_pass(error: ApiError) -> bool:
    return error.status in {0, 429, *_REFUSALS} or error.status >= 500
