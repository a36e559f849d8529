"""Simulated kubelets of an API server: they register their nodes, run the pods on them, and delete the nodes."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.clock import rfc3339
from scheduler.errors import ApiError, SchedulerError
from scheduler.kube.client.background import BackgroundLane, JobQueue
from scheduler.kube.client.outages import Outages
from scheduler.kube.client.reflector import Reflector
from scheduler.kube.client.resources import (
    LEASES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    Resource,
)
from scheduler.kube.http.request import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Request
from scheduler.objects.decode import decode_object
from scheduler.retries import Backoff, RetryPolicy
from scheduler.tools.simulator.apimachinery.objects import key_of, labels_of
from scheduler.tools.simulator.apimachinery.patch_types import APPLY_PATCH
from scheduler.tools.simulator.apimachinery.selectors import Selector
from scheduler.tools.simulator.node_agents.kubelet import (
    LEASE_NAMESPACE,
    Heartbeats,
    Kubelet,
    KubeletOptions,
    healthy_conditions,
    machine_status,
)
from scheduler.tools.simulator.registry.event_recorder import EventRecorder
from scheduler.tools.simulator.storage import ADDED, DELETED, MODIFIED, Change, Entry, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
    from random import Random

    from scheduler.clock import Clock
    from scheduler.errors import ObjectError
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.requests import Requests
    from scheduler.kube.client.wire import ObjectIdentity
    from scheduler.tools.simulator.apimachinery.objects import Object

logger = logging.getLogger(__name__)

_RETRIES: Final = RetryPolicy()
_CAPACITY: Final = 100_000


class Write:
    """One write.

    Args:
        about: the kind and the key of the object.
        request: the request.
        replaces: whether a waiting write of the object, with the same attribute, need not be sent any more.
        expected: status of an error that is ignored; 0 for none.
    """

    def __init__(self, about: str, request: Request, *, replaces: bool = False, expected: int = 0) -> None:
        self.about = about
        self.replaces = replaces
        self._request = request
        self._expected = expected
        self._tries = 0

    async def send(self, connection: Requests) -> None:
        try:
            await connection.send(self._request)
        except ApiError as error:
            if error.status != self._expected:
                raise

    def should_retry(self, error: ApiError) -> bool:
        self._tries += 1
        return _RETRIES.allows(error, self._tries)

    def finished(self, error: ApiError | None) -> None:
        """Do nothing: the lane logs errors."""


class OrderedWrites(JobQueue[Write]):
    """Waiting writes by object; at most one write of an object is in flight."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _CAPACITY)
        self._waiting: dict[str, deque[Write]] = {}  # object -> its writes
        self._sent: set[str] = set()  # objects with a write in flight
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put_back(self, job: Write) -> None:
        self._sent.discard(job.about)
        super().put_back(job)

    def done(self, job: Write) -> None:
        self._sent.discard(job.about)
        super().done(job)

    def _append(self, job: Write) -> None:
        waiting = self._waiting.setdefault(job.about, deque())
        if job.replaces and waiting and waiting[-1].replaces:
            waiting[-1] = job
            return
        waiting.append(job)
        self._count += 1

    def _pop(self) -> Write | None:
        about = next((about for about in self._waiting if about not in self._sent), None)
        if about is None:
            return None
        waiting = self._waiting[about]
        job = waiting.popleft()
        if not waiting:
            del self._waiting[about]
        self._sent.add(about)
        self._count -= 1
        return job

    def _push_front(self, job: Write) -> None:
        self._waiting.setdefault(job.about, deque()).appendleft(job)
        self._count += 1


_EVENTS: Final = Resource("", "v1", "events", "Event", namespaced=True)
_READ: Final = (NODES, PODS, PERSISTENT_VOLUME_CLAIMS, RESOURCE_CLAIMS)
_WRITTEN: Final = {each.kind: each for each in (NODES, PODS, LEASES, _EVENTS)}
_BOUND: Final = "spec.nodeName!="
_FIELD_MANAGER: Final = "kubelet"
_PLACES: Final = 16
_LAST_WRITES_SECONDS: Final = 5.0


class RemoteObjects:
    """The objects of an API server; see `ObjectAccess`.

    Nodes and pods are those of the given nodes only. Claims are those of all pods.

    Args:
        connection: to the API server.
        nodes: names of nodes.
        clock: time of the statuses.
        random: for jitter.

    Attributes:
        events: records events about objects.
    """

    def __init__(
        self, connection: ApiConnection, nodes: Collection[str], *, clock: Clock, random: Random
    ) -> None:
        self.events = EventRecorder(self, clock, normal=True)
        self._clock = clock
        self._outages = Outages(connection)
        self._feeds = {str(resource): _Feed(resource, nodes) for resource in _READ}
        self._reflectors = {
            name: Reflector(
                connection,
                feed.resource,
                decode=_decoded,
                handler=feed,
                random=random,
                pause=self._outages.pause,
                field_selector=_BOUND if feed.resource is PODS else "",
                optional=feed.resource is RESOURCE_CLAIMS,
            )
            for name, feed in self._feeds.items()
        }
        self._writes, self._event_writes = OrderedWrites("writes"), OrderedWrites("events")
        self._lane = BackgroundLane(
            connection,
            [self._writes, self._event_writes],
            places=lambda: _PLACES,
            backoff=Backoff(random, initial_seconds=0.05, maximum_seconds=10.0),
        )

    @asynccontextmanager
    async def running(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Watch while the block runs; at its end the last writes are sent.

        The block begins when all objects are known, or when `stop` is set.
        """
        async with asyncio.TaskGroup() as tasks:
            running: list[asyncio.Task[object]] = [
                tasks.create_task(each.run(), name=f"watch {name}") for name, each in self._reflectors.items()
            ]
            running.append(tasks.create_task(self._outages.run(), name="outages"))
            waits = [tasks.create_task(self._wait_synced()), tasks.create_task(stop.wait())]
            running += waits
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                yield
                await self._send_last()
            finally:
                for task in running:
                    task.cancel()
                await self._lane.close()

    async def _wait_synced(self) -> None:
        for each in self._reflectors.values():
            await each.wait_synced()

    async def _send_last(self) -> None:
        try:
            async with asyncio.timeout(_LAST_WRITES_SECONDS):
                await self._writes.wait_idle()
                await self._event_writes.wait_idle()
        except TimeoutError:
            left = len(self._writes) + len(self._event_writes)
            logger.warning("Writes were left unfinished", extra={"writes": left})

    def has_kind(self, resource: str) -> bool:
        return resource in self._feeds

    def find(self, resource: str, name: str, namespace: str = "default") -> Object | None:
        reflector = self._reflectors[resource]
        return reflector.store.get(f"{namespace}/{name}" if reflector.resource.namespaced else name)

    def has(self, obj: Object) -> bool:
        namespace, name = key_of(obj)
        found = self.find(str(_WRITTEN[obj["kind"]]), name, namespace)
        return found is not None and bool(found["metadata"]["uid"] == obj["metadata"]["uid"])

    def watch(self, resource: str, on_ready: Callable[[], None]) -> Watch:
        watch = Watch(Selector(), on_ready, limit=sys.maxsize)
        self._feeds[resource].watches[watch] = None
        return watch

    def unwatch(self, resource: str, watch: Watch) -> None:
        self._feeds[resource].watches.pop(watch, None)

    def create(self, resource: str, obj: Object, *, namespace: str = "") -> None:
        """Create an event, unless its namespace is terminating."""
        assert resource == str(_EVENTS), "node agents create nothing else"
        about = f"{resource} {namespace}/{obj['metadata']['name']}"
        request = Request("POST", _EVENTS.path(namespace), msgspec.json.encode(obj))
        self._send(Write(about, request, expected=403), self._event_writes)

    def apply(self, obj: Object) -> None:
        about, path = _place(obj)
        params = {"fieldManager": _FIELD_MANAGER, "force": "true"}
        request = Request("PATCH", path, msgspec.json.encode(obj), APPLY_PATCH, params)
        self._send(Write(about, request, replaces=True))

    def change(
        self, obj: Object, patch: Object, subresource: str = "", patch_type: str = MERGE_PATCH
    ) -> None:
        """Patch an object, or its status, unless another object has its name by then."""
        about, path = _place(obj)
        path = f"{path}/{subresource}" if subresource else path
        if obj["kind"] == _EVENTS.kind:
            request = Request("PATCH", path, msgspec.json.encode(patch), patch_type)
            self._send(Write(about, request, replaces=True), self._event_writes)
            return
        metadata = patch.get("metadata", {}) | {"uid": obj["metadata"]["uid"]}
        body = msgspec.json.encode(patch | {"metadata": metadata})
        self._send(Write(about, Request("PATCH", path, body, patch_type), expected=409))

    def remove(self, obj: Object, *, grace_period_seconds: int | None = None) -> None:
        about, path = _place(obj)
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": obj["metadata"]["uid"]},
        }
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        self._send(Write(about, Request("DELETE", path, msgspec.json.encode(options)), expected=409))

    def timestamp(self) -> str:
        return rfc3339(self._clock.utc_now())

    def list(self, resource: str) -> Sequence[Object]:
        feed = self._feeds[resource]
        return [obj for obj in self._reflectors[resource].store.values() if feed.has(obj)]

    def _send(self, write: Write, queue: OrderedWrites | None = None) -> None:
        (self._writes if queue is None else queue).put(write)
        self._lane.wake()


class _Feed:
    """Passes changes of one kind on to watches.

    Attributes:
        resource: the kind.
        watches: the open watches.
    """

    def __init__(self, resource: Resource, nodes: Collection[str]) -> None:
        self.resource = resource
        self.watches: dict[Watch, None] = {}
        self._nodes = nodes

    def has(self, obj: Object) -> bool:
        """Return whether an object concerns the nodes."""
        if self.resource is NODES:
            return obj["metadata"]["name"] in self._nodes
        return self.resource is not PODS or obj["spec"].get("nodeName") in self._nodes

    def on_add(self, obj: Object) -> None:
        self._offer(ADDED, obj)

    def on_update(self, old: Object, new: Object) -> None:
        self._offer(MODIFIED, new)

    def on_delete(self, old: Object) -> None:
        self._offer(DELETED, old)

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        fields: dict[str, Any] = {"kind": self.resource.kind, "object": identity.key, "error": str(error)}
        logger.warning("Ignored an object that cannot be decoded", extra=fields)

    def _offer(self, type_: str, obj: Object) -> None:
        if self.has(obj):
            namespace, name = key_of(obj)
            change = Change(type_, Entry("", namespace, name, obj, 0), None)
            for watch in self.watches:
                watch.offer(change)


def _decoded(raw: bytes) -> Object:
    """Decode an object; it has a spec and a status, as every stored object of a `Store`."""
    return {"spec": {}, "status": {}} | decode_object(raw)


def _place(obj: Object) -> tuple[str, str]:
    """Return the kind and the key of an object, and its path."""
    resource, (namespace, name) = _WRITTEN[obj["kind"]], key_of(obj)
    return f"{resource} {namespace}/{name}", resource.path(namespace, name)


SIMULATED: Final = "simulator/kubelet"
"""Label of nodes whose kubelet is simulated."""
_OPTIONS: Final = KubeletOptions(heartbeat_seconds=10.0, recover=True)


class ForeignNodeError(SchedulerError):
    """A node belongs to another kubelet."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"node {name} exists and has no label {SIMULATED}: another kubelet runs it; choose other names with "
            "--name-prefix"
        )


def as_registered(node: Object, place: int, clock: Clock) -> Object:
    """Return a node as its kubelet registers it.

    Args:
        node: the node, with labels, capacity and allocatable.
        place: its number, from which its address is made.
        clock: time of its conditions.
    """
    metadata, labels = node["metadata"], labels_of(node)
    status = {
        **node["status"],
        "conditions": healthy_conditions(rfc3339(clock.utc_now())),
        **machine_status(node, place),
    }
    return node | {"metadata": metadata | {"labels": labels | {SIMULATED: "true"}}, "status": status}


async def register(requests: Requests, nodes: Iterable[Object]) -> None:
    """Create nodes. An existing node of simulated kubelets gets the labels and the status of the new one.

    Raises:
        ApiError: the API server refuses a node.
        ForeignNodeError: a node belongs to another kubelet.
    """
    for node in nodes:
        try:
            await requests.send(Request("POST", NODES.path(), msgspec.json.encode(node)))
        except ApiError as error:
            if error.status != 409:
                raise
            await _take_over(requests, node)


async def _take_over(requests: Requests, node: Object) -> None:
    path = NODES.path(name=node["metadata"]["name"])
    present = decode_object((await requests.send(Request("GET", path))).body)
    if SIMULATED not in labels_of(present):
        raise ForeignNodeError(node["metadata"]["name"])
    labels = msgspec.json.encode({"metadata": {"labels": labels_of(node)}})
    await requests.send(Request("PATCH", path, labels, MERGE_PATCH))
    status = msgspec.json.encode({"status": node["status"]})
    await requests.send(Request("PATCH", f"{path}/status", status, STRATEGIC_MERGE_PATCH))


@asynccontextmanager
async def running(
    connection: ApiConnection, nodes: Collection[str], stop: asyncio.Event, *, clock: Clock, random: Random
) -> AsyncIterator[None]:
    """Run the kubelets of registered nodes while the block runs.

    Args:
        connection: to the API server.
        nodes: names of the nodes.
        stop: ends the wait for the objects of the API server, before the block.
        clock: time of statuses.
        random: for jitter.
    """
    objects = RemoteObjects(connection, frozenset(nodes), clock=clock, random=random)
    agents = (Kubelet(objects, _OPTIONS), Heartbeats(objects, _OPTIONS))
    async with objects.running(stop):
        for agent in agents:
            agent.start()
        try:
            yield
        finally:
            for agent in agents:
                agent.stop()


async def delete(requests: Requests, names: Iterable[str]) -> None:
    """Delete nodes and their leases; errors are logged."""
    for name in names:
        for path in (NODES.path(name=name), LEASES.path(LEASE_NAMESPACE, name)):
            try:
                await requests.send(Request("DELETE", path))
            except ApiError as error:
                if error.status != 404:
                    logger.warning("Not deleted", extra={"path": path, "error": str(error)})
