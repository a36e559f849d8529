"""What happens to a cluster beside pods that come: nodes come and go, are drained and fail, objects change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.whatif.simulation.nodes import cordoned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.whatif.simulation.cluster import MemoryCluster


class Event(Protocol):
    """Something that happens at a time.

    Attributes:
        at: seconds since the start.
    """

    @property
    def at(self) -> float: ...

    def happen(self, cluster: MemoryCluster) -> None:
        """Do it to a cluster."""
        ...


@dataclass(frozen=True, slots=True)
class NodeIsThere:
    """A node comes, or is another by now."""

    at: float
    node: NodeObject

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_node(self.node)


@dataclass(frozen=True, slots=True)
class NodeGoes:
    """A node goes, and its pods with it, all at once; those with an owner come again."""

    at: float
    name: str

    def happen(self, cluster: MemoryCluster) -> None:
        if self.name in cluster.nodes:
            cluster.remove_node(self.name)
        for pod in cluster.pods_on(self.name):
            cluster.evict(pod)
            cluster.remove_pod(pod.key)


@dataclass(frozen=True, slots=True)
class NodeIsCordoned:
    """A node takes no more pods, or does again."""

    at: float
    name: str
    wanted: bool = True

    def happen(self, cluster: MemoryCluster) -> None:
        node = cluster.nodes.get(self.name)
        if node is not None:
            cluster.put_node(cordoned(node, wanted=self.wanted))


@dataclass(frozen=True, slots=True)
class NodeIsDrained:
    """A node takes no more pods, and those that are there are asked to go."""

    at: float
    name: str

    def happen(self, cluster: MemoryCluster) -> None:
        NodeIsCordoned(self.at, self.name).happen(cluster)
        for pod in cluster.pods_on(self.name):
            if not any(owner.kind == "DaemonSet" for owner in pod.pod.metadata.owner_references):
                cluster.evict(pod)


@dataclass(frozen=True, slots=True)
class PodIsThere:
    """A pod comes, or is another by now: one of another scheduler, where that has placed it."""

    at: float
    pod: PodInfo

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_pod(self.pod)


@dataclass(frozen=True, slots=True)
class PodGoes:
    """A pod goes, if it is there."""

    at: float
    key: str

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.remove_pod(self.key)


@dataclass(frozen=True, slots=True)
class OwnerKeeps:
    """A workload has so many pods at most; pending ones go first, then those that came last."""

    at: float
    namespace: str
    name: str
    number: int

    def happen(self, cluster: MemoryCluster) -> None:
        pods = [pod for pod in cluster.pods_of(self.namespace, self.name) if not pod.is_terminating]
        pods.sort(key=lambda pod: not pod.node_name)
        for pod in pods[self.number :]:
            cluster.remove_pod(pod.key)


@dataclass(frozen=True, slots=True)
class ObjectIsThere:
    """An object of another kind comes, or is another by now."""

    at: float
    kind: str
    obj: Mapping[str, Any]

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_object(self.kind, self.obj)


@dataclass(frozen=True, slots=True)
class ObjectGoes:
    """An object of another kind goes."""

    at: float
    kind: str
    key: str

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.remove_object(self.kind, self.key)


@dataclass(frozen=True, slots=True)
class PodIsAnother:
    """A pending pod changes, if it still waits: a gate is lifted, for example."""

    at: float
    pod: PodInfo

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.change_pending(self.pod)
