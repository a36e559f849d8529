"""Whose turn it is: what has waited too long is overtaken by nobody younger.

Where its queue's share is in the way, younger pods of its queue, of no higher priority, wait behind it, and its queue may
go beyond its share by this one pod. Where it is within its share and no node has room, one node is held for it: pods
of queues that began to wait later go elsewhere, so that it has its room once enough of those there have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from plugins.fair_queues.ledger import Pending
    from scheduler.framework import Clock, QueuedPods
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot


@dataclass(frozen=True, slots=True)
class Held:
    """A node that is held for a pod."""

    pod: PodInfo
    node: str
    since: float


class Turns:
    """Knows who has waited for how long, whom a queue's share kept back, and which node is held for whom.

    Args:
        clock: the time.
        queued: when pods were tried first.
        pending: who waits.
        longest_wait_seconds: after which a pod is overdue.

    Attributes:
        kept_back: the pods that a queue's share, or somebody's turn, kept back when they were tried last.
        held: leaf -> the node that is held for a pod of it.
        sent_elsewhere: pods for which a held node was left out, and no other was found.
    """

    def __init__(
        self, clock: Clock, queued: QueuedPods, pending: Pending, longest_wait_seconds: float
    ) -> None:
        self._clock, self._queued, self._pending = clock, queued, pending
        self._longest = longest_wait_seconds
        self.kept_back: set[str] = set()
        self.held: dict[str, Held] = {}
        self.sent_elsewhere: set[str] = set()
        self._names: tuple[object, frozenset[str]] = (None, frozenset())

    def since(self, pod: PodInfo) -> float:
        """Return when a pod began to wait, by the monotonic clock; now, if it was never tried."""
        found = self._queued.get(pod.uid)
        began = None if found is None else found.initial_attempt_timestamp
        return self._clock.monotonic() if began is None else began

    def waited_seconds(self, pod: PodInfo) -> float:
        """Return for how long a pod has waited."""
        return self._clock.monotonic() - self.since(pod)

    def is_overdue(self, pod: PodInfo) -> bool:
        """Whether a pod has waited for longer than it should."""
        return self.waited_seconds(pod) > self._longest

    def ahead_of(self, pod: PodInfo, leaf: str) -> PodInfo | None:
        """Return the overdue pod of the same queue that a pod must not overtake; None if it may go on."""
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

    def hold(self, pod: PodInfo, leaf: str, rows: Rows, snapshot: Snapshot) -> None:
        """Hold a node for an overdue pod, unless one is: that which lacks the least of what the pod asks for."""
        known = self.held.get(leaf)
        if known is not None and known.pod.uid != pod.uid and self._waits(known.pod):
            return  # one at a time
        taken = {held.node for name, held in self.held.items() if name != leaf}
        lacking = np.zeros(snapshot.n_nodes)
        for resource, amount in pod.resources.requests.items():
            allocatable = snapshot.allocatable[resource]
            free = allocatable - snapshot.requested[resource]
            missing = np.maximum(amount - free, 0) / np.maximum(allocatable, 1)
            lacking = np.where(amount > allocatable, np.inf, np.maximum(lacking, missing))
        if (
            known is not None
            and known.pod.uid == pod.uid
            and snapshot.row_of(known.node) in set(rows.tolist())
        ):
            return
        self.held.pop(leaf, None)
        for row in rows[np.argsort(lacking[rows], kind="stable")].tolist():
            if np.isfinite(lacking[row]) and snapshot.name_of(row) not in taken:
                self.held[leaf] = Held(pod, snapshot.name_of(row), self.since(pod))
                return

    def release(self, uid: str) -> None:
        """Hold nothing for a pod any more."""
        for leaf, held in list(self.held.items()):
            if held.pod.uid == uid:
                del self.held[leaf]

    def left_to(self, pod: PodInfo, leaf: str, snapshot: Snapshot) -> frozenset[str] | None:
        """Return the nodes that a pod may go to; None for all."""
        began = self.since(pod) if self.held else 0.0
        closed = {
            held.node
            for name, held in self.held.items()
            if held.pod.uid != pod.uid
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
        """Let go of who waits no longer; whether a node is free again by that."""
        self.kept_back = {uid for uid in self.kept_back if uid in self._pending}
        gone = [leaf for leaf, held in self.held.items() if not self._waits(held.pod)]
        for leaf in gone:
            del self.held[leaf]
        return bool(gone)

    def _waits(self, pod: PodInfo) -> bool:
        return pod.uid in self._pending
