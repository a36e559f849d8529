"""Detects that the API server was restored from a backup, so that the known history of a kind is not its history any more.

A watch that resumes from a version of the lost history receives nothing until the server reaches that version
again, and then only later changes. The server does not report this, but it returns the objects at a version
on request.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from scheduler.kube.client.versions import read_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.errors import ApiError
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.resources import Resource

_SAID_OF_THE_FUTURE = ("Too large resource version", "required revision is a future revision")


class ObjectChange(NamedTuple):
    """The effect of one version: it created or updated an object, or deleted it.

    Attributes:
        version: the resourceVersion.
        key: key of the object.
        uid: UID of the object.
        is_deletion: whether the version deleted the object.
    """

    version: int
    key: str
    uid: str
    is_deletion: bool = False


def is_too_old(error: ApiError) -> bool:
    """Return whether the error says that the server no longer has a version."""
    return error.status == HTTPStatus.GONE


def is_yet_to_come(error: ApiError) -> bool:
    """Return whether the error says that the server has not reached a version."""
    return any(words in error.message for words in _SAID_OF_THE_FUTURE)


async def has_happened(
    connection: ApiConnection, resource: Resource, selectors: Mapping[str, str], change: ObjectChange
) -> bool:
    """Return whether a change is in the server's history; if it is, all earlier changes are too.

    Raises:
        ApiError: the server did not answer the question; also the errors of `is_too_old` and
            `is_yet_to_come`.
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
