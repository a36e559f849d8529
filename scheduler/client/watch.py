"""List and watch, in two generators: one watch connection, and the list that comes before it.

The third part, for ever, is `reflector.Reflector`.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from scheduler.client import wire
from scheduler.client.connection import CONNECTION_LOST
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from scheduler.client.connection import ApiConnection
    from scheduler.client.wire import ObjectIdentity

LIST_LIMIT = 500
"""Objects asked for at a time; as client-go."""

BROKEN = (msgspec.DecodeError, UnicodeDecodeError)


class Mark(Enum):
    """What is not about one object."""

    REPLACE_BEGINS = auto()
    """A full list follows, as PUTs."""
    REPLACE_ENDS = auto()
    """What the full list did not name is gone."""
    ALIVE = auto()
    """The watch goes on: a bookmark."""


class Change(NamedTuple):
    """One object as it is now, or, with `deleted`, as it was."""

    identity: ObjectIdentity
    raw: bytes
    deleted: bool = False


Step: TypeAlias = Change | Mark


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


async def one_watch(
    connection: ApiConnection, query: Query, params: Mapping[str, str]
) -> AsyncGenerator[tuple[str, ObjectIdentity, msgspec.Raw], None]:
    """Open one watch and yield (type, identity, object) until the server ends it in order.

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
    lines = connection.stream(query.path, params, silence_seconds=query.silence_seconds)
    async with aclosing(lines):
        async for line in lines:
            try:
                event = wire.decode_watch_event(line)
                if event.type == wire.ERROR:
                    raise wire.event_error(what, event.object)
                yield event.type, wire.decode_identity(event.object), event.object
            except BROKEN as error:
                # The usual cause is a connection cut in the middle of a line.
                raise ApiError(0, CONNECTION_LOST, f"{what}: unreadable line: {error}") from error


async def list_then_watch(
    connection: ApiConnection, query: Query, cursor: Cursor
) -> AsyncGenerator[Step, None]:
    """Yield all objects if the cursor has nothing to go on from, then their changes; move the cursor along.

    Ends when the server ends the watch in order.

    Raises:
        ApiError: as `one_watch`; the cursor tells from where to go on.
    """
    params: dict[str, str]
    listing = False
    if cursor.resource_version:
        params = {"resourceVersion": cursor.resource_version}
    elif cursor.initial_events:
        params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        listing = True
        yield Mark.REPLACE_BEGINS
    else:
        yield Mark.REPLACE_BEGINS
        async with aclosing(_full_list(connection, query, cursor)) as items:
            async for item in items:
                yield item
        yield Mark.REPLACE_ENDS
        params = {"resourceVersion": cursor.resource_version}
    events = one_watch(connection, query, params)
    async with aclosing(events):
        async for kind, identity, raw in events:
            if kind == wire.BOOKMARK:
                ended = listing and wire.ends_initial_events(raw)
                if ended or not listing:
                    cursor.resource_version = identity.resource_version
                listing = listing and not ended
                yield Mark.REPLACE_ENDS if ended else Mark.ALIVE
                continue
            yield Change(identity, bytes(raw), deleted=kind == wire.DELETED)
            # The versions of the objects a watch begins with are in no order.
            if not listing and identity.resource_version:
                cursor.resource_version = identity.resource_version
    if listing:
        raise ApiError(0, CONNECTION_LOST, f"watch {query.path}: ended before all objects were sent")


async def _full_list(connection: ApiConnection, query: Query, cursor: Cursor) -> AsyncGenerator[Step, None]:
    """Yield all objects, page by page; when the pages expire meanwhile, once more in one piece."""
    params = {**query.selectors, "limit": str(LIST_LIMIT)}
    while True:
        try:
            answer = await connection.request("GET", query.path, params=params, timeout_seconds=60.0)
        except ApiError as error:
            if error.status != 410 or "continue" not in params:
                raise
            params = dict(query.selectors)
            yield Mark.REPLACE_BEGINS  # what the first pages named may be gone by now
            continue
        try:
            page = wire.decode_list_page(answer.body)
            for item in page.items or ():
                yield Change(wire.decode_identity(item), bytes(item))
        except BROKEN as error:
            raise ApiError(0, CONNECTION_LOST, f"list {query.path}: unreadable answer: {error}") from error
        if not page.metadata.continue_token:
            cursor.resource_version = page.metadata.resource_version
            return
        params["continue"] = page.metadata.continue_token
