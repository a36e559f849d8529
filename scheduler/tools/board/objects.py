"""The JSON of an object, for a client that may read it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.daemon.app.needs import needs_of, resource_of
from scheduler.errors import ApiError
from scheduler.http_server.messages import ReadObject
from scheduler.kube.client.resources import NODES, PODS

if TYPE_CHECKING:
    from scheduler.http_server.messages import MayRead
    from scheduler.kube.client.resources import Resource
    from scheduler.tools.board.subject import Subject

_ALWAYS_READ: Final = frozenset({"v1/pods", "v1/nodes"})
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


async def object_json(subject: Subject, kind: str, key: str, may_read: MayRead) -> dict[str, Any]:
    """Return an object, if the client may read it: pods, nodes, and the kinds that plugins of the profiles read.

    Args:
        subject: the subject of the board.
        kind: as in `Needs.kinds`, for example `v1/pods`.
        key: `namespace/name`, or the name of an object without a namespace.
        may_read: returns whether the client may read an object.

    Returns:
        As JSON values: `apiVersion`, `kind` and the `object`, or the `problem`.
    """
    parts = subject.parts
    if kind not in _ALWAYS_READ | needs_of(parts.profiles.frameworks.values()).kinds:
        return {"problem": "the scheduler does not read this kind"}
    resource = resource_of(kind)
    namespace, _, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or not (_NAME.fullmatch(namespace) if namespace else resource is not PODS):
        return {"problem": f"{key} is not the name of an object"}
    try:
        if not await may_read(ReadObject(resource.group, resource.plural, namespace, name)):
            return {"problem": f"you need permission to get {resource} {key}"}
        found = await _found(subject, resource, kind, key)
    except ApiError as error:
        return {"problem": str(error)}
    if found is None:
        return {"problem": f"the scheduler has no complete {resource.kind} {key}"}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "object": msgspec.Raw(found)}


async def _found(subject: Subject, resource: Resource, kind: str, key: str) -> bytes | None:
    parts = subject.parts
    if resource is NODES:
        snapshot = parts.cache.snapshot()
        row = snapshot.row_of(key)
        return None if row is None else snapshot.nodes[row].raw
    if resource is PODS:
        pod = parts.pods.get(key)
        if pod is not None and (raw := pod.raw) is not None:
            return raw
        return None if subject.read_pod is None else await subject.read_pod(key)
    found = parts.cache.snapshot().objects(kind).get(key)
    return None if found is None else msgspec.json.encode(found)
