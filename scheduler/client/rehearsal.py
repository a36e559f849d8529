"""Requests that are not sent: for a daemon that decides, explains and counts, and touches nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.client.connection import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)


class Rehearsal:
    """Takes every write for done.

    So a pod that would be bound is counted on its node from then on, as if it were; when it is really bound, by
    whomever, the watch says where.
    """

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
        """Answer as a server would that has nothing to object."""
        logger.debug("Not sent", extra={"method": method, "path": path})
        return Response(200, b"{}", {})
