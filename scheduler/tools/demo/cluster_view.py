"""The demo's view of the cluster: it watches the API server, as any client."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.kube.client.reflector import Reflector
from scheduler.kube.client.resources import EVENTS, NODES, PODS
from scheduler.objects.decode import decode_node, decode_object, decode_pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from scheduler.errors import ObjectError
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

_EVENTS_KEPT = 8
_SHOWN = frozenset({"Scheduled", "FailedScheduling", "Preempted"})


class ShownEvent(NamedTuple):
    """One event, as `kubectl get events` shows it."""

    reason: str
    pod: str
    note: str


class ClusterView:
    """Nodes, pods and the latest events, kept current by watches.

    Args:
        profiles: schedulerNames of the daemon's profiles.

    Attributes:
        profiles: schedulerNames of the daemon's profiles.
        happenings: the latest scheduling events, oldest first.
        changed: called after every change.
        on_event: called with every new scheduling event.
    """

    def __init__(self, profiles: Collection[str]) -> None:
        self.profiles = profiles
        self._pods: Mapping[str, PodInfo] = {}
        self._nodes: Mapping[str, NodeObject] = {}
        self.happenings: deque[ShownEvent] = deque(maxlen=_EVENTS_KEPT)
        self.on_event: Callable[[ShownEvent], None] = lambda _: None

    @property
    def pods(self) -> dict[str, PodInfo]:
        """Name -> pod, sorted."""
        return dict(sorted((pod.name, pod) for pod in self._pods.values() if not pod.is_terminal))

    @property
    def nodes(self) -> dict[str, NodeObject]:
        """Name -> node, sorted."""
        return dict(sorted((node.name, node) for node in self._nodes.values()))

    def taken(self, resource: str) -> dict[str, int]:
        """Return node name -> requested amount of a resource: milli-cpu, bytes, or a count."""
        amounts = dict.fromkeys(self.nodes, 0)
        for pod in self.pods.values():
            if pod.node_name in amounts:
                amounts[pod.node_name] += pod.resources.taken.get(resource, 0)
        return amounts

    @asynccontextmanager
    async def watching(self, connection: ApiConnection) -> AsyncIterator[None]:
        """Watch while the block runs."""
        random = Random(0)
        quiet = _Quiet()
        pods = Reflector(connection, PODS, decode=decode_pod, handler=quiet, random=random)
        nodes = Reflector(connection, NODES, decode=decode_node, handler=quiet, random=random)
        events = Reflector(connection, EVENTS, decode=decode_object, handler=_Events(self), random=random)
        self._pods, self._nodes = pods.store, nodes.store
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(reflector.run()) for reflector in (pods, nodes, events)]
            await pods.wait_synced()
            await nodes.wait_synced()
            try:
                yield
            finally:
                for watch in watches:
                    watch.cancel()


class _Quiet:
    """Ignores changes of pods and nodes: only the stores are used."""

    def on_add(self, obj: Any) -> None: ...
    def on_update(self, old: Any, new: Any) -> None: ...
    def on_delete(self, old: Any) -> None: ...
    def on_undecodable(self, identity: Any, error: ObjectError) -> None: ...


class _Events(_Quiet):
    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def on_add(self, obj: Any) -> None:
        if obj.get("reason") in _SHOWN:
            happening = ShownEvent(obj["reason"], obj["regarding"]["name"], obj.get("note", ""))
            self._cluster.happenings.append(happening)
            self._cluster.on_event(happening)
