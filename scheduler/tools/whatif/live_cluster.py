"""The current state of a cluster, listed from the API server, in the form of a cluster file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler.daemon.app.needs import resource_of
from scheduler.errors import ApiError, ObjectError
from scheduler.kube.client.resources import NODES, PODS, Resource
from scheduler.kube.client.store import Store
from scheduler.kube.client.watch import list_into
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_node, decode_pod
from scheduler.tools.whatif.cluster_file import ClusterFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.wire import ObjectIdentity

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NOT_SERVED: Final = 404
_FORBIDDEN: Final = 403


async def read_cluster(connection: ApiConnection, kinds: Iterable[str]) -> ClusterFile:
    """List nodes, pods, and the other objects that plugins read.

    A kind that is not served counts as empty. So does, with a warning, a kind that may not be listed, except nodes and
    pods.

    Args:
        connection: to the API server.
        kinds: the other kinds, as in plugins' `needs`.

    Raises:
        ApiError: no answer, or nodes or pods may not be listed.
    """
    nodes = await read_objects(connection, NODES, decode_node)
    pods = await read_objects(connection, PODS, decode_pod)
    others = {}
    for kind in sorted(kinds):
        resource = resource_of(kind)
        if resource.versions:
            resource = await connection.versions.find(resource)
        others[kind] = await read_if_allowed(connection, resource)
    return ClusterFile([*nodes.values()], [*pods.values()], others)


async def read_if_allowed(connection: ApiConnection, resource: Resource) -> dict[str, bytes]:
    """List the objects of a kind as JSON; none if it is not served or, with a warning, may not be listed.

    Raises:
        ApiError: no answer.
    """
    try:
        return {**await read_objects(connection, resource, bytes)}
    except ApiError as error:
        if error.status == _FORBIDDEN:
            logger.warning(
                "No permission to list a kind; evaluating as if there were none",
                extra={"kind": str(resource)},
            )
        elif error.status != _NOT_SERVED:
            raise
        return {}


async def read_objects(
    connection: ApiConnection,
    resource: Resource,
    decode: Callable[[bytes], T],
    selectors: Mapping[str, str] | None = None,
    *,
    namespace: str = "",
) -> Mapping[str, T]:
    """List a kind: `namespace/name` -> object; an object that cannot be decoded is skipped with a warning.

    Raises:
        ApiError: rejected, or no answer.
    """
    store = Store(resource.kind, decode, _Told())
    await list_into(store, connection, resource.path(namespace), selectors or {})
    return store.objects


async def read_pod_json(connection: ApiConnection, key: str) -> bytes:
    """Read a pod (`namespace/name`) as JSON.

    Raises:
        ApiError: it does not exist, no answer, or no permission.
    """
    namespace, _, name = key.partition("/")
    return (await connection.send(Request("GET", PODS.path(namespace, name)))).body


class _Told:
    """A handler that only logs objects that cannot be decoded."""

    def on_add(self, obj: Any) -> None:
        return

    def on_update(self, old: Any, new: Any) -> None:
        return

    def on_delete(self, old: Any) -> None:
        return

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        logger.warning("Skipped an object that cannot be decoded", extra={"error": str(error)})
