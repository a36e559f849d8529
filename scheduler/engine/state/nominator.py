"""Nominated pods and their nodes: the capacity that preemption freed is kept for them."""

from __future__ import annotations

from bisect import bisect_left, insort
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.objects.caches import BoundedDict
from scheduler.snapshot import NominatedOthers, NominatedPods

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import ChangeLog, Snapshot

_NOBODY: Mapping[int, Sequence[PodInfo]] = MappingProxyType({})
_NO_GROUPS: frozenset[GroupKey] = frozenset()
_MOST_VIEWS = 16
"""Maximum number of stored views; the least recently used view is dropped first."""
_MOST_CHANGED = 1024
"""Maximum number of changed nodes that a view has not applied; a view with more changed nodes is dropped."""


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
        self._priorities: list[int] = []  # of all nominated pods, ascending
        self._groups: dict[GroupKey, int] = {}  # group -> number of its nominated pods
        self._views: BoundedDict[tuple[int, frozenset[GroupKey]], _View] = BoundedDict(_MOST_VIEWS)

    def add(self, pod: PodInfo, node_name: str | None = None) -> None:
        """Nominate a pod, replacing an earlier nomination.

        A pod with a node has no nomination, because the cluster counts it there.

        Args:
            pod: its newest version.
            node_name: the node; "" removes the nomination; None takes it from the pod's status.
        """
        if pod.node_name:
            node_name = ""
        elif node_name is None:
            node_name = pod.pod.status.nominated_node_name
        if self._nodes.get(pod.uid, "") == node_name and self._pods.get(node_name, {}).get(pod.uid) is pod:
            return
        self.delete(pod.uid)
        if node_name:
            self._nodes[pod.uid] = node_name
            self._pods.setdefault(node_name, {})[pod.uid] = pod
            insort(self._priorities, pod.priority)
            if pod.group is not None:
                self._groups[pod.group] = self._groups.get(pod.group, 0) + 1
            self._changed(pod, node_name)

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
        pod = pods.pop(uid)
        if not pods:
            del self._pods[node_name]
        del self._priorities[bisect_left(self._priorities, pod.priority)]
        if pod.group is not None:
            self._groups[pod.group] -= 1
            if not self._groups[pod.group]:
                del self._groups[pod.group]
        self._changed(pod, node_name)

    def _changed(self, pod: PodInfo, node_name: str) -> None:
        self.generation += 1
        for key, view in list(self._views.items()):
            if pod.priority >= view.priority:
                view.changed.add(node_name)
                if len(view.changed) > _MOST_CHANGED:
                    del self._views[key]

    def others(
        self, pod: PodInfo, snapshot: Snapshot, own_group: PodGroup | None = None
    ) -> Mapping[int, Sequence[PodInfo]]:
        """Return row -> the other pods nominated to that node whose priority is at least the pod's.

        The cost is linear in the changes since the last call for this priority, or in the nominations at the first call.

        Args:
            pod: the pod to place.
            snapshot: the cluster, or some of its rows.
            own_group: the group of the attempt, or the root of its tree; its pods are left out, because they are decided
                together with the pod.
        """
        place = bisect_left(self._priorities, pod.priority)
        if place == len(self._priorities):
            return _NOBODY
        # All pods between two priorities of nominated pods have the same view.
        own = _NO_GROUPS if own_group is None else own_group.leaf_keys.intersection(self._groups)
        key = self._priorities[place], own
        if snapshot.changes is None:
            view = _View(self, *key)
            view.read_all(snapshot)
        else:
            view = self._views.get(key) or self._views.setdefault(key, _View(self, *key))
            self._views.move_to_end(key)
            view.follow(snapshot, snapshot.changes)
        row = snapshot.row_of(self._nodes.get(pod.uid, ""))
        is_counted = row is not None and pod.uid in view.pods.by_row.get(row, {})
        return NominatedOthers(view.pods, row if is_counted else None, pod.uid)

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
        priorities = sorted(pod.priority for pod in self.pods())
        assert priorities == self._priorities, f"{priorities} of the pods, {self._priorities} are kept"
        astray = [uid for pods in self._pods.values() for uid, pod in pods.items() if pod.uid != uid]
        assert not astray, f"pods {astray} are kept under another's uid"


class _View:
    """The nominated pods of at least one priority, by row of the cluster, without the pods of some groups.

    Attributes:
        priority: the lowest priority.
        changed: the names of the nodes whose nominations changed since the last `follow`.
        pods: the nominated pods at the last `follow`.
    """

    def __init__(self, nominator: Nominator, priority: int, left_out: frozenset[GroupKey]) -> None:
        self.priority = priority
        self.changed: set[str] = set()
        self.pods = NominatedPods(0)
        self._nominator, self._left_out = nominator, left_out
        self._log: ChangeLog | None = None
        self._seen = 0

    def follow(self, snapshot: Snapshot, changes: ChangeLog) -> None:
        """Apply the changes of nominations and of nodes since the last call; `changes` is the log of the snapshot."""
        is_same = self._log is changes
        if is_same and self._seen == changes.end and not self.changed:
            return
        rows = changes.since(self._seen) if is_same else None
        self._log, self._seen = changes, changes.end
        if rows is None:
            self.read_all(snapshot)
            return
        if self.pods.n_nodes != snapshot.n_nodes:
            self.pods.resize(snapshot.n_nodes)
        nominated = (snapshot.row_of(name) for name in self.changed)
        for row in {*rows, *(row for row in nominated if row is not None)}:
            if row < snapshot.n_nodes:
                self.pods.set(row, self._pods_for(snapshot.name_of(row)))
                self.pods.note(row)
        self.changed.clear()

    def read_all(self, snapshot: Snapshot) -> None:
        """Read all nominations."""
        self.pods = NominatedPods(snapshot.n_nodes)
        for name in self._nominator.nominated_nodes:
            row = snapshot.row_of(name)
            if row is not None:
                self.pods.set(row, self._pods_for(name))
        self.changed.clear()

    def _pods_for(self, node_name: str) -> dict[str, PodInfo]:
        return {
            pod.uid: pod
            for pod in self._nominator.nominated_pods_for_node(node_name)
            if pod.priority >= self.priority and pod.group not in self._left_out
        }
