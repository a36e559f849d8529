"""Reads only the names and versions of a kind's objects, to compare them with the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scheduler.errors import ApiError
from scheduler.kube.client import wire
from scheduler.kube.client.connection import CONNECTION_LOST
from scheduler.kube.client.paging import listed
from scheduler.kube.http.request import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.kube.client.connection import ApiConnection

_METADATA_ONLY = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"


async def read_versions(
    connection: ApiConnection, path: str, selectors: Mapping[str, str]
) -> Mapping[str, tuple[str, str]]:
    """Return key -> (uid, resourceVersion) of all objects of a kind, read page by page.

    The server sends only the metadata, a fraction of a full list.

    Raises:
        ApiError: refused or cut off; 410 if the remaining pages expired meanwhile.
    """
    versions: dict[str, tuple[str, str]] = {}
    async for obj in listed(connection, path, selectors, _METADATA_ONLY):
        try:
            identity = wire.decode_identity(obj)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError(0, CONNECTION_LOST, f"list {path}: unreadable answer: {error}") from error
        versions[identity.key] = (identity.uid, identity.resource_version)
    return versions
