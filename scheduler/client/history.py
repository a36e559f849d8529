"""Whether the API server still has the history that is known of a kind: restored from a backup, it goes on with another.

A watch that goes on from a version of the lost history is told nothing until the server has come to that version once more,
and then only of what happens from there on. The server says nothing of it, but it can be asked what was at a version.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from scheduler.client.versions import read_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.client.connection import ApiConnection
    from scheduler.client.resources import Resource
    from scheduler.errors import ApiError

_SAID_OF_THE_FUTURE = ("Too large resource version", "required revision is a future revision")


class Change(NamedTuple):
    """What a version did: made an object what it is, or deleted it.

    Attributes:
        version: its resourceVersion.
        key: of the object.
        uid: likewise.
        is_deletion: whether that was its end.
    """

    version: int
    key: str
    uid: str
    is_deletion: bool = False


def is_too_old(error: ApiError) -> bool:
    """Say whether a version is one that the server does not remember."""
    return error.status == HTTPStatus.GONE


def is_yet_to_come(error: ApiError) -> bool:
    """Say whether a version is one that the server has not come to, or not again."""
    return any(words in error.message for words in _SAID_OF_THE_FUTURE)


async def has_happened(
    connection: ApiConnection, resource: Resource, selectors: Mapping[str, str], change: Change
) -> bool:
    """Say whether a change is in the server's history; if it is, so is all that came before it.

    Raises:
        ApiError: it cannot be told; also one of `is_too_old` and `is_yet_to_come`.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go, GetList.
    """
    namespace, _, name = change.key.rpartition("/")
    fields = ",".join(filter(None, (f"metadata.name={name}", selectors.get("fieldSelector"))))

    async def at(version: int) -> tuple[str, str] | None:
        exactly = {"resourceVersion": str(version), "resourceVersionMatch": "Exact", "fieldSelector": fields}
        return (await read_versions(connection, resource.path(namespace), exactly)).get(change.key)

    shown = await at(change.version)
    if not change.is_deletion:
        return shown == (change.uid, str(change.version))
    before = await at(change.version - 1)
    return before is not None and before[0] == change.uid and (shown is None or shown[0] != change.uid)
