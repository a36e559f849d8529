"""Resizes of pods on nodes in a simulation, with the answers of the simulated API server's kubelets.

A resize is carried out, is deferred until the node has the capacity, or is infeasible. Deferred ones are tried again when a
pod leaves the node or takes less, and when the node grows: first those of pods with the highest priority, then the oldest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.objects.resource_names import PODS
from scheduler.objects.v1 import ContainerStatus, PodCondition
from scheduler.tools.simulator.node_agents.kubelet import pending_resize
from scheduler.tools.simulator.node_agents.pod_status import DEFERRED, INFEASIBLE, RESIZE_PENDING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Container

    Containers = tuple[Container, ...]

_COMPLETED: Final = "Completed"


class Pods(Protocol):
    """The pods and nodes of a cluster.

    Attributes:
        nodes: name -> node.
    """

    nodes: dict[str, NodeObject]

    def pods_on(self, node_name: str) -> Iterable[PodInfo]:
        """Return the pods that are bound to a node."""
        ...

    def resized(self, pod: PodInfo, containers: Containers, **status: Any) -> PodInfo:
        """Return a new version of a pod with other requests of its containers, and another status."""
        ...

    def show(self, known: PodInfo | None, pod: PodInfo) -> None:
        """Replace a version of a pod by the next one, and notify the scheduler; None means no pod."""
        ...


class Resizes:
    """The resizes of the pods of a cluster.

    The cluster keeps no container statuses of pods on nodes, so what is allocated to a pod is kept here.
    """

    def __init__(self, cluster: Pods, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster, self._loop = cluster, loop
        self._created: dict[str, Containers] = {}  # uid of a resized pod -> its containers before all resizes
        # uid of a pod with a pending resize -> its containers as they run
        self._allocated: dict[str, Containers] = {}
        self._reasons: dict[str, str] = {}  # uid of such a pod -> Deferred or Infeasible
        self._deferred: dict[str, dict[str, None]] = {}  # node name -> uids, the oldest first
        self._completed = 0

    def counts(self) -> dict[str, int]:
        """Return the number of resizes that were carried out, and of pods whose resize is pending, by reason."""
        pending = Counter(self._reasons.values())
        found = {_COMPLETED: self._completed, **{each: pending[each] for each in (DEFERRED, INFEASIBLE)}}
        return {name: number for name, number in found.items() if number}

    def as_created(self, pod: PodInfo) -> PodInfo:
        """Return a pod as its owner creates it again: without its resizes."""
        created = self._created.get(pod.uid)
        return pod if created is None else self._cluster.resized(pod, created, container_statuses=())

    def resize(self, pod: PodInfo, containers: Containers) -> None:
        """Give a pod other requests; a pod without a node is placed with them."""
        before = pod.pod.spec.containers
        self._created.setdefault(pod.uid, before)
        if not pod.node_name:
            self._cluster.show(pod, self._cluster.resized(pod, containers))
            return
        self._allocated.setdefault(pod.uid, before)
        self._answer(pod, containers)

    def gone(self, pod: PodInfo) -> None:
        """Forget a pod that was removed, and try the deferred resizes of its node."""
        for known in (self._created, self._allocated, self._reasons, self._deferred.get(pod.node_name, {})):
            known.pop(pod.uid, None)
        self.retry(pod.node_name)

    def retry(self, node_name: str) -> None:
        """Try the deferred resizes of a node after the present change."""
        if self._deferred.get(node_name):
            self._loop.call_soon(self._try_deferred, node_name)

    def _try_deferred(self, node_name: str) -> None:
        pods = {pod.uid: pod for pod in self._cluster.pods_on(node_name)}
        for uid in sorted(self._deferred[node_name], key=lambda uid: -pods[uid].priority):
            if not pods[uid].is_terminating:
                self._answer(pods[uid], pods[uid].pod.spec.containers)

    def _answer(self, pod: PodInfo, containers: Containers) -> None:
        """Carry out the resize of a pod, or report why it is pending; report nothing again."""
        uid, node = pod.uid, self._cluster.nodes.get(pod.node_name)
        if node is None:  # there is no kubelet
            return
        kept = tuple(each for each in pod.pod.status.conditions if each.type != RESIZE_PENDING)
        asked = self._cluster.resized(pod, containers, container_statuses=(), conditions=kept)
        pending = pending_resize({**asked.resources.requests, PODS: 1}, node, self._used_by_others(pod))
        before, deferred = self._reasons.pop(uid, ""), self._deferred.setdefault(pod.node_name, {})
        if pending is None:
            deferred.pop(uid, None)
            self._completed += containers != self._allocated.pop(uid)
            self._cluster.show(pod, asked)
            self.retry(pod.node_name)
            return
        self._reasons[uid] = pending.reason
        if pending.reason == DEFERRED:
            deferred[uid] = None
        else:
            deferred.pop(uid, None)
        if before == pending.reason and containers == pod.pod.spec.containers:
            return
        condition = PodCondition(RESIZE_PENDING, "True", pending.reason, pending.message)
        statuses = tuple(
            ContainerStatus(each.name, each.resources.requests, each.resources)
            for each in self._allocated[uid]
        )
        waiting = self._cluster.resized(
            pod, containers, container_statuses=statuses, conditions=(*kept, condition)
        )
        self._cluster.show(pod, waiting)

    def _used_by_others(self, pod: PodInfo) -> Mapping[str, int]:
        """Return the sum of what is allocated to the other pods of a pod's node."""
        used = Counter[str]()
        for other in self._cluster.pods_on(pod.node_name):
            if other.uid != pod.uid:
                used.update({**other.resources.taken, PODS: 1})
                used.subtract(other.held_for_resize)
        return used
