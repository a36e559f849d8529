"""The order of waiting pods: no younger pod overtakes an overdue pod.

If an overdue pod's queue has reached its share, younger pods of the queue with no higher priority wait behind it, and the
queue may exceed its share by this one pod, or by the minimum number of pods of its gang. If the queue is within its share
and no node has enough free capacity, one node is reserved for the pod: pods of queues that began to wait later use other
nodes, so that the pod fits once enough pods on its node have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.objects.pod_group import GroupKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugins.quotas.ledger import PendingRequests
    from scheduler.framework import Clock, PodGroup, QueuedPods
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot


@dataclass(frozen=True, slots=True)
class Held:
    """A node that is reserved for a pod.

    Attributes:
        group: the group that the pod was tried with, if any.
    """

    pod: PodInfo
    node: str
    since: float
    group: GroupKey | None = None

    def is_for(self, pod: PodInfo, group: PodGroup | None) -> bool:
        """Return whether it is reserved for a pod, or for the group that the pod is tried with."""
        return self.pod.uid == pod.uid or (group is not None and self.group == group.key)


class WaitingOrder:
    """Knows how long pods have waited, which pods a queue's share kept back, and which nodes are reserved.

    Args:
        clock: the clock.
        queued: when pods were tried first.
        pending: the pending pods.
        longest_wait_seconds: the time after which a pod is overdue.

    Attributes:
        kept_back: the pods that a queue's share, or an overdue pod, kept back in their last attempt.
        held: leaf -> uid -> the node reserved for a pod of it: for one pod at a time, or for the members of one group.
        sent_elsewhere: pods that were excluded from a reserved node and fit no other one.
    """

    def __init__(
        self, clock: Clock, queued: QueuedPods, pending: PendingRequests, longest_wait_seconds: float
    ) -> None:
        self._clock, self._queued, self._pending = clock, queued, pending
        self._longest = longest_wait_seconds
        self.kept_back: set[str] = set()
        self.held: dict[str, dict[str, Held]] = {}
        self.sent_elsewhere: set[str] = set()
        self._names: tuple[object, frozenset[str]] = (None, frozenset())

    def since(self, pod: PodInfo) -> float:
        """Return when a pod began to wait, by the monotonic clock; now, if it was never tried."""
        found = self._queued.get(pod.uid)
        began = None if found is None else found.initial_attempt_timestamp
        return self._clock.monotonic() if began is None else began

    def waited_seconds(self, pod: PodInfo) -> float:
        """Return how long a pod has waited."""
        return self._clock.monotonic() - self.since(pod)

    def is_overdue(self, pod: PodInfo) -> bool:
        """Return whether a pod has waited longer than the limit."""
        return self.waited_seconds(pod) > self._longest

    def ahead_of(self, pod: PodInfo, leaf: str) -> PodInfo | None:
        """Return the overdue pod of the same queue that a pod may not overtake; None if there is none."""
        began = self.since(pod)
        for other in self._pending.by_queue.get(leaf, {}).values():  # the longest waiting first
            if other.uid == pod.uid or not self.is_overdue(other):
                return None
            if (
                other.uid in self.kept_back
                and other.priority >= pod.priority
                and self.since(other) < began
                and not self._pending.is_hopeless(other.uid)
            ):
                return other
        return None

    def hold(
        self, pod: PodInfo, leaf: str, rows: Rows, snapshot: Snapshot, group: PodGroup | None = None
    ) -> None:
        """Reserve a node for an overdue pod, unless it has one: the node that lacks the least of its requests.

        `group` is the group that the pod was tried with, if any.
        """
        known = self._held_with(pod, leaf, group)
        if known is None:
            return
        if pod.uid in known and snapshot.row_of(known[pod.uid].node) in set(rows.tolist()):
            return
        taken = {held.node for held in self._all() if held.pod.uid != pod.uid}
        lacking = np.zeros(snapshot.n_nodes)
        for resource, amount in pod.resources.requests.items():
            allocatable = snapshot.allocatable[resource]
            free = allocatable - snapshot.requested[resource]
            missing = np.maximum(amount - free, 0) / np.maximum(allocatable, 1)
            lacking = np.where(amount > allocatable, np.inf, np.maximum(lacking, missing))
        known.pop(pod.uid, None)
        for row in rows[np.argsort(lacking[rows], kind="stable")].tolist():
            if np.isfinite(lacking[row]) and snapshot.name_of(row) not in taken:
                known[pod.uid] = self._for(pod, snapshot.name_of(row), group)
                self.held[leaf] = known
                return

    def hold_at(self, pod: PodInfo, leaf: str, node_name: str, group: PodGroup) -> None:
        """Reserve the chosen node for an overdue member of a group whose other members found no node."""
        known = self._held_with(pod, leaf, group)
        if known is not None:
            known[pod.uid] = self._for(pod, node_name, group)
            self.held[leaf] = known

    def _for(self, pod: PodInfo, node_name: str, group: PodGroup | None) -> Held:
        return Held(pod, node_name, self.since(pod), None if group is None else group.key)

    def _held_with(self, pod: PodInfo, leaf: str, group: PodGroup | None) -> dict[str, Held] | None:
        """Return the reservations for a pod and its group; None if its queue may have no further one.

        A queue has one reserved node at a time, or for one gang the minimum number of its pods. Only the group that the pods are
        tried with counts: any pod may carry the label or annotation of one.
        """
        known = {uid: held for uid, held in self.held.get(leaf, {}).items() if self._waits(held.pod)}
        others = len(known.keys() - {pod.uid})
        if others and (group is None or others >= group.min_count):
            return None
        return known if all(held.is_for(pod, group) for held in known.values()) else None

    def release(self, uid: str) -> None:
        """Remove the reservation of a pod."""
        for leaf, held in list(self.held.items()):
            if held.pop(uid, None) is not None and not held:
                del self.held[leaf]

    def _all(self) -> Iterator[Held]:
        return (held for of_leaf in self.held.values() for held in of_leaf.values())

    def left_to(
        self, pod: PodInfo, leaf: str, snapshot: Snapshot, group: PodGroup | None = None
    ) -> frozenset[str] | None:
        """Return the nodes that a pod may use; None for all. `group` is the group that it is tried with, if any."""
        began = self.since(pod) if self.held else 0.0
        closed = {
            held.node
            for name, of_leaf in self.held.items()
            for held in of_leaf.values()
            if not held.is_for(pod, group)
            and held.since < began
            and not (name == leaf and pod.priority > held.pod.priority)
        }
        if not closed:
            return None
        changes = snapshot.node_changes
        key = None if changes is None else (changes, changes.end, frozenset(closed))
        if key is None or self._names[0] != key:
            self._names = key, frozenset(snapshot.names) - closed
        return self._names[1]

    def forget_those_gone(self) -> bool:
        """Remove pods that no longer wait; return whether a node became free by that."""
        self.kept_back = {uid for uid in self.kept_back if uid in self._pending}
        gone = [held.pod.uid for held in self._all() if not self._waits(held.pod)]
        for uid in gone:
            self.release(uid)
        return bool(gone)

    def saved(self) -> dict[str, Any]:
        """Return the kept back pods and the reservations, as JSON values."""
        held = [
            [leaf, each.pod.uid, each.node, each.since, each.group]
            for leaf, its in self.held.items()
            for each in its.values()
        ]
        return {
            "keptBack": sorted(self.kept_back),
            "sentElsewhere": sorted(self.sent_elsewhere),
            "held": held,
        }

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Take over what `saved` returned."""
        self.kept_back, self.sent_elsewhere = set(saved["keptBack"]), set(saved["sentElsewhere"])
        for leaf, uid, node, since, group in saved["held"]:
            found = self._queued.get(uid)
            if found is not None:
                reserved = Held(found.pod, node, since, None if group is None else GroupKey(*group))
                self.held.setdefault(leaf, {})[uid] = reserved

    def _waits(self, pod: PodInfo) -> bool:
        return pod.uid in self._pending
