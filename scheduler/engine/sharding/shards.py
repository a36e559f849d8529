"""The pods and nodes that belong to this replica, if several replicas place pods.

A pod belongs to the replica that uses the bucket of its key, and a node to the one that uses the bucket of its name. The replica
of a pod decides about it on all nodes, and prefers its own. If it chooses a node of another replica, it passes the pod on: it
nominates the pod to that node, with the reason PASSED_ON in the condition PodScheduled. The replica of the node binds the pod, or
removes the nomination if the pod does not fit there any more. So one replica alone decides about pods that count each other, and
one replica alone adds pods to a node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.sharding.buckets import BUCKETS, NodeBuckets, bucket_of, key_of, wanted_owners
from scheduler.framework.reasons import NODE_CHANGED, WAITING_FOR_GROUP, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Snapshot, UInt16s

PASSED_ON: Final = "PassedOn"
"""The reason of the condition PodScheduled while the replica of the nominated node is to bind the pod."""
SHARDING: Final = "Sharding"
"""Holds a pod, as plugins do at Permit, while another replica is to bind it."""
PASSED_ON_SECONDS: Final = 900.0
"""Maximum time for which a pod is held; then it is decided about again."""

RETURNED: Final = Reason(
    "the node changed before the replica to which it belongs could bind the pod", NODE_CHANGED
)
"""The reason of a pod that was returned."""
WAITS_FOR_NODES: Final = Reason(
    "the pod group needs the nodes of several replicas, and waits until one of them has all",
    WAITING_FOR_GROUP,
)
"""The reason of the pods of a gang that is not passed on for now."""
UNANSWERED_SECONDS: Final = 6.0
"""After this time a nomination without an answer was written or discarded."""


def is_passed_on(pod: PodInfo) -> bool:
    """Return whether the replica of the nominated node is to bind a pod."""
    status = pod.pod.status
    return bool(status.nominated_node_name) and any(
        condition.type == "PodScheduled" and condition.reason == PASSED_ON for condition in status.conditions
    )


class Shards(ABC):
    """The division of pods and nodes among replicas."""

    def __init__(self, has_quota: Callable[[PodInfo], bool]) -> None:
        self._has_quota = has_quota
        self._node_buckets = NodeBuckets()

    def bucket_of_pod(self, pod: PodInfo) -> int:
        """Return the bucket of a pod's key."""
        return bucket_of(key_of(pod, has_quota=self._has_quota(pod)))

    @abstractmethod
    def preferred(self, pod: PodInfo, snapshot: Snapshot) -> Bools:
        """Return bool (n_nodes,), the nodes to prefer for a pod."""

    @abstractmethod
    def passes_on(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether a pod that is assumed on a node must be passed on."""

    def nominated(self, uid: str, version: int) -> None:
        """Note the version in which a pod that is passed on has its nomination."""

    def is_returned(self, newest: PodInfo, node_name: str) -> bool:
        """Return whether the replica of a node returned a pod that was passed on: the nomination is not there any more."""
        return False

    def takes(self, pod: PodInfo) -> bool:
        """Return whether a pending pod is in the queue of this replica."""
        return True

    def decides(self, pod: PodInfo) -> bool:
        """Return whether this replica chooses the node of a pod; another one only binds it to its nominated node."""
        return True

    def may_bind(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether the Binding of an earlier decision may be sent."""
        return True

    def is_to_wait(self, gang: str) -> bool:
        """Return whether a gang on nodes of several replicas waits for one replica with all nodes, and is not passed on.

        Args:
            gang: the `namespace/name` of the group.
        """
        return False

    def tried(self, gang: str) -> None:
        """Note the end of an attempt at a gang."""

    def owner_of(self, pod: PodInfo) -> str:
        """Return the name of the replica that a pod belongs to; "" for none."""
        return ""

    def owner_of_node(self, name: str) -> str:
        """Return the name of the replica that a node belongs to; "" for none."""
        return ""

    def unanswered(self, pod: PodInfo, node_name: str) -> None:
        """Note that a Binding or a nomination was sent, and may still have an effect, because it has no answer."""


class SimulatedShards(Shards):
    """Replicas whose owners of buckets do not change, all in one process.

    Args:
        members: the names of the replicas.
    """

    def __init__(
        self, members: Collection[str], has_quota: Callable[[PodInfo], bool] = lambda _: False
    ) -> None:
        super().__init__(has_quota)
        places = {name: place for place, name in enumerate(members)}
        self._owners = np.array([places[name] for name in wanted_owners(members)], dtype=np.uint16)

    def preferred(self, pod: PodInfo, snapshot: Snapshot) -> Bools:
        owner = self._owners[self.bucket_of_pod(pod)]
        found: Bools = self._owners[self._node_buckets.of(snapshot)] == owner
        return found

    def passes_on(self, pod: PodInfo, node_name: str) -> bool:
        return False

    def are_of_two(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether a pod and a node belong to different replicas."""
        return bool(self._owners[self.bucket_of_pod(pod)] != self._owners[bucket_of(node_name)])


class OwnShard(Shards):
    """The pods and nodes of this replica; none before the first `use`.

    Attributes:
        note_unanswered: receives the buckets of writes that may still have an effect.
        owner: returns the name of the replica that a bucket is reserved for; "" for none.
        asks_for_all: see `is_to_wait`.
        note_tried: receives a gang that was tried while this replica used all buckets.
    """

    def __init__(self, has_quota: Callable[[PodInfo], bool]) -> None:
        super().__init__(has_quota)
        self.note_unanswered: Callable[[Collection[int]], None] = lambda _: None
        self.owner: Callable[[int], str] = lambda _: ""
        self.asks_for_all: Callable[[str], bool] = lambda _: False
        self.note_tried: Callable[[str], None] = lambda _: None
        self._in_use: frozenset[int] = frozenset()
        self._held: frozenset[int] = frozenset()  # in use, or for earlier decisions
        # The buckets of nodes, and which of these are in use.
        self._preferred: tuple[UInt16s, Bools] | None = None
        # uid of a pod that is assumed on a node of another replica -> the version with its nomination; infinity before it
        self._passed_on: dict[str, float] = {}

    @property
    def in_use(self) -> frozenset[int]:
        """The buckets in use."""
        return self._in_use

    def use(self, buckets: Iterable[int], releasing: Iterable[int] = ()) -> None:
        """Use these buckets from now on.

        Args:
            buckets: the buckets.
            releasing: buckets for which earlier decisions are still carried out.
        """
        self._in_use = frozenset(buckets)
        self._held = self._in_use.union(releasing)
        self._preferred = None

    def preferred(self, pod: PodInfo, snapshot: Snapshot) -> Bools:
        buckets = self._node_buckets.of(snapshot)
        if self._preferred is None or self._preferred[0] is not buckets:
            self._preferred = buckets, np.isin(buckets, list(self._in_use))
        return self._preferred[1]

    def passes_on(self, pod: PodInfo, node_name: str) -> bool:
        if self.owns(node_name):
            self._passed_on.pop(pod.uid, None)
            return False
        self._passed_on[pod.uid] = inf
        return True

    def nominated(self, uid: str, version: int) -> None:
        self._passed_on[uid] = version

    def is_to_wait(self, gang: str) -> bool:
        return self.asks_for_all(gang)

    def tried(self, gang: str) -> None:
        if len(self._in_use) == BUCKETS:
            self.note_tried(gang)

    def is_returned(self, newest: PodInfo, node_name: str) -> bool:
        version = self._passed_on.get(newest.uid, inf)
        is_nominated = newest.pod.status.nominated_node_name == node_name
        return not (is_nominated or newest.node_name) and int(newest.resource_version or 0) >= version

    def takes(self, pod: PodInfo) -> bool:
        return self.decides(pod) or (is_passed_on(pod) and self.owns(pod.pod.status.nominated_node_name))

    def decides(self, pod: PodInfo) -> bool:
        if pod.node_name:  # its resize waits for capacity of its node
            return self.owns(pod.node_name)
        return self.bucket_of_pod(pod) in self._in_use

    def owns(self, node_name: str) -> bool:
        """Return whether a node belongs to this replica."""
        return bucket_of(node_name) in self._in_use

    def owner_of(self, pod: PodInfo) -> str:
        return self.owner(self.bucket_of_pod(pod))

    def owner_of_node(self, name: str) -> str:
        return self.owner(bucket_of(name))

    def may_bind(self, pod: PodInfo, node_name: str) -> bool:
        is_held = bucket_of(node_name) in self._held
        return is_held and (is_passed_on(pod) or self.bucket_of_pod(pod) in self._held)

    def unanswered(self, pod: PodInfo, node_name: str) -> None:
        self.note_unanswered((self.bucket_of_pod(pod), bucket_of(node_name)))

    def under_way(self, placed: Iterable[PodInfo]) -> set[int]:
        """Return the buckets that must not be released.

        Args:
            placed: the assumed pods, and those of running bindings.
        """
        pods = list(placed)
        there = {pod.uid for pod in pods}
        self._passed_on = {uid: version for uid, version in self._passed_on.items() if uid in there}
        nodes = {bucket_of(pod.node_name) for pod in pods if pod.uid not in self._passed_on}
        return nodes | {self.bucket_of_pod(pod) for pod in pods}
