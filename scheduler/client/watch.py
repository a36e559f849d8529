"""List and watch, once: one watch connection, and the list that comes before it.

That it goes on for ever is `reflector.Reflector`'s part.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from scheduler.client import wire
from scheduler.client.connection import CONNECTION_LOST
from scheduler.client.http.request import Request
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.client.connection import ApiConnection
    from scheduler.client.wire import ObjectIdentity, WatchEvent

LIST_LIMIT = 500
"""Objects asked for at a time; as client-go."""

_BROKEN = (msgspec.DecodeError, UnicodeDecodeError)
_LIST_SECONDS = 60.0
_OBJECTS_AT_A_TIME = 32  # of a list, then the other tasks get a turn


class Changes(Protocol):
    """Who takes in what is listed and watched."""

    def begin_replace(self) -> None:
        """A full list follows, as `put`s."""
        ...

    def end_replace(self) -> None:
        """What the full list did not name is gone."""
        ...

    def put(self, identity: ObjectIdentity, raw: bytes) -> None:
        """This is an object now."""
        ...

    def delete(self, identity: ObjectIdentity) -> None:
        """An object is gone; this was its last version."""
        ...

    def alive(self) -> None:
        """Nothing is new: a bookmark."""
        ...


@dataclass(slots=True)
class Query:
    """What is watched."""

    path: str
    selectors: Mapping[str, str]
    timeout_seconds: int
    silence_seconds: float


@dataclass(slots=True)
class Cursor:
    """How far one reflector has come; outlives its connections.

    Attributes:
        resource_version: up to where everything is known; "" when a full list is needed.
        initial_events: whether the server is believed to begin a watch with all objects.
    """

    resource_version: str = ""
    initial_events: bool = True


async def watch(
    connection: ApiConnection, query: Query, params: Mapping[str, str], take: Callable[[WatchEvent], None]
) -> None:
    """Open one watch and hand over its events until the server ends it in order.

    Raises:
        ApiError: refused, cut off or silent; also for an ERROR event, with the status inside it.
    """
    what = f"watch {query.path}"
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(query.timeout_seconds),
        **query.selectors,
        **params,
    }
    stream = connection.stream(
        Request("GET", query.path, params=params), silence_seconds=query.silence_seconds
    )
    async with aclosing(stream):
        async for lines in stream:
            for line in lines:
                try:
                    event = wire.decode_watch_event(line)
                except _BROKEN as error:
                    # The usual cause is a connection cut in the middle of a line.
                    raise ApiError(0, CONNECTION_LOST, f"{what}: unreadable line: {error}") from error
                if event.type == wire.ERROR:
                    raise wire.event_error(what, event.object)
                take(event)


async def list_then_watch(connection: ApiConnection, query: Query, cursor: Cursor, changes: Changes) -> None:
    """Tell all objects if the cursor has nothing to go on from, then their changes; move the cursor along.

    Ends when the server ends the watch in order.

    Raises:
        ApiError: as `watch`; the cursor tells from where to go on.
    """
    if cursor.resource_version:
        params = {"resourceVersion": cursor.resource_version}
    elif cursor.initial_events:
        params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        changes.begin_replace()
    else:
        changes.begin_replace()
        await _list(connection, query, cursor, changes)
        changes.end_replace()
        params = {"resourceVersion": cursor.resource_version}
    progress = _Progress(cursor, changes, is_listing="sendInitialEvents" in params)
    await watch(connection, query, params, progress.take)
    if progress.is_listing:
        raise ApiError(0, CONNECTION_LOST, f"watch {query.path}: ended before all objects were sent")


@dataclass(slots=True)
class _Progress:
    """What the events of one watch mean.

    Attributes:
        is_listing: whether they are of the objects the watch begins with.
    """

    cursor: Cursor
    changes: Changes
    is_listing: bool

    def take(self, event: WatchEvent) -> None:
        if event.type == wire.BOOKMARK:
            self._take_bookmark(event)
            return
        if event.type == wire.DELETED:
            self.changes.delete(event.identity)
        else:
            self.changes.put(event.identity, event.object)
        version = event.identity.resource_version
        # The versions of the objects a watch begins with are in no order.
        if version and not self.is_listing:
            self.cursor.resource_version = version

    def _take_bookmark(self, event: WatchEvent) -> None:
        if not self.is_listing:
            self.cursor.resource_version = event.identity.resource_version
            self.changes.alive()
        elif wire.ends_initial_events(event.object):
            self.is_listing = False
            self.cursor.resource_version = event.identity.resource_version
            self.changes.end_replace()


async def _list(connection: ApiConnection, query: Query, cursor: Cursor, changes: Changes) -> None:
    """Tell all objects, page by page; when the pages expire meanwhile, once more in one piece."""
    params = {**query.selectors, "limit": str(LIST_LIMIT)}
    while True:
        try:
            answer = await connection.send(
                Request("GET", query.path, params=params, timeout_seconds=_LIST_SECONDS)
            )
        except ApiError as error:
            if error.status != 410 or "continue" not in params:
                raise
            params = dict(query.selectors)
            changes.begin_replace()  # what the first pages named may be gone by now
            continue
        try:
            page = wire.decode_list_page(answer.body)
            for number, item in enumerate(page.items or (), 1):
                changes.put(wire.decode_identity(item), bytes(item))
                if number % _OBJECTS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
        except _BROKEN as error:
            raise ApiError(0, CONNECTION_LOST, f"list {query.path}: unreadable answer: {error}") from error
        if not page.metadata.continue_token:
            cursor.resource_version = page.metadata.resource_version
            return
        params["continue"] = page.metadata.continue_token
