"""Nominated pods and their nodes: the capacity that preemption freed is kept for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.objects.pod import PodInfo


class Nominator:
    """The nominations of pending pods.

    A nomination here may be newer than the pod's status, which is patched afterwards. Nominations of other schedulers' pods
    are taken from their status.

    Attributes:
        generation: changes with every nomination.

    Source:
        kube-scheduler v1.36, backend/queue/nominator.go.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._nodes: dict[str, str] = {}  # pod uid -> node name
        self._pods: dict[str, dict[str, PodInfo]] = {}  # node name -> pod uid -> pod

    def add(self, pod: PodInfo, node_name: str | None = None) -> None:
        """Nominate a pod, replacing an earlier nomination.

        Args:
            pod: its newest version.
            node_name: the node; "" removes the nomination; None takes it from the pod's status.
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
        """Store a pod's new version.

        An update whose status names no node, before and after, is ignored: it may be older than a nomination that is stored
        here and not yet patched. Any other update is applied by its status.
        """
        unsaid = not old.pod.status.nominated_node_name and not new.pod.status.nominated_node_name
        self.add(new, self._nodes.get(old.uid, "") if unsaid else None)

    def delete(self, uid: str) -> None:
        """Remove a pod's nomination, if any."""
        node_name = self._nodes.pop(uid, None)
        if node_name is None:
            return
        pods = self._pods[node_name]
        del pods[uid]
        if not pods:
            del self._pods[node_name]
        self.generation += 1

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated to; "" if none."""
        return self._nodes.get(uid, "")

    def nominated_pods_for_node(self, node_name: str) -> tuple[PodInfo, ...]:
        """Return the pods nominated to a node, in order of nomination."""
        return tuple(self._pods.get(node_name, {}).values())

    def pods(self) -> Iterator[PodInfo]:
        """Yield every nominated pod, in its version at nomination; nothing may change during the iteration."""
        return (pod for pods in self._pods.values() for pod in pods.values())

    @property
    def nominated_nodes(self) -> frozenset[str]:
        """The names of all nodes with nominated pods."""
        return frozenset(self._pods)

    def check(self) -> None:
        """Assert the invariants.

        Raises:
            AssertionError: one does not hold.
        """
        by_node = {uid: node for node, pods in self._pods.items() for uid in pods}
        assert by_node == self._nodes, f"{by_node} by node, {self._nodes} by pod"
        assert all(self._pods.values()), "a node is kept without nominated pods"
        astray = [uid for pods in self._pods.values() for uid, pod in pods.items() if pod.uid != uid]
        assert not astray, f"pods {astray} are kept under another's uid"
