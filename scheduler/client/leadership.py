"""Whether this scheduler is the one that may write: asked at the last moment before each request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.client.connection import ApiConnection, Response


class Leadership(Protocol):
    """The right to write, and how to come by it: `acquire`, `keep` beside the work, `release`."""

    def is_leading(self) -> bool:
        """Whether the right is ours at this moment, by the clock."""
        ...

    def check(self) -> None:
        """Do nothing while leading.

        Raises:
            NotLeadingError: we are not, or not any more.
        """
        ...

    async def acquire(self) -> None:
        """Wait until we lead; what goes wrong is logged and tried again."""
        ...

    async def keep(self) -> None:
        """Keep the right for as long as possible; returns once it is lost."""
        ...

    async def release(self) -> None:
        """Stop leading, and let others know; to be called when nothing that was begun is left."""
        ...


class Unopposed:
    """The leadership of a scheduler that is told to work without asking."""

    def is_leading(self) -> bool:
        return True

    def check(self) -> None:
        return

    async def acquire(self) -> None:
        return

    async def keep(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        return


class GuardedRequests:
    """Requests over a connection that go out only while a condition holds.

    A request may wait for its turn, for credentials and for a connection, each for seconds, and the process may
    be stopped meanwhile. So the condition is asked again when all of that is over, right before the first byte.

    Args:
        check: raises when nothing may go out.
    """

    def __init__(self, connection: ApiConnection, check: Callable[[], None]) -> None:
        self._connection = connection
        self._check = check

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
        """Ask as `ApiConnection.request`; raises besides what the check raises, and then nothing was sent."""
        return await self._connection.request(
            method,
            path,
            params=params,
            body=body,
            content_type=content_type,
            headers=headers,
            timeout_seconds=timeout_seconds,
            before_sending=self._check,
        )
