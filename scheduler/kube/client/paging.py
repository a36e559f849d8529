"""Paged lists: how large the pages are, and lists for single requests without a watch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from scheduler.errors import ApiError
from scheduler.kube.client import wire
from scheduler.kube.client.connection import CONNECTION_LOST
from scheduler.kube.http.request import JSON, Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from scheduler.kube.client.requests import Requests

FIRST_LIMIT = 64
"""Number of objects in the first page: each may have 1.5 MB."""
MOST_OBJECTS = 500
"""Number of objects in the largest pages; as client-go."""
_PAGE_BYTES = 2**23
_LIST_SECONDS = 60.0
_OBJECTS_AT_A_TIME = 100  # then other tasks run


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
            if number % _OBJECTS_AT_A_TIME == 0:
                await asyncio.sleep(0)
        if not page.metadata.continue_token:
            return
        limit = next_limit(limit, len(answer.body))
        params |= {"limit": str(limit), "continue": page.metadata.continue_token}
