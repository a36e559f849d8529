"""Who has what: what the pods of each queue take, what waits for more, and what each queue deserves of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plugins.capacity_scheduling.quotas import add
from plugins.capacity_scheduling.usage import Usage
from plugins.fair_queues.queues import QUEUES, Fault, Queues, Tree
from plugins.fair_queues.shares import FairShares
from scheduler.objects.resource_names import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.framework import QueuedPods
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Snapshot


_NOTHING: Mapping[str, int] = {}
_LEAVING = " leaving"
"""Behind a queue's name: what of it pods take that are terminating. No queue has a space in its name."""


def _stays(pod: PodInfo, snapshot: Snapshot) -> bool:
    """Whether a pod is on its node, and nothing shows yet that it leaves."""
    row = snapshot.row_of(pod.node_name)
    there = () if row is None else snapshot.pods_on(row)
    return any(each.uid == pod.uid and not each.is_terminating for each in there)


def _account_of(tree: Tree) -> Callable[[PodInfo], str]:
    return lambda pod: tree.queue_of(pod) + (_LEAVING if pod.is_terminating else "")


@dataclass(frozen=True, slots=True)
class Standing:
    """How queues stand at one moment.

    Attributes:
        tree: the queues.
        resources: resource -> column, of those that nodes have.
        used: (n_queues, n_resources), what their pods take, those of queues below included.
        leaving: likewise, what of it is on its way out.
        deserved: likewise, what fairness gives them.
        limit: likewise, their max.
        whole: (n_resources,), what all nodes have.
    """

    tree: Tree
    resources: Mapping[str, int]
    used: Int64s
    leaving: Int64s
    deserved: Int64s
    limit: Int64s
    whole: Int64s

    def amounts(self, requests: Mapping[str, int]) -> Int64s:
        """Return (n_resources,), without what no node has."""
        found = np.zeros(len(self.resources), dtype=np.int64)
        for name, amount in requests.items():
            if name in self.resources:
                found[self.resources[name]] = amount
        return found

    def share(self, amounts: Int64s) -> float:
        """Return the dominant share of an amount: the greatest part of what there is, of any resource."""
        return float((amounts / np.maximum(self.whole, 1)).max(initial=0.0))


class Pending:
    """The pods that wait, by queue, the longest waiting first.

    Attributes:
        by_queue: leaf -> uid -> pod.
        demand: leaf -> resource -> what they ask for together.
        waits_since: leaf -> when the one that waits longest began to, by the monotonic clock, when it was last swept;
            those that could run nowhere are left out.
    """

    def __init__(self) -> None:
        self.waits_since: dict[str, float] = {}
        self.by_queue: dict[str, dict[str, PodInfo]] = {}
        self.demand: dict[str, dict[str, int]] = {}
        self._queue_of: dict[str, str] = {}
        self._tree = Tree()
        self._hopeless: set[str] = set()

    def __contains__(self, uid: str) -> bool:
        return uid in self._queue_of

    def __len__(self) -> int:
        return len(self._queue_of)

    def put(self, pod: PodInfo) -> None:
        """Count a pod that waits, or its new version."""
        queue = self._tree.queue_of(pod)
        if self._queue_of.get(pod.uid) == queue:
            known = self.by_queue[queue][pod.uid]
            if known is not pod and pod.uid not in self._hopeless:
                add(self.demand[queue], known.resources.requests, -1)
                add(self.demand[queue], pod.resources.requests)
            self.by_queue[queue][pod.uid] = pod  # keeps its place
            return
        self.drop(pod.uid)
        self._queue_of[pod.uid] = queue
        self.by_queue.setdefault(queue, {})[pod.uid] = pod
        add(self.demand.setdefault(queue, {}), pod.resources.requests)

    def drop(self, uid: str) -> None:
        """Stop counting a pod."""
        self.hope(uid)
        queue = self._queue_of.pop(uid, None)
        if queue is not None:
            pod = self.by_queue[queue].pop(uid)
            add(self.demand[queue], pod.resources.requests, -1)

    def give_up(self, uid: str) -> None:
        """Count nothing for a pod that could run nowhere, whoever left: nobody shall keep room for it."""
        if uid in self._queue_of and uid not in self._hopeless:
            self._hopeless.add(uid)
            queue = self._queue_of[uid]
            add(self.demand[queue], self.by_queue[queue][uid].resources.requests, -1)

    def hope(self, uid: str) -> None:
        """Count such a pod again: it is tried once more."""
        if uid in self._hopeless:
            self._hopeless.remove(uid)
            queue = self._queue_of[uid]
            add(self.demand[queue], self.by_queue[queue][uid].resources.requests)

    def is_hopeless(self, uid: str) -> bool:
        """Whether a pod could run nowhere when it was tried last."""
        return uid in self._hopeless

    def follow(self, tree: Tree) -> None:
        """File all pods anew if the queues are others."""
        if tree is self._tree:
            return
        self._tree = tree
        pods = [pod for queue in self.by_queue.values() for pod in queue.values()]
        hopeless, self._hopeless = self._hopeless, set()
        self.by_queue, self.demand, self._queue_of = {}, {}, {}
        for pod in pods:
            self.put(pod)
        for uid in hopeless:
            self.give_up(uid)

    def sweep(self, queued: QueuedPods, plugin: str) -> None:
        """Let go of pods that wait no longer, or for another gate than a plugin's, and take over new versions."""
        self.waits_since = {}
        for uid in list(self._queue_of):
            found = queued.get(uid)
            if found is None or found.gating_plugin not in {"", plugin}:
                self.drop(uid)
                continue
            self.put(found.pod)
            began, leaf = found.initial_attempt_timestamp, self._queue_of[uid]
            if leaf and began is not None and uid not in self._hopeless:
                self.waits_since[leaf] = min(began, self.waits_since.get(leaf, began))


class Ledger:
    """Keeps the standing of queues up to date with the cluster, for one plugin.

    Attributes:
        pending: who waits.
        told: uid -> pods that are told to leave in the background, whether or not that shows yet.
    """

    def __init__(self) -> None:
        self.told: dict[str, PodInfo] = {}
        self.pending = Pending()
        self._queues = Queues()
        self._counted_for = Tree()
        self._usage = Usage(_account_of(self._counted_for))
        self._shares = FairShares(Tree(), ())
        self._made_for: tuple[Tree, tuple[str, ...]] | None = None

    @property
    def wrong(self) -> Mapping[str, Fault]:
        """What is wrong with queues, by name."""
        return self._queues.wrong

    def standing(self, snapshot: Snapshot, also: PodInfo | None = None) -> Standing:
        """Return how queues stand in a snapshot; a pod that waits unknown to us may be counted as well."""
        self._queues.look_at(snapshot.objects(QUEUES))
        tree = self._queues.tree
        self.pending.follow(tree)
        if snapshot.changes is None:
            usage = Usage.of(snapshot, {}, _account_of(tree))
        else:
            if tree is not self._counted_for:
                self._usage, self._counted_for = Usage(_account_of(tree)), tree
            usage = self._usage
            usage.follow(snapshot, snapshot.changes, {})
        names = tuple(sorted(snapshot.resources - {PODS}))
        if self._made_for != (tree, names):
            self._shares, self._made_for = FairShares(tree, names), (tree, names)
        whole = np.array([int(snapshot.allocatable[name].sum()) for name in names], dtype=np.int64)
        used, leaving, demand = (np.zeros((len(tree), len(names)), dtype=np.int64) for _ in range(3))
        for leaf, path in tree.paths.items():  # a loop over queues
            taken = usage.by_namespace.get(leaf, _NOTHING)
            goes = usage.by_namespace.get(leaf + _LEAVING, _NOTHING)
            leaving[path[0]] = [goes.get(name, 0) for name in names]
            used[path[0]] = [taken.get(name, 0) for name in names] + leaving[path[0]]
            waits = self.pending.demand.get(leaf, _NOTHING)
            demand[path[0]] = used[path[0]] + [waits.get(name, 0) for name in names]
        if also is not None and also.uid not in self.pending and (leaf := tree.queue_of(also)):
            asked = also.resources.requests
            demand[tree.place(leaf)] += [asked.get(name, 0) for name in names]
        for pod in self.told.values():
            if _stays(pod, snapshot) and (leaf := tree.queue_of(pod)):
                takes = pod.resources.taken
                leaving[tree.place(leaf)] += [takes.get(name, 0) for name in names]
        for place in range(len(tree) - 1, -1, -1):  # children before their parents
            if tree.parents[place] >= 0:
                used[tree.parents[place]] += used[place]
                leaving[tree.parents[place]] += leaving[place]
        free_of_queues = [usage.by_namespace.get(name, _NOTHING) for name in ("", _LEAVING)]
        others = np.array(
            [sum(taken.get(name, 0) for taken in free_of_queues) for name in names], dtype=np.int64
        )
        deserved = self._shares.deserved(demand, np.maximum(whole - others, 0), whole)
        columns = {name: column for column, name in enumerate(names)}
        return Standing(tree, columns, used, leaving, deserved, self._shares.limit, whole)
