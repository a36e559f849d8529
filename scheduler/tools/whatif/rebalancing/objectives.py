"""What a rebalancing improves, as a number that is better when it is smaller; and which pods to try for it, in order.

Each objective follows the pods that are moved, so that its number is known after each move without a look at all pods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import msgspec
import numpy as np

from scheduler.objects.selectors import LabelRule, SelectorError, parse_label_selector
from scheduler.objects.v1 import HONOR, IGNORE, NO_EXECUTE, NO_SCHEDULE
from scheduler.tools.whatif.evaluation import is_pending
from scheduler.tools.whatif.rebalancing.evictable_pods import is_of_its_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.engine.state.cache import Cache
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import TopologySpreadConstraint
    from scheduler.snapshot import Float64s, Snapshot
    from scheduler.tools.whatif.cluster_file import ClusterFile

_KINDS: Final = 20
"""The number of the most frequent kinds of pods that count for fragmentation."""
_SHARE_OF_A_NODE: Final = 0.1
"""The least gain of fragmentation, in the mean free capacity of a node."""


NO_GAIN: Final = 1e-9
"""Numbers of an objective that differ by less than this are equal."""


class Level(NamedTuple):
    """How good a cluster is for an objective.

    Attributes:
        value: the number of the objective.
        fitting: the number of pending pods that fit, if the objective counts them.
    """

    value: float
    fitting: int = 0


class Objective(ABC):
    """What a rebalancing improves.

    Attributes:
        title: the noun of its number.
        least_gain: moves count as a gain if the number becomes smaller by this amount.
        needs_all: whether a gain needs moves of all pods that `candidates` yields together.
    """

    title: ClassVar[str]
    least_gain: float = 1
    needs_all: ClassVar[bool] = False

    @abstractmethod
    def value(self) -> float:
        """Return the number for the cluster as it is now."""

    def level(self) -> Level:
        """Return how good the cluster is now."""
        return Level(self.value())

    def is_gain(self, before: Level, after: Level) -> bool:
        """Return whether moves from one level to another are worth the evictions."""
        if after.value <= before.value - self.least_gain + NO_GAIN:
            return True
        return after.fitting > before.fitting and after.value < before.value - NO_GAIN

    @abstractmethod
    def moved(self, pod: PodInfo, old: str, new: str) -> None:
        """Follow a pod that left a node for another one; "" is no node."""

    @abstractmethod
    def candidates(self) -> Iterator[Sequence[PodInfo]]:
        """Yield pods to evict together, one sequence after another, the most promising first.

        Pods are moved while the caller takes the next sequence. The pods are as `moved` and the cluster show them.
        """

    @staticmethod
    def shown(value: float) -> str:
        """Return the number as text."""
        return f"{value:g}"


class _ByNode(Objective):
    """An objective that knows the pods of each node, without those that belong to their node."""

    def __init__(self, cluster: ClusterFile, cache: Cache) -> None:
        self._cache = cache
        self._pods: dict[str, dict[str, PodInfo]] = {node.name: {} for node in cluster.nodes}
        for pod in _staying(cluster):
            if pod.node_name in self._pods:
                self._pods[pod.node_name][pod.uid] = pod

    def moved(self, pod: PodInfo, old: str, new: str) -> None:
        if old:
            self._pods[old].pop(pod.uid, None)
        if new:
            self._pods[new][pod.uid] = pod


class NodesInUse(_ByNode):
    """The number of nodes that have pods other than those that belong to the node."""

    title = "nodes in use"
    needs_all = True

    def value(self) -> float:
        return sum(map(bool, self._pods.values()))

    def candidates(self) -> Iterator[Sequence[PodInfo]]:
        """Yield the pods of each node, the least used node first; large pods first, because they fit fewest nodes."""
        snapshot = self._cache.snapshot()
        used = np.zeros(snapshot.n_nodes)
        for name in ("cpu", "memory"):
            share = snapshot.requested[name] / np.maximum(snapshot.allocatable[name], 1)
            used = np.maximum(used, share)
        for _, name in sorted((float(used[row]), name) for row, name in enumerate(snapshot.names)):
            pods = [*self._pods[name].values()]
            if pods:
                yield sorted(pods, key=_smallest_first, reverse=True)


@dataclass
class _Spread:
    """The pods of one constraint by domain.

    Attributes:
        max_skew: by how many pods a domain may exceed the domain with the fewest.
        least: the number of domains below which the fewest count as none.
        domains: node name -> domain, of the nodes that count.
        counts: domain -> number of pods.
    """

    max_skew: int
    least: int
    domains: Mapping[str, str]
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.counts.update(dict.fromkeys(self.domains.values(), 0))

    @property
    def limit(self) -> int:
        """The number of pods that a domain may have."""
        fewest = 0 if len(self.counts) < self.least else min(self.counts.values(), default=0)
        return fewest + self.max_skew

    def excess(self) -> int:
        """Return how many pods are above the limits of their domains."""
        limit = self.limit
        return sum(max(0, count - limit) for count in self.counts.values())


_SpreadKey = tuple[object, ...]


class SpreadExcess(Objective):
    """The number of pods above `maxSkew` of the topology spread constraints of pods, hard and soft ones."""

    title = "pods above maxSkew"

    def __init__(self, cluster: ClusterFile, cache: Cache) -> None:
        self._nodes = cluster.nodes
        self._spreads: dict[_SpreadKey, tuple[LabelRule, _Spread]] = {}
        self._in_namespace: dict[str, list[_SpreadKey]] = {}
        self._counting: dict[tuple[str, frozenset[tuple[str, str]]], list[_Spread]] = {}
        self._domains: dict[_SpreadKey, Mapping[str, str]] = {}
        pods = [*_staying(cluster)]
        for pod in pods:
            for constraint in pod.pod.spec.topology_spread_constraints:
                self._read(pod, constraint)
        self._pods = {pod.uid: (pod, pod.node_name) for pod in pods if self._spreads_of(pod)}
        for pod, node_name in self._pods.values():
            self._count(pod, node_name, 1)
        self._excess = sum(spread.excess() for _, spread in self._spreads.values())

    def value(self) -> float:
        return self._excess

    def moved(self, pod: PodInfo, old: str, new: str) -> None:
        if pod.uid not in self._pods:
            return
        changed = self._spreads_of(pod)
        before = sum(spread.excess() for spread in changed)
        self._count(pod, old, -1)
        self._count(pod, new, 1)
        self._pods[pod.uid] = pod, new
        self._excess += sum(spread.excess() for spread in changed) - before

    def candidates(self) -> Iterator[Sequence[PodInfo]]:
        """Yield one pod after another, of the domains with too many pods, in the order of their names."""
        ordered = sorted(self._pods.values(), key=lambda each: each[0].key)
        for pod, _ in ordered:
            node_name = self._pods[pod.uid][1]
            if any(self._exceeds(spread, node_name) for spread in self._spreads_of(pod)):
                yield [pod]

    def _exceeds(self, spread: _Spread, node_name: str) -> bool:
        domain = spread.domains.get(node_name)
        return domain is not None and spread.counts[domain] > spread.limit

    def _count(self, pod: PodInfo, node_name: str, number: int) -> None:
        for spread in self._spreads_of(pod):
            domain = spread.domains.get(node_name)
            if domain is not None:
                spread.counts[domain] += number

    def _spreads_of(self, pod: PodInfo) -> list[_Spread]:
        """Return the constraints that count a pod; those of pods with equal labels are found once."""
        kind = pod.namespace, frozenset(pod.labels.items())
        found = self._counting.get(kind)
        if found is None:
            keys = self._in_namespace.get(pod.namespace, ())
            candidates = [self._spreads[key] for key in keys]
            found = self._counting[kind] = [spread for rule, spread in candidates if rule.matches(pod.labels)]
        return found

    def _read(self, pod: PodInfo, constraint: TopologySpreadConstraint) -> None:
        try:
            rule = parse_label_selector(constraint.label_selector)
        except SelectorError:
            return  # the scheduler rejects the pod for it
        if not rule.count:
            return  # as for the scheduler, it counts no pod on a node
        own = {key: pod.labels[key] for key in constraint.match_label_keys if key in pod.labels}
        rule = LabelRule(rule.expressions, (*sorted(own.items()), *rule.labels))
        nodes = self._nodes_key(pod, constraint)
        least = constraint.min_domains or 1
        key = pod.namespace, rule, constraint.max_skew, least, nodes
        if key not in self._spreads:
            domains = self._domains.get(nodes)
            if domains is None:
                domains = self._domains[nodes] = {
                    node.name: node.labels[constraint.topology_key]
                    for node in self._nodes
                    if constraint.topology_key in node.labels and _counts(node, pod, constraint)
                }
            self._spreads[key] = rule, _Spread(constraint.max_skew, least, domains)
            self._in_namespace.setdefault(pod.namespace, []).append(key)

    @staticmethod
    def _nodes_key(pod: PodInfo, constraint: TopologySpreadConstraint) -> _SpreadKey:
        """Return a key of the nodes that count for a constraint."""
        affinity = taints = None
        if constraint.node_affinity_policy != IGNORE:
            affinity = frozenset(pod.pod.spec.node_selector.items()), pod.written_node_affinity
        if constraint.node_taints_policy == HONOR:
            taints = msgspec.msgpack.encode(pod.tolerations)
        return constraint.topology_key, affinity, taints


def _counts(node: NodeObject, pod: PodInfo, constraint: TopologySpreadConstraint) -> bool:
    """Return whether a node counts for a constraint of a pod, by its policies for affinity and taints."""
    if constraint.node_affinity_policy != IGNORE and not pod.required_node_affinity.matches(
        node.name, node.labels
    ):
        return False
    return constraint.node_taints_policy != HONOR or all(
        taint.effect not in {NO_SCHEDULE, NO_EXECUTE} or pod.tolerated.cover(taint, compares=False)
        for taint in node.taints
    )


class Fragmentation(_ByNode):
    """The share of pods that do not fit, and would if the free capacity were on one node; averaged over kinds of pods."""

    title = "fragmentation"

    def __init__(self, cluster: ClusterFile, cache: Cache) -> None:
        super().__init__(cluster, cache)
        snapshot = cache.snapshot()
        self.least_gain = _SHARE_OF_A_NODE / max(snapshot.n_nodes, 1)
        self._resources = ["cpu", "memory", *sorted(name for name in snapshot.resources if "/" in name)]
        pending = [pod for pod in cluster.pods if is_pending(pod)]
        self._kinds = self._most_frequent([*_staying(cluster), *pending])
        self._pending = self._most_frequent(pending)

    def _most_frequent(self, pods: Iterable[PodInfo]) -> dict[_Kind, int]:
        """Return the most frequent kinds of pods with requests, and the number of each."""
        counts = Counter(
            tuple((name, amount) for name in self._resources if (amount := pod.resources.requests.get(name)))
            for pod in pods
        )
        kinds = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return dict([each for each in kinds if each[0]][:_KINDS])

    def value(self) -> float:
        return self.level().value

    def level(self) -> Level:
        free = self._free(self._cache.snapshot())
        missing, fitting = 0.0, 0
        for kind in {**self._kinds, **self._pending}:
            fits = int(_fitting(free, kind).sum())
            joined = int(min(float(free[name].sum()) // amount for name, amount in kind))
            missing += self._kinds.get(kind, 0) * (1 - fits / joined if joined else 0.0)
            fitting += min(self._pending.get(kind, 0), fits)
        return Level(round(missing / max(sum(self._kinds.values()), 1), 6), fitting)

    def candidates(self) -> Iterator[Sequence[PodInfo]]:
        """Yield the pods of each node, the node with most unusable capacity first; small pods first."""
        snapshot = self._cache.snapshot()
        free = self._free(snapshot)
        lost = np.zeros(snapshot.n_nodes)
        for kind, count in self._kinds.items():
            scarcest, amount = min(kind, key=lambda each: float(free[each[0]].sum()) / each[1])
            unusable = free[scarcest] - _fitting(free, kind) * amount
            lost += count * unusable / max(float(free[scarcest].sum()), 1.0)
        for _, name in sorted((-float(lost[row]), name) for row, name in enumerate(snapshot.names)):
            pods = [*self._pods[name].values()]
            if pods:
                yield sorted(pods, key=_smallest_first)

    @staticmethod
    def shown(value: float) -> str:
        return f"{value:.1%}"

    def _free(self, snapshot: Snapshot) -> dict[str, Float64s]:
        return {
            name: np.maximum(snapshot.allocatable[name] - snapshot.requested[name], 0).astype(np.float64)
            for name in self._resources
        }


_Kind = tuple[tuple[str, int], ...]
"""The requests of a kind of pods: resource and amount."""


def _fitting(free: Mapping[str, Float64s], kind: _Kind) -> Float64s:
    """Return how many pods of a kind fit each node."""
    fitting: Float64s = np.minimum.reduce([free[name] // amount for name, amount in kind])
    return fitting


OBJECTIVES: Final[Mapping[str, type[NodesInUse | SpreadExcess | Fragmentation]]] = {
    "nodes": NodesInUse,
    "spread": SpreadExcess,
    "fragmentation": Fragmentation,
}
"""Objectives by the name that users give."""


def _staying(cluster: ClusterFile) -> Iterator[PodInfo]:
    """Yield the pods on nodes that do not belong to their node and do not leave it anyway."""
    for pod in cluster.pods:
        if pod.node_name and not (pod.is_terminal or pod.is_terminating or is_of_its_node(pod)):
            yield pod


def _smallest_first(pod: PodInfo) -> tuple[int, int, str]:
    requests = pod.resources.requests
    return requests.get("cpu", 0), requests.get("memory", 0), pod.key
