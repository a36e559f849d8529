"""A fixed rate of requests, for who asks for one; without, concurrency adapts and nothing here is used."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.client.connection import Requests, Response


class RateLimitedRequests:
    """Requests at no more than so many a second, in the order they came; a burst may go out at once.

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

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
    ) -> Response:
        """Ask as `Requests.request`, when it is this one's turn."""
        now = asyncio.get_running_loop().time()
        turn = max(self._next, now - self._ahead_seconds)
        self._next = turn + self._interval_seconds
        if turn > now:
            await asyncio.sleep(turn - now)
        return await self._requests.request(
            method,
            path,
            params=params,
            body=body,
            content_type=content_type,
            headers=headers,
            timeout_seconds=timeout_seconds,
        )
