"""Tells a candidate at once that the Lease has changed.

Without it a change is seen only at the next try, up to 2.2 retry periods later, and as the wait for a silent
leader begins when its last renewal was seen, that much later somebody takes over. It is no more than that:
whoever may not watch is a candidate all the same.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from scheduler.client import wire
from scheduler.client.resources import LEASES
from scheduler.client.watch import Query, watch
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from scheduler.client.backoff import Backoff
    from scheduler.client.connection import ApiConnection
    from scheduler.client.wire import WatchEvent

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 300
_SILENCE_SECONDS = 150.0
"""Bookmarks come once a minute."""


async def watch_lease(
    connection: ApiConnection, namespace: str, name: str, changed: asyncio.Event, backoff: Backoff
) -> NoReturn:
    """Set an event whenever a Lease appears, changes or goes, until cancelled."""
    query = Query(
        LEASES.path(namespace), {"fieldSelector": f"metadata.name={name}"}, _WATCH_SECONDS, _SILENCE_SECONDS
    )

    def take(event: WatchEvent) -> None:
        backoff.reset()
        if event.type != wire.BOOKMARK:
            changed.set()

    while True:
        try:
            await watch(connection, query, {}, take)
        except ApiError as error:
            logger.debug(
                "Lease is not watched at the moment",
                extra={"lease": f"{namespace}/{name}", "status": error.status, "error": str(error)},
            )
        await asyncio.sleep(backoff.next_seconds())
