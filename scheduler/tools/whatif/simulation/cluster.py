"""A cluster in memory: writes take effect at once, handlers are notified as by a watch, volumes are bound.

It replaces the API server, and kubelets as far as schedulers see them: a bound pod runs, and a deleted pod stays for its
grace period. There is no HTTP, no JSON, and no task.

A claim that a volume names is bound to it; a claim with a selected node gets a new volume there, at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from scheduler.clock import rfc3339
from scheduler.daemon.app.needs import resource_of, trimmed
from scheduler.engine.cycle.event_handlers import NodeHandler
from scheduler.errors import ApiError
from scheduler.framework.interface import Needs
from scheduler.kube.http.request import JSON
from scheduler.objects.api_types import api_type
from scheduler.objects.decode import decode_pod
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.drivers.provisioning import keys_of_driver, node_affinity, segment_of_node
from scheduler.simulator.patches.patch_types import apply_patch
from scheduler.snapshot import object_key
from scheduler.tools.whatif.documents import PODS
from scheduler.tools.whatif.simulation.object_versions import annotated, changed, terminating, with_status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.daemon.app.assembly import Parts
    from scheduler.engine.cycle.event_handlers import ObjectHandler
    from scheduler.engine.cycle.pod_handlers import PodHandler
    from scheduler.kube.client.resources import Resource
    from scheduler.objects.api_types import ApiType
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodCondition

logger = logging.getLogger(__name__)

_STARTED = "Running"
DEVICE_CLAIMS: Final = "resource.k8s.io/v1/resourceclaims"


class ClusterWitness(Protocol):
    """Observes changes of pods, right after the scheduler was notified."""

    def bound(self, pod: PodInfo) -> None:
        """Note that a pod was bound."""
        ...

    def evicted(self, pod: PodInfo) -> None:
        """Note that a pod was evicted, by preemption or because of its node; called once for a pod."""
        ...

    def gone(self, pod: PodInfo) -> None:
        """Note that a pod was removed; `pod` is its last version."""
        ...


class MemoryCluster:
    """Implements the daemon's writes and reads, and offers methods for changes by others.

    It implements PodBinder, VictimWriter, PodGet, PodEventRecorders and PodEvents; `ObjectWrites` changes objects of
    other kinds. Pods are in `parts.pods`, other objects in the store that plugins read.

    Args:
        parts: the scheduler that is notified.
        loop: the loop whose time applies.
        stop_seconds: time that a deleted pod takes to stop, at most its grace period; infinity for all of that.
        binding_seconds: returns the time that a Binding takes; None for no time.

    Attributes:
        nodes: name -> node.
        changes: number of changes of nodes, and of pods added, bound, deleted and removed.
        leaving: uids of pods that were deleted and still exist.
    """

    def __init__(
        self,
        parts: Parts,
        loop: asyncio.AbstractEventLoop,
        *,
        stop_seconds: float = inf,
        binding_seconds: Callable[[PodInfo], float] | None = None,
    ) -> None:
        self.nodes: dict[str, NodeObject] = {}
        self.changes = 0
        self.leaving: set[str] = set()
        self._parts, self._loop, self._stop_seconds = parts, loop, stop_seconds
        self._binding_seconds = binding_seconds
        self._pods = parts.pods
        self._needs = Needs()
        self._node_handler = NodeHandler(parts)
        self._pod_handler: PodHandler | None = None
        self._handlers: dict[str, ObjectHandler] = {}
        self._witness: ClusterWitness | None = None
        self._versions = 0
        self._after_write: dict[str, Callable[[Mapping[str, Any]], None]] = {}

    def connect(self, pod_handler: PodHandler, needs: Needs) -> None:
        """Set the handler of pods, and the kinds that plugins read; call once, before any object is added."""
        self._pod_handler, self._needs = pod_handler, needs
        self._handlers = {kind: self._parts.object_handler(kind) for kind in sorted(needs.kinds)}

    def witnessed_by(self, witness: ClusterWitness) -> None:
        """Set the observer of pods."""
        self._witness = witness

    def after_write(self, kind: str, react: Callable[[Mapping[str, Any]], None]) -> None:
        """Call a function with every new version of the objects of a kind, as a controller would be."""
        self._after_write[kind] = react

    # Changes by others.

    def put_node(self, node: NodeObject) -> None:
        """Add a node, or replace it by a new version."""
        self.changes += 1
        known = self.nodes.get(node.name)
        self.nodes[node.name] = node
        if known is None:
            self._node_handler.on_add(node)
        else:
            self._node_handler.on_update(known, node)

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods stay until they are removed."""
        self.changes += 1
        self._node_handler.on_delete(self.nodes.pop(name))

    def put_pod(self, pod: PodInfo) -> None:
        """Add a pod, or replace it by a new version."""
        pod = trimmed(pod, self._needs)
        known = self._pods.get(pod.key)
        if known is not None and known.uid != pod.uid:
            self.remove_pod(known.key)
            known = None
        self._show(known, pod)
        if pod.is_terminating and pod.uid not in self.leaving:
            self._stop(pod)

    def change_pending(self, pod: PodInfo) -> None:
        """Give a pending pod another spec; its status stays."""
        known = self._pending(pod)
        if known is not None:
            self._show(known, with_status_of(known, pod, self._next_version()))

    def remove_pod(self, key: str) -> None:
        """Remove a pod at once, if it exists."""
        pod = self._pods.pop(key, None)
        if pod is None:
            return
        self.changes += 1
        self.leaving.discard(pod.uid)
        assert self._pod_handler is not None
        self._pod_handler.on_delete(pod)
        if pod.pod.spec.resource_claims or pod.pod.status.extended_resource_claim_status is not None:
            self._give_back(pod)
        if self._witness is not None:
            self._witness.gone(pod)

    def put_object(self, kind: str, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add or replace an object of another kind, and return its new version; a kind that no plugin reads has no handler."""
        self._versions += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._versions)}}
        handler = self._handlers.get(kind)
        if handler is not None:
            known = self._parts.cache.table.watch_kind(kind).from_server(object_key(obj))
            if known is None:
                handler.on_add(obj)
            else:
                handler.on_update(known, obj)
            if kind in self._after_write:
                self._loop.call_soon(self._after_write[kind], obj)
        return obj

    def remove_object(self, kind: str, key: str) -> None:
        """Remove an object of another kind, if it exists."""
        known = self.find(kind, key)
        if known is not None:
            self._handlers[kind].on_delete(known)

    def pods_on(self, node_name: str) -> list[PodInfo]:
        """Return the pods that are bound to a node, in the order of arrival."""
        return [pod for pod in self._pods.values() if pod.node_name == node_name]

    def pods_of(self, namespace: str, owner: str) -> list[PodInfo]:
        """Return the pods of a controller, by its name, in the order of arrival."""
        return [
            pod
            for pod in self._pods.values()
            if pod.namespace == namespace
            and any(each.controller and each.name == owner for each in pod.pod.metadata.owner_references)
        ]

    def reads(self, kind: str) -> bool:
        """Return whether plugins read a kind."""
        return kind in self._handlers

    def find(self, kind: str, key: str) -> Mapping[str, Any] | None:
        """Return an object of another kind that plugins read; None if there is none."""
        return self._parts.cache.table.watch_kind(kind).from_server(key) if kind in self._handlers else None

    def evict(self, pod: PodInfo) -> None:
        """Delete a pod: without a node at once, else after its grace period."""
        if pod.is_terminating:
            return
        if not pod.node_name:
            self.remove_pod(pod.key)
            return
        grace = pod.pod.spec.termination_grace_period_seconds
        ends = self._parts.clock.utc_now() + timedelta(seconds=grace)
        self._show(pod, terminating(pod, rfc3339(ends), self._next_version()))
        self._stop(pod)
        if self._witness is not None:
            self._witness.evicted(pod)

    def end(self, key: str, uid: str) -> None:
        """Remove a pod, unless another pod has its name by now."""
        known = self._pods.get(key)
        if known is not None and known.uid == uid:
            self.remove_pod(key)

    # Writes and reads of the scheduler.

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        if self._binding_seconds is not None:
            await asyncio.sleep(self._binding_seconds(pod))
        known = self._there(pod)
        if known.node_name:
            raise ApiError(409, "Conflict", f"pod {pod.key}: is already assigned to node {known.node_name!r}")
        started = self._parts.clock.utc_now()
        bound = changed(
            known,
            self._next_version(),
            node_name=node_name,
            phase=_STARTED,
            start_time=rfc3339(started),
            conditions=(),
            nominated_node_name="",
        )
        self._show(known, trimmed(bound, self._needs))
        if self._witness is not None:
            self._witness.bound(bound)

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        return self._pods.get(f"{namespace}/{name}")

    def patch_pod_status(
        self, pod: PodInfo, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> bool:
        """Patch a pod's status after the caller has returned, because an answer of the API server also comes later."""
        if _says(pod, condition, nominated_node_name):
            return False
        self._loop.call_soon(self._patch_pending, pod, condition, nominated_node_name)
        return True

    async def wait_pod_status_patched(self, pod: PodInfo, *, condition: PodCondition | None = None) -> None:
        self._patch(self._there(pod), condition, None)

    async def delete_pod(self, pod: PodInfo) -> object:
        known = self._there(pod)
        self.evict(known)
        return known

    def annotate(self, key: str, annotations: Mapping[str, str | None]) -> None:
        """Change annotations of a pod; None removes one."""
        known = self._pods[key]
        self._show(known, annotated(known, annotations, self._next_version()))

    def of(self, scheduler_name: str) -> MemoryCluster:
        return self

    def record(self, regarding: PodInfo, **_event: object) -> None:
        """Do nothing: nothing reads events here."""

    # Implementation.

    def _stop(self, pod: PodInfo) -> None:
        """Remove a terminating pod when its grace period ends."""
        self.leaving.add(pod.uid)
        grace = float(pod.pod.spec.termination_grace_period_seconds)
        self._loop.call_later(min(grace, self._stop_seconds), self.end, pod.key, pod.uid)

    def _give_back(self, pod: PodInfo) -> None:
        """Release the claims of a deleted pod; a claim that is reserved for no pod loses its allocation."""
        status = pod.pod.status
        named = [each.resource_claim_name for each in pod.pod.spec.resource_claims]
        named += [each.resource_claim_name for each in status.resource_claim_statuses]
        if status.extended_resource_claim_status is not None:
            named.append(status.extended_resource_claim_status.resource_claim_name)
        for name in named:
            claim = None if name is None else self.find(DEVICE_CLAIMS, f"{pod.namespace}/{name}")
            if claim is None or not claim.get("status"):
                continue
            state: dict[str, Any] = dict(claim["status"])
            left = [each for each in state.get("reservedFor") or () if each.get("uid") != pod.uid]
            if len(left) == len(state.get("reservedFor") or ()):
                continue
            state["reservedFor"] = left
            if not left:
                state.pop("allocation", None)
            self.put_object(DEVICE_CLAIMS, {**claim, "status": state})

    def _there(self, pod: PodInfo) -> PodInfo:
        known = self._pods.get(pod.key)
        if known is None:
            raise ApiError(404, "NotFound", f'pods "{pod.name}" not found')
        if known.uid != pod.uid:
            raise ApiError(409, "Conflict", f'pods "{pod.name}" was replaced by another pod')
        return known

    def _pending(self, pod: PodInfo) -> PodInfo | None:
        """Return the current version of a pod; None if it is gone or bound."""
        known = self._pods.get(pod.key)
        return None if known is None or known.uid != pod.uid or known.node_name else known

    def _show(self, known: PodInfo | None, pod: PodInfo) -> None:
        if known is None or known.node_name != pod.node_name or known.is_terminating != pod.is_terminating:
            self.changes += 1
        assert self._pod_handler is not None
        self._pods[pod.key] = pod
        if known is None:
            self._pod_handler.on_add(pod)
        else:
            self._pod_handler.on_update(known, pod)

    def _patch_pending(
        self, pod: PodInfo, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        """Patch a pod's status, unless it is gone or bound by now: then the change no longer applies."""
        known = self._pending(pod)
        if known is not None:
            self._patch(known, condition, nominated_node_name)

    def _patch(self, pod: PodInfo, condition: PodCondition | None, nominated_node_name: str | None) -> None:
        if _says(pod, condition, nominated_node_name):
            return
        status: dict[str, Any] = {}
        if condition is not None:
            others = (each for each in pod.pod.status.conditions if each.type != condition.type)
            status["conditions"] = (*others, condition)
        if nominated_node_name is not None:
            status["nominated_node_name"] = nominated_node_name
        self._show(pod, changed(pod, self._next_version(), **status))

    def _next_version(self) -> str:
        self._versions += 1
        return str(self._versions)


def _says(pod: PodInfo, condition: PodCondition | None, nominated_node_name: str | None) -> bool:
    """Return whether a pod's status has these values already."""
    status = pod.pod.status
    if nominated_node_name is not None and nominated_node_name != status.nominated_node_name:
        return False
    if condition is None:
        return True
    return any(
        (each.type, each.status, each.reason, each.message)
        == (condition.type, condition.status, condition.reason, condition.message)
        for each in status.conditions
    )


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
    resource = resource_of(kind)
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
    known: dict[str, Any] = msgspec.to_builtins(pod.pod)
    if pod.raw is None:
        return known
    whole: dict[str, Any] = msgspec.json.decode(pod.raw)
    return {**whole, "metadata": {**whole["metadata"], **known["metadata"]}, _STATUS: known.get(_STATUS, {})}


if TYPE_CHECKING:
    Object = Mapping[str, Any]

VOLUMES: Final = "v1/persistentvolumes"
CLAIMS: Final = "v1/persistentvolumeclaims"
_CLASSES: Final = "storage.k8s.io/v1/storageclasses"
_CSI_NODES: Final = "storage.k8s.io/v1/csinodes"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"


def bind_volumes(cluster: MemoryCluster) -> None:
    """Bind the claims of a cluster from now on, if plugins read them."""
    controller = _Volumes(cluster)
    cluster.after_write(VOLUMES, controller.look_at_volume)
    cluster.after_write(CLAIMS, controller.look_at_claim)


class _Volumes:
    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def look_at_volume(self, volume: Object) -> None:
        """Bind the claim that a volume names."""
        held = volume["spec"].get("claimRef")
        if held is not None:
            claim = self._cluster.find(CLAIMS, f"{held.get('namespace', '')}/{held['name']}")
            if claim is not None and _BIND_COMPLETED not in _annotations(claim):
                self._bind(claim, volume["metadata"]["name"])

    def look_at_claim(self, claim: Object) -> None:
        """Provision a volume for a claim with a selected node, and bind it."""
        node_name = _annotations(claim).get(_SELECTED_NODE)
        node = self._cluster.nodes.get(node_name or "")
        if node is None or claim["spec"].get("volumeName"):
            return
        class_ = self._cluster.find(_CLASSES, claim["spec"].get("storageClassName") or "")
        if class_ is None:
            return
        driver, metadata = class_["provisioner"], claim["metadata"]
        csi_node = self._cluster.find(_CSI_NODES, node.name)
        segment = segment_of_node(
            {"metadata": {"labels": dict(node.labels)}},
            keys_of_driver(driver, None if csi_node is None else dict(csi_node), dict(class_)),
        )
        name = f"pvc-{metadata.get('uid') or metadata['namespace'] + '-' + metadata['name']}"
        spec: dict[str, Any] = {
            "accessModes": claim["spec"].get("accessModes", []),
            "capacity": {
                "storage": claim["spec"].get("resources", {}).get("requests", {}).get("storage", "0")
            },
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata.get("uid", ""),
            },
            "csi": {"driver": driver, "volumeHandle": name},
            "storageClassName": class_["metadata"]["name"],
        }
        if segment:
            spec["nodeAffinity"] = node_affinity(segment)
        self._cluster.put_object(
            VOLUMES, {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}}
        )

    def _bind(self, claim: Object, volume_name: str) -> None:
        metadata = claim["metadata"]
        annotations = {**_annotations(claim), _BIND_COMPLETED: "yes"}
        self._cluster.put_object(
            CLAIMS,
            {
                **claim,
                "metadata": {**metadata, "annotations": annotations},
                "spec": {**claim["spec"], "volumeName": volume_name},
                "status": {**claim.get("status", {}), "phase": "Bound"},
            },
        )


def _annotations(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}
