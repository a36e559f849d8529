"""One list, in pages, and one watch. `reflector.Reflector` repeats them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scheduler.errors import ApiError
from scheduler.kube.client import wire
from scheduler.kube.client.connection import CONNECTION_LOST
from scheduler.kube.http.request import JSON, Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping

    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.requests import Requests
    from scheduler.kube.client.store import Store
    from scheduler.kube.client.wire import WatchEvent

logger = logging.getLogger(__name__)

FIRST_LIMIT = 64
"""Number of objects in the first page: each may have 1.5 MB."""
MOST_OBJECTS = 500
"""Number of objects in the largest pages; as client-go."""
_PAGE_BYTES = 2**23
_LIST_SECONDS = 60.0
_OBJECTS_A_PAGE = 100  # then other tasks run


def next_limit(limit: int, n_bytes: int) -> int:
    """Return the number of objects in the next page, from a page's limit and length: pages should have 8 MiB at most."""
    return max(1, min(MOST_OBJECTS, limit * _PAGE_BYTES // max(n_bytes, 1)))


async def listed(
    requests: Requests, path: str, selectors: Mapping[str, str], accept: str = JSON
) -> AsyncIterator[bytes]:
    """Yield all objects of a list in the form of watch events' objects; other tasks run in between.

    Raises:
        ApiError: refused or cut off; 410 if the remaining pages expired meanwhile.
    """
    limit = FIRST_LIMIT
    params = {**selectors, "limit": str(limit)}
    while True:
        request = Request("GET", path, params=params, timeout_seconds=_LIST_SECONDS, accept=accept)
        answer = await requests.send(request)
        try:
            page = wire.decode_list_page(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError(0, CONNECTION_LOST, f"list {path}: unreadable answer: {error}") from error
        for number, obj in enumerate(page.objects(), 1):
            yield obj
            if number % _OBJECTS_A_PAGE == 0:
                await asyncio.sleep(0)
        if not page.metadata.continue_token:
            return
        limit = next_limit(limit, len(answer.body))
        params |= {"limit": str(limit), "continue": page.metadata.continue_token}


SILENCE_SECONDS = 90.0
"""How long a watch may send nothing before it counts as lost; bookmarks come once a minute."""

_BROKEN = (msgspec.DecodeError, UnicodeDecodeError)
_OBJECTS_AT_A_TIME = 32  # of a list, then other tasks run
_BYTES_AT_A_TIME = 2**17  # the same; a larger object is decoded in several turns of the event loop

T = TypeVar("T")


async def _in_turns(steps: Generator[None, None, T]) -> T:
    """Return the result of a generator; other tasks run before each step, and before the result is returned."""
    while True:
        await asyncio.sleep(0)
        try:
            next(steps)
        except StopIteration as end:
            await asyncio.sleep(0)
            result: T = end.value
            return result


async def watch(
    connection: ApiConnection,
    path: str,
    params: Mapping[str, str],
    take: Callable[[WatchEvent], None],
    *,
    seconds: int,
    decode: Callable[[bytes], WatchEvent] = wire.decode_watch_event,
    decode_large: Callable[[WatchEvent], Generator[None, None, WatchEvent]] | None = None,
    opened: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Open one watch and pass on its events until the server ends it in order, as requested after `seconds`.

    Args:
        connection: to the API server.
        path: path of the kind.
        params: the query parameters.
        take: receives each event.
        seconds: how long the server should keep it open.
        decode: decodes a line.
        decode_large: decodes the object of a long line further, in steps, before `take` receives the event.
        opened: is called once the server accepted, before all events; its exceptions end the watch.

    Raises:
        ApiError: refused, cut off or silent; also for an ERROR event, with the status inside it.
    """
    what = f"watch {path}"
    params = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), **params}
    stream = connection.stream(Request("GET", path, params=params), silence_seconds=SILENCE_SECONDS)
    async with aclosing(stream):
        async for lines in stream:
            if not lines and opened is not None:
                await opened()
            for line in lines:
                try:
                    event = decode(line)
                except _BROKEN as error:
                    # The usual cause is a connection cut in the middle of a line.
                    raise ApiError(0, CONNECTION_LOST, f"{what}: unreadable line: {error}") from error
                if event.type == wire.ERROR:
                    raise wire.event_error(what, event.object)
                if len(line) > _BYTES_AT_A_TIME and decode_large is not None:
                    event = await _in_turns(decode_large(event))
                take(event)


async def list_into(
    store: Store[Any], connection: ApiConnection, path: str, selectors: Mapping[str, str]
) -> str:
    """Put all objects into a store, page by page; if the pages expire meanwhile, list again in one piece.

    Returns:
        The version of the complete list.

    Raises:
        ApiError: refused or cut off.
    """
    store.begin_replace()
    limit = FIRST_LIMIT
    params = {**selectors, "limit": str(limit)}
    while True:
        try:
            answer = await connection.send(Request("GET", path, params=params, timeout_seconds=_LIST_SECONDS))
        except ApiError as error:
            if error.status != 410 or "continue" not in params:
                raise
            params = dict(selectors)
            store.begin_replace()  # objects of the first pages may be deleted by now
            continue
        try:
            page = wire.decode_list_page(answer.body)
            n_objects = n_bytes = 0
            for obj in page.objects():
                await _put(store, obj, path)
                n_objects, n_bytes = n_objects + 1, n_bytes + len(obj)
                if n_objects == _OBJECTS_AT_A_TIME or n_bytes > _BYTES_AT_A_TIME:
                    n_objects = n_bytes = 0
                    await asyncio.sleep(0)
        except _BROKEN as error:
            raise ApiError(0, CONNECTION_LOST, f"list {path}: unreadable answer: {error}") from error
        if not page.metadata.continue_token:
            store.end_replace()
            return page.metadata.resource_version
        limit = next_limit(limit, len(answer.body))
        params |= {"limit": str(limit), "continue": page.metadata.continue_token}


async def _put(store: Store[Any], obj: bytes, path: str) -> None:
    try:
        identity = wire.decode_identity(obj)
    except _BROKEN as error:  # the other objects of the list are still valid
        logger.warning("Ignored an object without a name", extra={"list": path, "error": str(error)})
    else:
        is_large = len(obj) > _BYTES_AT_A_TIME
        store.put(identity, obj, await _in_turns(store.decoded(identity, obj)) if is_large else None)
