"""Applies writes of plugins to the API server to a cluster in memory."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.daemon.app.needs import resource_of
from scheduler.errors import ApiError
from scheduler.kube.http.request import JSON
from scheduler.objects.api_types import api_type
from scheduler.objects.decode import decode_pod
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.patches.patch_types import apply_patch
from scheduler.tools.whatif.typed_items import PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.kube.client.resources import Resource
    from scheduler.objects.api_types import ApiType
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.simulation.cluster import MemoryCluster

logger = logging.getLogger(__name__)

_PATH: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/?]+)(?:/(?P<name>[^/?]+))?(?:/(?P<part>[^/?]+))?"
)
_STATUS: Final = "status"


class _Target(NamedTuple):
    """Target of a request; `part` is a subresource, "" for the object itself."""

    resource: Resource
    kind: str
    namespace: str
    name: str
    part: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ObjectWrites:
    """Implements ApiWrite and ApiGet: annotations and status of pods, and objects of the kinds that plugins read.

    Other writes, for example of kinds that no plugin reads, succeed without effect; the first one of a kind is logged.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._told: set[str] = set()
        self._made = 0

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        target = _target(path)
        known = None if target is None else self._cluster.find(target.kind, target.key)
        if known is None:
            raise OSError(f"GET {path}: it is not in the simulated cluster")
        return msgspec.json.encode(known)

    async def api_write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = JSON,
        timeout_seconds: float = 30.0,
    ) -> Mapping[str, Any]:
        target = _target(path)
        if target is not None and target.kind == PODS and method == "PATCH":
            return await self._patch_pod(target, body or {}, content_type)
        if target is None or not self._cluster.reads(target.kind):
            self._tell_once(f"{method} {path if target is None else target.kind}")
            return body or {}
        if method == "POST":
            return self._create(target, body or {})
        known = self._cluster.find(target.kind, target.key)
        if known is None:
            raise ApiError(404, "NotFound", f'{target.resource} "{target.name}" not found')
        if method == "DELETE":
            self._cluster.remove_object(target.kind, target.key)
            return known
        return self._cluster.put_object(
            target.kind, _changed(target, known, method, body or {}, content_type)
        )

    def _create(self, target: _Target, body: Mapping[str, Any]) -> Mapping[str, Any]:
        metadata = dict(body.get("metadata") or {})
        if not metadata.get("name"):
            self._made += 1
            metadata["name"] = f"{metadata.get('generateName', '')}{self._made:05}"
        name = metadata["name"]
        target = target._replace(name=name)
        if self._cluster.find(target.kind, target.key) is not None:
            raise ApiError(409, "AlreadyExists", f'{target.resource} "{name}" already exists')
        if target.namespace:
            metadata["namespace"] = target.namespace
        metadata.setdefault("uid", f"uid-of-{target.resource.plural}-{target.key}")
        return self._cluster.put_object(target.kind, {**body, "metadata": metadata})

    async def _patch_pod(
        self, target: _Target, body: Mapping[str, Any], content_type: str
    ) -> Mapping[str, Any]:
        known = await self._cluster.read_pod(target.namespace, target.name)
        metadata = body.get("metadata") or {}
        if known is None:
            raise ApiError(404, "NotFound", f'pods "{target.name}" not found')
        if metadata.get("uid", known.uid) != known.uid:
            raise ApiError(409, "Conflict", f'pods "{target.name}" was replaced by another pod')
        if not target.part and body.keys() == {"metadata"} and metadata.keys() <= {"uid", "annotations"}:
            self._cluster.annotate(known.key, metadata.get("annotations") or {})
            return body
        obj = _patched(_whole(known), body, content_type, api_type("v1", "Pod"))
        self._cluster.put_pod(decode_pod(msgspec.json.encode(obj)))
        return obj

    def _tell_once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning("Not simulated: a write has no effect", extra={"write": what})


def _target(path: str) -> _Target | None:
    found = _PATH.fullmatch(path.partition("?")[0])
    if found is None:
        return None
    group, version, name = found["group"] or "", found["version"], found["plural"]
    kind = f"{group}/{version}/{name}" if group else f"{version}/{name}"
    resource, _ = resource_of(kind)
    return _Target(resource, kind, found["namespace"] or "", found["name"] or "", found["part"] or "")


def _changed(
    target: _Target, known: Mapping[str, Any], method: str, body: Mapping[str, Any], content_type: str
) -> dict[str, Any]:
    """Return an object after a PUT or PATCH: of a subresource only the status changes, of the object all but the status.

    Raises:
        ApiError: the object has changed meanwhile, or the patch is invalid.
    """
    wanted = body.get("metadata") or {}
    for field in ("resourceVersion", "uid"):
        if wanted.get(field, known["metadata"].get(field)) != known["metadata"].get(field):
            raise ApiError(409, "Conflict", f'{target.resource} "{target.name}" has been modified')
    after = (
        dict(body)
        if method == "PUT"
        else _patched(dict(known), body, content_type, _type_of(target.resource))
    )
    if target.part:
        return {**known, _STATUS: after.get(_STATUS)}
    return {**after, _STATUS: known[_STATUS]} if _STATUS in known else after


def _patched(obj: Any, body: Mapping[str, Any], content_type: str, type_: ApiType | None) -> dict[str, Any]:
    try:
        return dict(apply_patch(obj, dict(body), content_type, type_))
    except StatusError as error:
        raise ApiError(error.code, error.reason, error.message) from error


def _type_of(resource: Resource) -> ApiType | None:
    try:
        return api_type(resource.api_version, resource.kind)
    except LookupError:
        return None


def _whole(pod: PodInfo) -> dict[str, Any]:
    """Return a pod as JSON, with its current status."""
    told: dict[str, Any] = msgspec.to_builtins(pod.pod)
    if pod.raw is None:
        return told
    whole: dict[str, Any] = msgspec.json.decode(pod.raw)
    return {**whole, "metadata": {**whole["metadata"], **told["metadata"]}, _STATUS: told.get(_STATUS, {})}
