"""Pods that preemption made room for, and the nodes where: others must leave that room alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.objects.pod import PodInfo


class Nominator:
    """Which pending pods are nominated to which nodes.

    What is noted here may be ahead of the pods' status, which is patched afterwards. Pods of other schedulers are noted as
    well, by their status.

    Attributes:
        generation: another number after every change.

    Source:
        kube-scheduler v1.36, backend/queue/nominator.go.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._nodes: dict[str, str] = {}  # pod uid -> node name
        self._pods: dict[str, dict[str, PodInfo]] = {}  # node name -> pod uid -> pod

    def add(self, pod: PodInfo, node_name: str | None = None) -> None:
        """Nominate a pod, instead of what it was nominated to.

        Args:
            pod: its newest version.
            node_name: where to; "" takes the nomination back; None goes by the pod's status.
        """
        if node_name is None:
            node_name = pod.pod.status.nominated_node_name
        if self._nodes.get(pod.uid, "") == node_name and self._pods.get(node_name, {}).get(pod.uid) is pod:
            return
        self.delete(pod.uid)
        if node_name:
            self._nodes[pod.uid] = node_name
            self._pods.setdefault(node_name, {})[pod.uid] = pod
            self.generation += 1

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Take over a pod's new version.

        An update whose status names no node, before and after, says nothing: it may be older than a nomination
        that was noted here and not yet patched. Any other goes by its status.
        """
        unsaid = not old.pod.status.nominated_node_name and not new.pod.status.nominated_node_name
        self.add(new, self._nodes.get(old.uid, "") if unsaid else None)

    def delete(self, uid: str) -> None:
        """Forget a pod's nomination, if it has one."""
        node_name = self._nodes.pop(uid, None)
        if node_name is None:
            return
        pods = self._pods[node_name]
        del pods[uid]
        if not pods:
            del self._pods[node_name]
        self.generation += 1

    def node_of(self, uid: str) -> str:
        """Return where a pod is nominated to; "" for nowhere."""
        return self._nodes.get(uid, "")

    def nominated_pods_for_node(self, node_name: str) -> tuple[PodInfo, ...]:
        """Return the pods nominated to a node, by when they were."""
        return tuple(self._pods.get(node_name, {}).values())

    def pods(self) -> Iterator[PodInfo]:
        """Yield every nominated pod, as it was when that was noted; nothing may change until the last was taken."""
        return (pod for pods in self._pods.values() for pod in pods.values())

    @property
    def nominated_nodes(self) -> frozenset[str]:
        """The names of all nodes that have nominated pods."""
        return frozenset(self._pods)

    def check(self) -> None:
        """Assert what always holds.

        Raises:
            AssertionError: it does not.
        """
        by_node = {uid: node for node, pods in self._pods.items() for uid in pods}
        assert by_node == self._nodes, f"{by_node} by node, {self._nodes} by pod"
        assert all(self._pods.values()), "a node is kept without nominated pods"
        astray = [uid for pods in self._pods.values() for uid, pod in pods.items() if pod.uid != uid]
        assert not astray, f"pods {astray} are kept under another's uid"
