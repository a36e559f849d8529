"""Accounts of the queues: what their pods use, what pending pods request, and their fair shares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plugins.quotas.elastic_quotas import NamespaceUsage, add
from plugins.quotas.history import weights_after_use
from plugins.quotas.queues import QUEUES, Queues, Tree
from scheduler.framework import QuotaUsage
from scheduler.objects.resource_names import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from plugins.quotas.history import UsageHistory
    from scheduler.errors import FieldError
    from scheduler.framework import QueuedPods
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Snapshot

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


_CLOSE: Final = 1e-9
"""The difference, as a fraction of the total, up to which two amounts count as equal."""


def divide(room: Floats, whole: Floats, wanted: Floats, sure: Floats, weights: Floats) -> Floats:
    """Divide free capacity between siblings: first the guaranteed amounts, then by dominant shares in proportion to weight.

    All shares grow together, each in proportion to what the queue wants, until a queue has what it wants or a resource
    that it needs is exhausted. The other queues get what is left.

    Args:
        room: (n_resources,), the capacity to divide.
        whole: (n_resources,), the total of which shares are fractions; above 0 where anything is wanted.
        wanted: (n_queues, n_resources), what each queue would use.
        sure: (n_queues, n_resources), what each queue gets before others; scaled down if there is less capacity.
        weights: (n_queues,).

    Returns:
        (n_queues, n_resources), never above `wanted`, in sum never above `room`.
    """
    floor = np.minimum(sure, wanted)
    floor *= np.minimum(1.0, room / np.maximum(floor.sum(axis=0), np.maximum(room, _CLOSE)))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(wanted > 0, wanted / whole, 0.0).max(axis=1, initial=0.0)
        full = np.where(share > 0, share / weights, 0.0)  # the level at which a queue has what it wants
        rate = np.where(wanted > 0, wanted / full[:, None], 0.0)
        # The level from which it grows beyond its guaranteed amount.
        begin = np.where(rate > 0, floor / rate, 0.0)
    stop = full.copy()
    grows = full > 0
    level = 0.0
    while grows.any():
        held = np.clip(rate * stop[:, None], floor, wanted)[~grows].sum(axis=0)
        reached = _levels(room - held, floor[grows], rate[grows], begin[grows], full[grows], room * _CLOSE)
        if np.isinf(reached).all():
            break
        level = max(level, float(reached.min()))
        out = reached <= level * (1 + _CLOSE)
        needs = (rate > 0) & (begin <= level * (1 + _CLOSE)) & out
        stopped = grows & needs.any(axis=1) & (full > level)
        if not stopped.any():  # because of rounding: queues that use the exhausted resource stop
            stopped = grows & ((rate > 0) & out).any(axis=1)
        stop[stopped] = np.minimum(level, full[stopped])
        grows &= ~stopped
    found: Floats = np.clip(rate * stop[:, None], floor, wanted)
    found[stop >= full] = wanted[stop >= full]
    return found


def _levels(room: Floats, floor: Floats, rate: Floats, begin: Floats, full: Floats, slack: Floats) -> Floats:
    """Return (n_resources,): the level up to which queues may grow until each resource is exhausted; inf for never."""
    n_queues = len(full)
    levels = np.concatenate([begin, np.broadcast_to(full[:, None], begin.shape)])
    slopes = np.concatenate([rate, -rate])
    order = np.argsort(levels, axis=0, kind="stable")
    levels = np.take_along_axis(levels, order, axis=0)
    slope = np.cumsum(np.take_along_axis(slopes, order, axis=0), axis=0)
    steps = np.diff(levels, axis=0) * slope[:-1]
    totals = floor.sum(axis=0) + np.concatenate([np.zeros_like(levels[:1]), np.cumsum(steps, axis=0)])
    beyond = totals > room + slack
    reached = np.full(len(room), np.inf)
    for resource in np.flatnonzero(beyond.any(axis=0)):
        first = int(np.argmax(beyond[:, resource]))
        if first == 0:
            reached[resource] = 0.0
            continue
        before = first - 1
        left = max(0.0, room[resource] - totals[before, resource])
        reached[resource] = levels[before, resource] + left / slope[before, resource]
    assert n_queues, "a queue grows"
    return reached


class FairShares:
    """The fair shares of a tree's queues; only parts of the tree that changed are computed again.

    Args:
        tree: the queues.
        resources: the names of the columns.
        history: what the queues used before; None if it does not count.
    """

    def __init__(self, tree: Tree, resources: tuple[str, ...], history: UsageHistory | None = None) -> None:
        self._tree, self._history = tree, history
        self._weights, self._weights_version = _weights_of(tree), tree.weights_version
        shape = (len(tree), len(resources))
        self._sure = np.zeros(shape)
        self.limit: Int64s = np.full(shape, np.iinfo(np.int64).max)
        """(n_queues, n_resources), their max."""
        for amounts, column_of in ((self._sure, tree.minimums), (self.limit, tree.maximums)):
            for column, name in enumerate(resources):
                if name in column_of:
                    places, given = column_of[name]
                    amounts[places, column] = given
        self._known: dict[int, tuple[bytes, Floats]] = {}

    def deserved(self, wanted: Int64s, room: Int64s, whole: Int64s) -> Int64s:
        """Return the fair shares, (n_queues, n_resources).

        Args:
            wanted: (n_queues, n_resources), what the pods of each queue and of those below use and request, within its max.
            room: (n_resources,), the capacity for queues.
            whole: (n_resources,), the total capacity.
        """
        if self._weights_version != self._tree.weights_version:
            self._weigh()
        averages = None if self._history is None else self._history.averages_of(self._tree)
        asked, found = wanted.astype(np.float64), np.zeros(wanted.shape)
        available, all_there = room.astype(np.float64), np.maximum(whole, 1).astype(np.float64)
        for parent in sorted(self._tree.children):  # parents before their children
            children, there = self._tree.children[parent], available if parent < 0 else found[parent]
            before = None if averages is None else averages[children]
            found[children] = self._divided(parent, children, there, all_there, asked[children], before)
        # Remove rounding errors below a whole number.
        return np.minimum(np.floor(found * (1 + 1e-12) + 1e-6).astype(np.int64), wanted)

    def _weigh(self) -> None:
        """Take over changed weights, and compute the shares of the siblings of such queues again."""
        before, self._weights = self._weights, _weights_of(self._tree)
        self._weights_version = self._tree.weights_version
        for place in np.flatnonzero(before != self._weights).tolist():
            self._known.pop(self._tree.parents[place], None)

    def _divided(
        self,
        parent: int,
        children: list[int],
        room: Floats,
        whole: Floats,
        wanted: Floats,
        averages: Floats | None,
    ) -> Floats:
        if not wanted.any():
            return np.zeros(wanted.shape)
        key = room.tobytes() + whole.tobytes() + wanted.tobytes()
        if averages is not None:
            key += averages.tobytes()
        known = self._known.get(parent)
        if known is None or known[0] != key:
            weights = self._weights[children]
            if averages is not None and self._history is not None:
                part = float((room / whole).max(initial=0.0))
                weights = weights_after_use(weights, averages, part, self._history.strength)
            found = divide(room, whole, wanted, self._sure[children], weights)
            known = self._known[parent] = key, found
        return known[1]


def _weights_of(tree: Tree) -> Floats:
    return np.array([queue.weight for queue in tree.queues], dtype=np.float64)


_NOTHING: Mapping[str, int] = {}
_LEAVING = " leaving"
"""Suffix of a queue's name, for what its terminating pods use. Names of queues contain no space."""


def _stays(pod: PodInfo, snapshot: Snapshot) -> bool:
    """Return whether a pod is on its node and not terminating."""
    row = snapshot.row_of(pod.node_name)
    there = () if row is None else snapshot.pods_on(row)
    return any(each.uid == pod.uid and not each.is_terminating for each in there)


def _account_of(tree: Tree) -> Callable[[PodInfo], str]:
    return lambda pod: tree.queue_of(pod) + (_LEAVING if pod.is_terminating else "")


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """State of the queues at one moment.

    Attributes:
        tree: the queues.
        resources: resource -> column, for the resources of nodes.
        used: (n_queues, n_resources), what their pods use, including those of queues below.
        leaving: (n_queues, n_resources), the part of it that terminating pods use.
        deserved: (n_queues, n_resources), their fair shares.
        limit: (n_queues, n_resources), their max.
        whole: (n_resources,), the sum of all nodes.
    """

    tree: Tree
    resources: Mapping[str, int]
    used: Int64s
    leaving: Int64s
    deserved: Int64s
    limit: Int64s
    whole: Int64s

    def amounts(self, requests: Mapping[str, int]) -> Int64s:
        """Return (n_resources,), without resources that no node has."""
        found = np.zeros(len(self.resources), dtype=np.int64)
        for name, amount in requests.items():
            if name in self.resources:
                found[self.resources[name]] = amount
        return found

    def share(self, amounts: Int64s) -> float:
        """Return the dominant share of an amount: the greatest fraction of the cluster's total, over all resources."""
        return float((amounts / np.maximum(self.whole, 1)).max(initial=0.0))


class PendingRequests:
    """The pending pods by queue, the longest waiting first.

    Attributes:
        by_queue: leaf -> uid -> pod.
        demand: leaf -> resource -> the sum of their requests.
        changed: the leaves whose demand changed since a reader last cleared it.
        waits_since: leaf -> when the longest waiting pod began to wait, by the monotonic clock, as of the last sweep;
            pods that could run nowhere are left out.
    """

    def __init__(self) -> None:
        self.waits_since: dict[str, float] = {}
        self.by_queue: dict[str, dict[str, PodInfo]] = {}
        self.demand: dict[str, dict[str, int]] = {}
        self.changed: set[str] = set()
        self._queue_of: dict[str, str] = {}
        self._tree = Tree()
        self._hopeless: set[str] = set()

    def __contains__(self, uid: str) -> bool:
        return uid in self._queue_of

    def __len__(self) -> int:
        return len(self._queue_of)

    def put(self, pod: PodInfo) -> None:
        """Count a pending pod, or its new version."""
        queue = self._tree.queue_of(pod)
        if self._queue_of.get(pod.uid) == queue:
            known = self.by_queue[queue][pod.uid]
            if known is not pod and pod.uid not in self._hopeless:
                self._count(queue, known, -1)
                self._count(queue, pod)
            self.by_queue[queue][pod.uid] = pod  # keeps its place
            return
        self.drop(pod.uid)
        self._queue_of[pod.uid] = queue
        self.by_queue.setdefault(queue, {})[pod.uid] = pod
        self._count(queue, pod)

    def _count(self, queue: str, pod: PodInfo, sign: int = 1) -> None:
        add(self.demand.setdefault(queue, {}), pod.resources.requests, sign)
        self.changed.add(queue)

    def drop(self, uid: str) -> None:
        """Stop counting a pod."""
        self.hope(uid)
        queue = self._queue_of.pop(uid, None)
        if queue is not None:
            pod = self.by_queue[queue].pop(uid)
            self._count(queue, pod, -1)

    def give_up(self, uid: str) -> None:
        """Count no demand for a pod that could run nowhere, so that no queue keeps capacity for it."""
        if uid in self._queue_of and uid not in self._hopeless:
            self._hopeless.add(uid)
            queue = self._queue_of[uid]
            self._count(queue, self.by_queue[queue][uid], -1)

    def hope(self, uid: str) -> None:
        """Count the demand of such a pod again, when it is retried."""
        if uid in self._hopeless:
            self._hopeless.remove(uid)
            queue = self._queue_of[uid]
            self._count(queue, self.by_queue[queue][uid])

    def is_hopeless(self, uid: str) -> bool:
        """Return whether a pod could run nowhere when it was tried last."""
        return uid in self._hopeless

    def follow(self, tree: Tree) -> None:
        """Assign all pods again if the queues have changed."""
        if tree is self._tree:
            return
        before, self._tree = self._tree, tree
        if tree.files_as(before):
            return
        pods = [pod for queue in self.by_queue.values() for pod in queue.values()]
        hopeless, self._hopeless = self._hopeless, set()
        self.by_queue, self.demand, self._queue_of = {}, {}, {}
        for pod in pods:
            self.put(pod)
        for uid in hopeless:
            self.give_up(uid)

    def saved(self) -> dict[str, Any]:
        """Return the uids by queue, and those of pods that could run nowhere, as JSON values."""
        by_queue = [[name, list(pods)] for name, pods in self.by_queue.items()]
        return {"byQueue": by_queue, "hopeless": sorted(self._hopeless)}

    def resume(self, saved: Mapping[str, Any], queued: QueuedPods) -> None:
        """Take over the pods that `saved` returned; the tree must be the same."""
        for name, uids in saved["byQueue"]:
            self.by_queue.setdefault(name, {})
            for uid in uids:
                found = queued.get(uid)
                if found is not None:
                    self.put(found.pod)
        for uid in saved["hopeless"]:
            self.give_up(uid)

    def sweep(self, queued: QueuedPods, plugin: str) -> None:
        """Remove pods that are no longer pending, or are gated by another plugin, and take over new versions."""
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


class _Sums:
    """The amounts that the pods of a tree's queues use and request, including those of queues below.

    One leaf is recounted along its path to the root, so the time does not depend on the number of queues. Arrays that
    were returned are never changed.

    Args:
        tree: the queues.
        names: the resources, by column.
        limit: (n_queues, n_resources), the queues' max.

    Attributes:
        used: (n_queues, n_resources), what their pods use.
        leaving: (n_queues, n_resources), what terminating pods use.
        wanted: (n_queues, n_resources), what they use and request, each within its max.
        made_for: the tree and the names.
        version: changes with every change of `wanted`.
    """

    def __init__(self, tree: Tree, names: tuple[str, ...], limit: Int64s) -> None:
        self._tree, self._names, self._limit = tree, names, limit
        shape = (len(tree), len(names))
        self.used, self.leaving, self.wanted, self._asked = (
            np.zeros(shape, dtype=np.int64) for _ in range(4)
        )
        self.version = 0
        self.made_for = tree, names

    def count(self, leaves: Iterable[str], usage: NamespaceUsage, pending: PendingRequests) -> None:
        """Recount leaves; names of no leaf are left out."""
        tree, is_fresh = self._tree, True
        for leaf in leaves:
            path = tree.paths.get(leaf)
            if path is None:
                continue
            goes = self._amounts(usage.by_namespace.get(leaf + _LEAVING, _NOTHING))
            takes = self._amounts(usage.by_namespace.get(leaf, _NOTHING)) + goes
            asks = takes + self._amounts(pending.demand.get(leaf, _NOTHING))
            place = path[0]
            more = takes - self.used[place], goes - self.leaving[place], asks - self._asked[place]
            if not any(each.any() for each in more):
                continue
            if is_fresh:
                is_fresh = False
                self.used, self.leaving, self.wanted = (
                    self.used.copy(),
                    self.leaving.copy(),
                    self.wanted.copy(),
                )
                self.version += 1
            for each in path:
                self.used[each] += more[0]
                self.leaving[each] += more[1]
            want(self.wanted, self._asked, self._limit, path, more[2])

    def wanted_with(self, path: Sequence[int], amounts: Mapping[str, int]) -> Int64s:
        """Return `wanted` with an additional request in the leaf of a path."""
        wanted, asked = self.wanted.copy(), self._asked.copy()
        want(wanted, asked, self._limit, path, self._amounts(amounts))
        return wanted

    def _amounts(self, amounts: Mapping[str, int]) -> Int64s:
        return np.array([amounts.get(name, 0) for name in self._names], dtype=np.int64)


def want(wanted: Int64s, asked: Int64s, limit: Int64s, path: Sequence[int], more: Int64s) -> None:
    """Add a change of a leaf's requests: each queue up to the root wants the sum of those below, within its max."""
    for place in path:
        asked[place] += more
        now = np.minimum(asked[place], limit[place])
        more = now - wanted[place]
        wanted[place] = now


class Ledger:
    """Keeps the state of queues current with the cluster, for one plugin.

    Args:
        history: what the queues used before; None if it does not count.

    Attributes:
        pending: the pending pods.
        history: as given.
        evicting: uid -> victims that are deleted in the background, whether or not the cluster shows it yet.
    """

    def __init__(self, history: UsageHistory | None = None) -> None:
        self.history = history
        self.evicting: dict[str, PodInfo] = {}
        self.pending = PendingRequests()
        self._queues = Queues()
        self._counted_for = Tree()
        self._usage = NamespaceUsage(_account_of(self._counted_for))
        self._shares = FairShares(Tree(), ())
        self._sums = _Sums(Tree(), (), self._shares.limit)
        self._made_for: tuple[Tree, tuple[str, ...]] | None = None
        self._deserved: tuple[object, Int64s] | None = None

    @property
    def tree(self) -> Tree:
        """The queues, as read last."""
        return self._queues.tree

    @property
    def wrong(self) -> Mapping[str, FieldError]:
        """The faults of queues, by name."""
        return self._queues.wrong

    def be_read_for(self, pod: PodInfo, snapshot: Snapshot) -> None:
        """Read the queues for an attempt at a pod.

        Raises:
            NeedsTime: there are too many for one time slice.
        """
        self._queues.be_read_for(pod.uid, snapshot.objects(QUEUES))

    def reading(self, snapshot: Snapshot) -> Generator[None, None, None]:
        """Read the queues that changed, in steps."""
        return self._queues.reading(snapshot.objects(QUEUES))

    def with_max(
        self, snapshot: Snapshot, also: PodInfo, raised: Mapping[int, Mapping[str, int]]
    ) -> QueueUsage:
        """Return the state of queues as if some had another max: index -> resource -> amount; for explanations."""
        queues = [
            replace(queue, max={**queue.max, **raised.get(place, _NOTHING)})
            for place, queue in enumerate(self._queues.tree.queues)
        ]
        other = Ledger(self.history)
        other.evicting, other.pending = self.evicting, self.pending
        return other.standing(snapshot.overlay(), also, Tree(queues))

    def rows_with(self, queue: str) -> Collection[int]:
        """Return the rows with pods of a queue without children, as counted last."""
        return self._usage.rows_with.get(queue, ())

    def standing(
        self, snapshot: Snapshot, also: PodInfo | None = None, tree: Tree | None = None
    ) -> QueueUsage:
        """Return the state of queues in a snapshot.

        Args:
            snapshot: the cluster.
            also: a pod that is counted as pending if it is unknown.
            tree: the queues, with the same pods as those that were read last; the latter if it is not given.
        """
        pending, history = self.pending, self.history
        is_current = tree is None and snapshot.changes is not None
        if tree is None:
            self._queues.look_at(snapshot.objects(QUEUES))
            tree = self._queues.tree
            pending.follow(tree)
        names = tuple(sorted(snapshot.resources - {PODS}))
        usage, sums = self._counted(snapshot, tree, names)
        whole = np.array([int(snapshot.allocatable[name].sum()) for name in names], dtype=np.int64)
        if history is not None and is_current:
            history.follow(tree, sums.used, whole, snapshot.objects(QUEUES))
        free_of_queues = [usage.by_namespace.get(name, _NOTHING) for name in ("", _LEAVING)]
        others = np.array(
            [sum(taken.get(name, 0) for taken in free_of_queues) for name in names], dtype=np.int64
        )
        room = np.maximum(whole - others, 0)
        if also is not None and also.uid not in pending and (leaf := tree.queue_of(also)):
            wanted = sums.wanted_with(tree.paths[leaf], also.resources.requests)
            deserved = self._shares.deserved(wanted, room, whole)
        else:
            past = 0 if history is None else history.version
            key = sums, sums.version, tree.weights_version, past, room.tobytes(), whole.tobytes()
            if self._deserved is None or self._deserved[0] != key:
                self._deserved = key, self._shares.deserved(sums.wanted, room, whole)
            deserved = self._deserved[1]
        leaving = sums.leaving
        columns = {name: column for column, name in enumerate(names)}
        if self.evicting:
            leaving = leaving.copy()
            for pod in self.evicting.values():
                if _stays(pod, snapshot) and (leaf := tree.queue_of(pod)):
                    takes = pod.resources.taken
                    leaving[list(tree.paths[leaf])] += [takes.get(name, 0) for name in names]
        return QueueUsage(tree, columns, sums.used, leaving, deserved, self._shares.limit, whole)

    def _counted(
        self, snapshot: Snapshot, tree: Tree, names: tuple[str, ...]
    ) -> tuple[NamespaceUsage, _Sums]:
        """Return what the pods of each leaf use, and the sums over the tree; only changes are recounted."""
        if self._made_for != (tree, names):
            self._shares, self._made_for = FairShares(tree, names, self.history), (tree, names)
        if snapshot.changes is None:  # a hypothetical snapshot
            usage, sums = (
                NamespaceUsage.of(snapshot, {}, _account_of(tree)),
                _Sums(tree, names, self._shares.limit),
            )
            sums.count(self._leaves_with_pods(usage), usage, self.pending)
            return usage, sums
        if tree is not self._counted_for:
            if not tree.files_as(self._counted_for):
                self._usage = NamespaceUsage(_account_of(tree))
            self._counted_for = tree
        self._usage.follow(snapshot, snapshot.changes, {})
        if self._sums.made_for != (tree, names):
            self._sums = _Sums(tree, names, self._shares.limit)
            leaves = self._leaves_with_pods(self._usage)
        else:
            leaves = _leaves_of(self._usage.changed) | self.pending.changed
        self._sums.count(leaves, self._usage, self.pending)
        self._usage.changed.clear()
        self.pending.changed.clear()
        return self._usage, self._sums

    def _leaves_with_pods(self, usage: NamespaceUsage) -> AbstractSet[str]:
        return _leaves_of(usage.by_namespace) | self.pending.demand.keys()


def _leaves_of(accounts: Iterable[str]) -> set[str]:
    return {account.removesuffix(_LEAVING) for account in accounts}


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The report of one queue, including those below it; amounts are milliCPU, bytes or counts by resource, without zeros.

    Attributes:
        fault: its fault, if any.
        used: what its pods use, from the choice of their node.
        fair_share: its current fair share.
        used_share: the greatest fraction of the cluster that it uses, over all resources, in [0, 1].
        fair_part: the same of its fair share.
        pending: the number of its pending pods.
        longest_wait_seconds: how long the first of them has waited, without pods that no node could run.
        average_share: the average of `used_share` with the half-life of the history; None without a history.
        average_time: the time of the average.
    """

    fault: FieldError | None = None
    used: Mapping[str, int] = field(default_factory=dict)
    fair_share: Mapping[str, int] = field(default_factory=dict)
    used_share: float = 0.0
    fair_part: float = 0.0
    pending: int = 0
    longest_wait_seconds: float = 0.0
    average_share: float | None = None
    average_time: datetime | None = None


def report(ledger: Ledger, snapshot: Snapshot, now: float) -> Generator[None, None, dict[str, QueueReport]]:
    """Return the reports by name, one queue a step; `now` is by the monotonic clock."""
    standing, wrong, history = ledger.standing(snapshot), ledger.wrong, ledger.history
    tree, pending = standing.tree, ledger.pending
    waiting, since = [0] * len(tree), [now] * len(tree)
    for leaf, pods in list(pending.by_queue.items()):
        for place in tree.paths.get(leaf, ()):
            waiting[place] += len(pods)
            since[place] = min(since[place], pending.waits_since.get(leaf, now))
    found = {name: QueueReport(fault) for name, fault in wrong.items()}
    for place, queue in enumerate(tree.queues):
        yield
        used, fair = standing.used[place], standing.deserved[place]
        found[queue.name] = QueueReport(
            wrong.get(queue.name),
            {name: int(used[column]) for name, column in standing.resources.items() if used[column]},
            {name: int(fair[column]) for name, column in standing.resources.items() if fair[column]},
            standing.share(used),
            standing.share(fair),
            waiting[place],
            now - since[place],
            *((None, None) if history is None else history.status_of(tree, place)),
        )
    return found


def usages(
    ledger: Ledger, snapshot: Snapshot, pending: Sequence[PodInfo]
) -> Generator[None, None, list[QuotaUsage]]:
    """Return the use of each queue, in steps, by the queues as read last.

    A queue has borrowed what it uses beyond its fair share.
    """
    standing, wrong, history = ledger.standing(snapshot), ledger.wrong, ledger.history
    tree, columns = standing.tree, standing.resources
    numbers = [0] * len(tree)
    waiting: list[dict[str, int]] = [{} for _ in tree.queues]
    for pod in pending:
        yield
        for place in tree.paths.get(tree.queue_of(pod), ()):
            numbers[place] += 1
            add(waiting[place], pod.resources.requests)

    def amounts(row: Int64s) -> dict[str, int]:
        return {name: int(row[column]) for name, column in columns.items() if row[column]}

    found = [QuotaUsage(QUEUES, name, fault=str(wrong[name])) for name in wrong if name not in tree]
    for place, queue in enumerate(tree.queues):
        yield
        used, fair = standing.used[place], standing.deserved[place]
        fault = wrong.get(queue.name)
        found.append(
            QuotaUsage(
                QUEUES,
                queue.name,
                queue.parent,
                used=amounts(used),
                guaranteed=queue.min,
                borrowed=amounts(np.maximum(used - fair, 0)),
                limit=queue.max,
                fair_share=amounts(fair),
                average_share=None if history is None else history.status_of(tree, place)[0],
                waiting=waiting[place],
                pending=numbers[place],
                fault="" if fault is None else str(fault),
            )
        )
    return found
