"""Changes of a cluster beside arriving pods: nodes are added, removed, drained and fail, and objects change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.tools.whatif.simulation.node_versions import cordoned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.simulation.cluster import MemoryCluster


class TimelineEvent(Protocol):
    """A change at a time.

    Attributes:
        at: seconds since the beginning.
    """

    @property
    def at(self) -> float: ...

    def happen(self, cluster: MemoryCluster) -> None:
        """Apply the change to a cluster."""
        ...


@dataclass(frozen=True, slots=True)
class NodeIsThere:
    """A node is added or changed."""

    at: float
    node: NodeObject

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_node(self.node)


@dataclass(frozen=True, slots=True)
class NodeGoes:
    """A node is removed with its pods, at once; owners replace their pods."""

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
    """A node is cordoned or uncordoned."""

    at: float
    name: str
    wanted: bool = True

    def happen(self, cluster: MemoryCluster) -> None:
        node = cluster.nodes.get(self.name)
        if node is not None:
            cluster.put_node(cordoned(node, wanted=self.wanted))


@dataclass(frozen=True, slots=True)
class NodeIsDrained:
    """A node is cordoned, and its pods are evicted."""

    at: float
    name: str

    def happen(self, cluster: MemoryCluster) -> None:
        NodeIsCordoned(self.at, self.name).happen(cluster)
        for pod in cluster.pods_on(self.name):
            if not any(owner.kind == "DaemonSet" for owner in pod.pod.metadata.owner_references):
                cluster.evict(pod)


@dataclass(frozen=True, slots=True)
class PodIsThere:
    """A pod is added or changed, for example a pod that another scheduler placed."""

    at: float
    pod: PodInfo

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_pod(self.pod)


@dataclass(frozen=True, slots=True)
class PodGoes:
    """A pod is removed, if it exists."""

    at: float
    key: str

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.remove_pod(self.key)


@dataclass(frozen=True, slots=True)
class OwnerKeeps:
    """A workload is limited to a number of pods; pending pods are removed first, then the newest ones."""

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
    """An object of another kind is added or changed."""

    at: float
    kind: str
    obj: Mapping[str, Any]

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.put_object(self.kind, self.obj)


@dataclass(frozen=True, slots=True)
class ObjectGoes:
    """An object of another kind is removed."""

    at: float
    kind: str
    key: str

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.remove_object(self.kind, self.key)


@dataclass(frozen=True, slots=True)
class PodIsAnother:
    """A pending pod changes, for example because a gate is removed."""

    at: float
    pod: PodInfo

    def happen(self, cluster: MemoryCluster) -> None:
        cluster.change_pending(self.pod)
