"""What the API server says there is of a kind, names and versions alone: to see whether what is known is so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from scheduler.client import wire
from scheduler.client.connection import CONNECTION_LOST
from scheduler.client.http.request import JSON, Request
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.client.connection import ApiConnection

_PAGE = 500
_METADATA_ONLY = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
_LIST_SECONDS = 60.0
_OBJECTS_AT_A_TIME = 100  # then the other tasks get a turn


async def read_versions(
    connection: ApiConnection, path: str, selectors: Mapping[str, str]
) -> Mapping[str, tuple[str, str]]:
    """Return key -> (uid, resourceVersion) of all objects of a kind, read page by page.

    The objects themselves are not sent, which is a fraction of a full list.

    Raises:
        ApiError: refused or cut off; 410 if the pages took so long that the rest of them is no more.
    """
    versions: dict[str, tuple[str, str]] = {}
    params = {**selectors, "limit": str(_PAGE)}
    while True:
        request = Request("GET", path, params=params, timeout_seconds=_LIST_SECONDS, accept=_METADATA_ONLY)
        answer = await connection.send(request)
        try:
            page = wire.decode_list_page(answer.body)
            for number, obj in enumerate(page.objects(), 1):
                identity = wire.decode_identity(obj)
                versions[identity.key] = (identity.uid, identity.resource_version)
                if number % _OBJECTS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError(0, CONNECTION_LOST, f"list {path}: unreadable answer: {error}") from error
        if not page.metadata.continue_token:
            return versions
        params["continue"] = page.metadata.continue_token
