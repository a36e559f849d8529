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
from scheduler.client.watch import watch
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from scheduler.client.backoff import Backoff
    from scheduler.client.connection import ApiConnection
    from scheduler.client.wire import WatchEvent

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 300


async def watch_lease(
    connection: ApiConnection, namespace: str, name: str, changed: asyncio.Event, backoff: Backoff
) -> NoReturn:
    """Set an event whenever a Lease appears, changes or goes, until cancelled."""
    params = {"fieldSelector": f"metadata.name={name}"}

    def take(event: WatchEvent) -> None:
        backoff.reset()
        if event.type != wire.BOOKMARK:
            changed.set()

    while True:
        try:
            await watch(connection, LEASES.path(namespace), params, take, seconds=_WATCH_SECONDS)
        except ApiError as error:
            logger.debug(
                "Lease is not watched at the moment",
                extra={"lease": f"{namespace}/{name}", "status": error.status, "error": str(error)},
            )
        await asyncio.sleep(backoff.next_seconds())
