"""A cluster in memory, without HTTP and tasks: pods and nodes as the scheduler reads them, other objects in a registry.

The registry, and its rules for writes, are the simulated API server's; so are the steps that bind volumes and release
devices. Pods and nodes are not in it: encoding, admitting and decoding each version of a pod takes as long as the decision
about it. A bound pod runs at once, and a deleted pod stays for its grace period.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from scheduler.clock import rfc3339
from scheduler.daemon.app.needs import resource_of, trimmed
from scheduler.engine.cycle.event_handlers import NodeHandler
from scheduler.errors import ApiError, ObjectError
from scheduler.framework.interface import Needs
from scheduler.kube.client.status_queue import merged_status
from scheduler.kube.http.request import JSON, MERGE_PATCH
from scheduler.objects.admission import class_of
from scheduler.objects.api_types import api_type
from scheduler.objects.decode import decode_pod
from scheduler.snapshot import object_key
from scheduler.tools.simulator.api.handlers import Api, Request
from scheduler.tools.simulator.api.requests import request_info
from scheduler.tools.simulator.apimachinery.kinds import Kind, Place
from scheduler.tools.simulator.apimachinery.objects import key_of
from scheduler.tools.simulator.apimachinery.patch_types import apply_patch, merge_patch
from scheduler.tools.simulator.apimachinery.selectors import selector_of
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.apimachinery.strategy import Generic
from scheduler.tools.simulator.apimachinery.structure import WriteOptions
from scheduler.tools.simulator.controllers.resource_claims import release_claim
from scheduler.tools.simulator.controllers.volumes import (
    BIND_COMPLETED,
    SELECTED_NODE,
    annotations_of,
    bound_claim,
)
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.tools.simulator.node_agents.volume_drivers import (
    keys_of_driver,
    provisioned_volume,
    segment_of_node,
)
from scheduler.tools.simulator.registry.registry import Registry
from scheduler.tools.simulator.registry.store import Store
from scheduler.tools.simulator.storage import DELETED
from scheduler.tools.whatif.simulation.object_versions import (
    annotated,
    changed,
    resized,
    terminating,
    with_requests,
    with_status_of,
)
from scheduler.tools.whatif.simulation.resizes import Resizes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from scheduler.clock import Clock
    from scheduler.daemon.app.assembly import Parts
    from scheduler.engine.cycle.event_handlers import ObjectHandler, PodHandler
    from scheduler.framework import WantedStatus
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Container, PodCondition
    from scheduler.tools.simulator.api.requests import RequestInfo
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.storage import Storage, Watch

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

    It implements PodBinder, PodWriter, PodReader, PodEventRecorders and PodEvents; `ObjectWrites` changes objects of
    other kinds. Pods are in `parts.pods`.

    Args:
        parts: the scheduler that is notified.
        loop: the loop whose time applies.
        stop_seconds: time that a deleted pod takes to stop, at most its grace period; infinity for all of that.
        binding_seconds: returns the time that a Binding takes; None for no time.

    Attributes:
        nodes: name -> node.
        registry: the objects of the other kinds that plugins read.
        store: the same objects, for controllers.
        changes: number of changes of nodes, and of pods added, bound, deleted and removed.
        changed: is set with each of these changes.
        leaving: uids of pods that were deleted and still exist.
        resizes: the resizes of pods.
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
        self.changed = asyncio.Event()
        self.leaving: set[str] = set()
        self._parts, self._loop, self._stop_seconds = parts, loop, stop_seconds
        self._binding_seconds = binding_seconds
        self._pods = parts.pods
        self._needs = Needs()
        self._node_handler = NodeHandler(parts)
        self._pod_handler: PodHandler | None = None
        self._handlers: dict[str, ObjectHandler] = {}
        self._witness: ClusterWitness | None = None
        self._storages: dict[str, Storage] = {}
        self.registry = Registry(
            clock=parts.clock, kinds=builtin_kinds(), seed=0, history=1, namespace_lifecycle=False
        )
        self.store = Store(self.registry)
        self._after_write: dict[str, Callable[[Object], None]] = {}
        self.resizes = Resizes(self, loop)

    def connect(self, pod_handler: PodHandler, needs: Needs) -> None:
        """Set the handler of pods, and the kinds that plugins read; call once, before any object is added."""
        self._pod_handler, self._needs = pod_handler, needs
        self._handlers = {kind: self._parts.object_handler(kind) for kind in sorted(needs.kinds)}
        for kind in self._handlers:
            resource = resource_of(kind)
            if self.registry.kinds.at(resource.group, resource.version, resource.plural) is not None:
                self._serve(kind, {})

    def witnessed_by(self, witness: ClusterWitness) -> None:
        """Set the observer of pods."""
        self._witness = witness

    def after_write(self, kind: str, react: Callable[[Object], None]) -> None:
        """Call a function with every new version of the objects of a kind, as a controller would be."""
        self._after_write[kind] = react

    # Changes by others.

    def put_node(self, node: NodeObject) -> None:
        """Add a node, or replace it by a new version."""
        self._note_change()
        known = self.nodes.get(node.name)
        self.nodes[node.name] = node
        if known is None:
            self._node_handler.on_add(node)
        else:
            self._node_handler.on_update(known, node)
            if known.allocatable != node.allocatable:
                self.resizes.retry(node.name)

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods stay until they are removed."""
        self._note_change()
        self._node_handler.on_delete(self.nodes.pop(name))

    def put_pod(self, pod: PodInfo) -> None:
        """Add a pod, or replace it by a new version."""
        pod = trimmed(pod.under(self._needs.pod_rules), self._needs)
        known = self._pods.get(pod.key)
        if known is not None and known.uid != pod.uid:
            self.remove_pod(known.key)
            known = None
        self.show(known, pod)
        if pod.is_terminating and pod.uid not in self.leaving:
            self._stop(pod)

    def change_pending(self, pod: PodInfo) -> None:
        """Give a pending pod another spec; its status stays."""
        known = self._pending(pod)
        if known is not None:
            self.show(known, with_status_of(known, pod, self._next_version()))

    def remove_pod(self, key: str) -> None:
        """Remove a pod at once, if it exists."""
        pod = self._pods.pop(key, None)
        if pod is None:
            return
        self._note_change()
        self.leaving.discard(pod.uid)
        assert self._pod_handler is not None
        self._pod_handler.on_delete(pod)
        if pod.pod.spec.resource_claims or pod.pod.status.extended_resource_claim_status is not None:
            self._release(pod)
        if self._witness is not None:
            self._witness.gone(pod)
        self.resizes.gone(pod)

    def resize(self, key: str, container: str, requests: Mapping[str, str]) -> bool:
        """Change requests of a container of a pod in place; return whether it exists and is not terminating."""
        pod = self._pods.get(key)
        if pod is None or pod.is_terminating:
            return False
        self.resizes.resize(pod, with_requests(pod.pod.spec.containers, container, requests))
        return True

    def resized(self, pod: PodInfo, containers: tuple[Container, ...], **status: Any) -> PodInfo:
        """Return a new version of a pod with other requests of its containers, and another status."""
        return resized(pod, containers, self._needs.pod_rules, self._next_version(), **status)

    def put_object(self, kind: str, obj: Mapping[str, Any]) -> None:
        """Add or replace an object of another kind as it is; an object of a kind that no plugin reads is not kept.

        Raises:
            ObjectError: it is malformed.
        """
        served = self._serve(kind, dict(obj))
        if served is None:
            return
        namespace, name = key_of(dict(obj))
        try:
            self.registry.load(Place(served, namespace, name), obj)
        except StatusError as error:
            raise ObjectError(served.kind, object_key(obj), "", error.message) from error

    def remove_object(self, kind: str, key: str) -> None:
        """Remove an object of another kind at once, if it exists."""
        if self.find(kind, key) is not None:
            self._storages[kind].remove(key)

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

    def find(self, kind: str, key: str) -> Object | None:
        """Return an object of another kind that plugins read; None if there is none."""
        storage = self._storages.get(kind)
        entry = None if storage is None else storage.get(key)
        return None if entry is None else entry.object

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> RequestInfo:
        """Return a request; its kind is None unless plugins read the kind, or it patches a pod."""
        info = request_info(method, path.partition("?")[0], {}, self.registry.kinds)
        if info.kind is None or info.kind.group_resource != "pods" or method != "PATCH":
            kind = "/".join(filter(None, (info.group, info.version, info.resource)))
            info.kind = self._serve(kind, {**(body or {}), "metadata": {"namespace": info.namespace}})
        return info

    def evict(self, pod: PodInfo) -> None:
        """Delete a pod: without a node at once, else after its grace period."""
        if pod.is_terminating:
            return
        if not pod.node_name:
            self.remove_pod(pod.key)
            return
        grace = pod.pod.spec.termination_grace_period_seconds
        ends = self._parts.clock.utc_now() + timedelta(seconds=grace)
        self.show(pod, terminating(pod, rfc3339(ends), self._next_version()))
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
        self.show(known, trimmed(bound, self._needs))
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

    async def wait_pod_status_patched(
        self, pod: PodInfo, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> int:
        self._patch(self._there(pod), condition, nominated_node_name)
        return 0

    async def delete_pod(self, pod: PodInfo) -> object:
        known = self._there(pod)
        self.evict(known)
        return known

    def annotate(self, key: str, annotations: Mapping[str, str | None]) -> None:
        """Change annotations of a pod; None removes one."""
        known = self._pods[key]
        self.show(known, annotated(known, annotations, self._next_version()))

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

    def _serve(self, kind: str, obj: Object) -> Kind | None:
        """Return a kind that plugins read; a custom resource is served from its first object on. None for other kinds."""
        if kind not in self._handlers:
            return None
        resource = resource_of(kind)
        place = resource.group, resource.version, resource.plural
        served = self.registry.kinds.at(*place)
        if served is None:
            name, is_namespaced = obj.get("kind", resource.kind), bool(obj["metadata"].get("namespace"))
            served = Kind(*place, name, is_namespaced, Generic(), subresources=("status",), is_custom=True)
            self.registry.kinds.add(served)
        if kind not in self._storages:
            storage = self._storages[kind] = self.registry.storage(served)
            watch, _ = storage.watch(selector_of(served), lambda: self._notify(kind, watch))
        return served

    def _notify(self, kind: str, watch: Watch) -> None:
        """Notify the handler of a kind of a change; called right after each change."""
        handler = self._handlers[kind]
        for type_, entry in watch.take():
            obj = entry.object
            if type_ == DELETED:
                handler.on_delete(obj)
                continue
            known = self._parts.cache.table.watch_kind(kind).from_server(object_key(obj))
            if known is None:
                handler.on_add(obj)
            else:
                handler.on_update(known, obj)
            if kind in self._after_write:
                self._loop.call_soon(self._after_write[kind], obj)

    def _release(self, pod: PodInfo) -> None:
        """Release the ResourceClaims of a removed pod."""
        keys, extended = sorted(pod.resource_claim_keys), pod.pod.status.extended_resource_claim_status
        if extended is not None:
            keys.append(f"{pod.namespace}/{extended.resource_claim_name}")
        for key in keys:
            claim = self.find(DEVICE_CLAIMS, key)
            if claim is not None:
                release_claim(self.store, claim, lambda consumer: consumer.get("uid") != pod.uid)

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

    def show(self, known: PodInfo | None, pod: PodInfo) -> None:
        """Replace a version of a pod by the next one, and notify the scheduler; None means no pod."""
        if known is None or known.node_name != pod.node_name or known.is_terminating != pod.is_terminating:
            self._note_change()
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
        self.show(pod, changed(pod, self._next_version(), **status))

    def _note_change(self) -> None:
        self.changes += 1
        self.changed.set()

    def _next_version(self) -> str:
        return str(self.registry.versions.next())


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


class ObjectWrites:
    """Implements ApiWrite, StatusWrite and ApiGet with the simulated API server's rules, for the kinds that plugins read.

    The API has the objects of a cluster; the annotations and the status of its pods can be patched. Other writes, for
    example of kinds that no plugin reads, succeed without effect; the first one of a kind is logged.
    """

    def __init__(self, cluster: MemoryCluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._api = Api(cluster.registry, "")
        self._logged: set[str] = set()

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        info = self._cluster.request("GET", path)
        if info.kind is None:
            raise OSError(f"GET {path}: it is not in the simulated cluster")
        try:
            return self._answer(Request(info))
        except ApiError as error:
            raise OSError(f"GET {path}: {error}") from error

    async def api_write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = JSON,
        timeout_seconds: float = 30.0,
    ) -> Mapping[str, Any]:
        info = self._cluster.request(method, path, body)
        if info.kind is None:
            self._log_once(f"{method} {info.resource or path}")
            return body or {}
        if info.kind.group_resource == "pods":
            return await self._patch_pod(info, body or {}, content_type)
        encoded = b"" if body is None else msgspec.json.encode(body)
        answer: Mapping[str, Any] = msgspec.json.decode(self._answer(Request(info, encoded, content_type)))
        return answer

    async def write_status(
        self, kind: str, key: str, uid: str, wanted: WantedStatus, *, condition_types: Collection[str] = ()
    ) -> Mapping[str, Any] | None:
        known = self._cluster.find(kind, key)
        if known is None or known["metadata"].get("uid") != uid:
            return None
        namespace, _, name = key.rpartition("/")
        patch = merged_status(known.get("status") or {}, wanted, condition_types, self._clock.utc_now())
        path = resource_of(kind).path(namespace, name, "status")
        return await self.api_write("PATCH", path, {"status": patch}, content_type=MERGE_PATCH)

    def _answer(self, request: Request) -> bytes:
        """Return the body of the response.

        Raises:
            ApiError: the response is an error.
        """
        answer = self._api.answer(request)
        if answer.code >= HTTPStatus.BAD_REQUEST:
            status = msgspec.json.decode(answer.body)
            raise ApiError(answer.code, status.get("reason", ""), status["message"])
        return answer.body

    async def _patch_pod(
        self, info: RequestInfo, body: Mapping[str, Any], content_type: str
    ) -> Mapping[str, Any]:
        known = await self._cluster.read_pod(info.namespace, info.name)
        metadata = body.get("metadata") or {}
        if known is None:
            raise ApiError(404, "NotFound", f'pods "{info.name}" not found')
        if metadata.get("uid", known.uid) != known.uid:
            raise ApiError(409, "Conflict", f'pods "{info.name}" was replaced by another pod')
        if not info.subresource and body.keys() == {"metadata"} and metadata.keys() <= {"uid", "annotations"}:
            self._cluster.annotate(known.key, metadata.get("annotations") or {})
            return body
        try:
            obj = apply_patch(_whole(known), dict(body), content_type, api_type("v1", "Pod"))
        except StatusError as error:
            raise ApiError(error.code, error.reason, error.message) from error
        self._cluster.put_pod(decode_pod(msgspec.json.encode(obj)))
        return dict(obj)

    def _log_once(self, write: str) -> None:
        if write not in self._logged:
            self._logged.add(write)
            logger.warning("Not simulated: a write has no effect", extra={"write": write})


def _whole(pod: PodInfo) -> dict[str, Any]:
    """Return a pod as JSON, with its current status."""
    known: dict[str, Any] = msgspec.to_builtins(pod.pod)
    if pod.raw is None:
        return known
    whole: dict[str, Any] = msgspec.json.decode(pod.raw)
    return {
        **whole,
        "metadata": {**whole["metadata"], **known["metadata"]},
        "status": known.get("status", {}),
    }


VOLUMES: Final = "v1/persistentvolumes"
CLAIMS: Final = "v1/persistentvolumeclaims"


def bind_volumes(cluster: MemoryCluster) -> None:
    """Bind the claims of a cluster from now on, if plugins read them."""
    volumes = _Volumes(cluster)
    cluster.after_write(VOLUMES, volumes.look_at_volume)
    cluster.after_write(CLAIMS, volumes.look_at_claim)


class _Volumes:
    """The steps of the controller and the provisioners of volumes that follow from the writes of the scheduler.

    Other claims stay as they are: the recording or the file says what happens to them.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster, self._find = cluster, cluster.store.find

    def look_at_volume(self, volume: Object) -> None:
        """Bind the claim that a volume names."""
        held, registry = volume["spec"].get("claimRef"), self._cluster.registry
        if held is None:
            return
        kind = registry.kinds.named("persistentvolumeclaims")
        entry = registry.entry(Place(kind, held.get("namespace", ""), held["name"]))
        if entry is not None and BIND_COMPLETED not in annotations_of(entry.object):
            claim = entry.object
            for patch in bound_claim(claim, volume):
                claim = merge_patch(claim, patch)
            registry.commit(kind, entry, claim, WriteOptions())

    def look_at_claim(self, claim: Object) -> None:
        """Provision a volume for a claim with a selected node."""
        node = self._cluster.nodes.get(annotations_of(claim).get(SELECTED_NODE, ""))
        class_ = self._find("storageclasses.storage.k8s.io", class_of(claim) or "")
        if node is None or class_ is None or claim["spec"].get("volumeName"):
            return
        csi_node = self._find("csinodes.storage.k8s.io", node.name)
        labels = {"metadata": {"labels": dict(node.labels)}}
        segment = segment_of_node(labels, keys_of_driver(class_["provisioner"], csi_node, class_))
        volume = provisioned_volume(claim, class_, segment)
        self._cluster.put_object(VOLUMES, {**volume, "status": {"phase": "Bound"}})
