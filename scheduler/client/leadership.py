"""Whether this scheduler is the one that may write: asked at the last moment before each request."""

from __future__ import annotations

import asyncio


class Leadership:
    """The right to write, and how to come by it: `acquire`, `keep` beside the work, `release`.

    Of this very class it is the right of a scheduler that is told to work without asking.
    """

    def is_leading(self) -> bool:
        """Whether the right is ours at this moment, by the clock."""
        return True

    def check(self) -> None:
        """Do nothing while leading.

        Raises:
            NotLeadingError: we are not, or not any more.
        """

    def wake(self) -> None:
        """Let a candidate try at once: the server is back."""

    async def acquire(self) -> None:
        """Wait until we lead; what goes wrong is logged and tried again."""

    async def keep(self) -> None:
        """Keep the right for as long as possible; returns once it is lost."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Stop leading, and let others know; to be called when nothing that was begun is left."""
