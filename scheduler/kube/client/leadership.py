"""The right of this scheduler to write, checked right before each request."""

from __future__ import annotations

import asyncio


class Leadership:
    """The right to write: `acquire` it, `keep` it during the work, `release` it.

    This base class always leads: it serves a scheduler without leader election.
    """

    def is_leading(self) -> bool:
        """Return whether this process leads at this moment, by the clock."""
        return True

    def check(self) -> None:
        """Check the right to write.

        Raises:
            NotLeadingError: this process does not lead.
        """

    def wake(self) -> None:
        """Let a candidate try at once, because the server is back."""

    async def acquire(self) -> None:
        """Wait until this process leads; errors are logged, and it tries again."""

    async def keep(self) -> None:
        """Keep leading for as long as possible; return once leadership is lost."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Stop leading and notify the other candidates; call this when no write is in flight."""
