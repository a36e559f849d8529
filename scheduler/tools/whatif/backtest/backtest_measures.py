"""Measures that a backtest takes."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.tools.whatif.backtest.pod_lifetimes import controller_of
from scheduler.tools.whatif.backtest.result import (
    CURVE,
    PERCENTS,
    BacktestSample,
    Figures,
    NodeFigures,
    Unplaced,
    Waits,
)
from scheduler.tools.whatif.fragmentation import fragmentation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.daemon.app.assembly import Parts
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Float64s, Snapshot

ZONE: Final = "topology.kubernetes.io/zone"
SAMPLES: Final = 200
_KINDS: Final = 20
"""Number of the most frequent kinds of pods that count for fragmentation."""
_NAMES: Final = 100
_EXAMPLES: Final = 50
_USUAL: Final = ("cpu", "memory")
_GO_WITH_NODE: Final = frozenset({"DaemonSet", "Node"})

Kinds = list[tuple[dict[str, int], float]]
"""Requests of a kind of pods, and its share of all pods."""


def kinds_of(pods: Iterable[PodInfo]) -> tuple[Kinds, list[str]]:
    """Return the most frequent kinds of pods, and the resources to measure: cpu, memory, and requested extended resources."""
    asked = [pod.resources.requests for pod in pods]
    extended = sorted({name for each in asked for name in each if "/" in name})
    resources = [*_USUAL, *extended]
    counts = Counter(tuple(each.get(name, 0) for name in resources) for each in asked).most_common(_KINDS)
    number = sum(count for _, count in counts)
    return [(dict(zip(resources, kind, strict=True)), count / number) for kind, count in counts], resources


class Samples:
    """Takes samples of a cluster.

    Args:
        parts: the state of the cluster.
        nodes: name -> node, kept current.
        kinds: kinds of pods.
        resources: resources to measure.
    """

    def __init__(
        self, parts: Parts, nodes: Mapping[str, NodeObject], kinds: Kinds, resources: Sequence[str]
    ) -> None:
        self._parts, self._nodes, self._kinds, self._resources = parts, nodes, kinds, resources
        self.taken: list[BacktestSample] = []
        self._empty: list[str] = []

    def take(self, at: float, waiting: int) -> None:
        """Take a sample."""
        snapshot, in_use = self._parts.cache.snapshot(), self._in_use()
        self._empty = sorted(self._nodes.keys() - in_use)
        total = {name: snapshot.allocatable[name].astype(np.float64) for name in self._resources}
        total = {name: amounts for name, amounts in total.items() if amounts.any()}
        used = {name: np.minimum(snapshot.requested[name], total[name]) for name in total}
        self.taken.append(
            BacktestSample(
                at=round(at, 3),
                waiting=waiting,
                nodes=snapshot.n_nodes,
                in_use=len(in_use),
                utilisation={name: _share(used[name], total[name]) for name in total},
                zones=self._zones(snapshot, used, total),
                fragmentation=fragmentation({name: total[name] - used[name] for name in total}, self._kinds),
            )
        )

    def _in_use(self) -> set[str]:
        """Return the nodes with a pod other than the node's own."""
        return {
            pod.node_name
            for pod in self._parts.pods.values()
            if pod.node_name in self._nodes and not goes_with_node(pod)
        }

    def _zones(
        self, snapshot: Snapshot, used: Mapping[str, Float64s], total: Mapping[str, Float64s]
    ) -> dict[str, dict[str, float]]:
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(snapshot.names):  # once for each sample
            node = self._nodes.get(name)
            rows.setdefault("" if node is None else node.labels.get(ZONE, ""), []).append(row)
        return {
            zone: {name: _share(used[name][there], total[name][there]) for name in total}
            for zone, there in sorted(rows.items())
        }

    def nodes(self) -> NodeFigures:
        """Return the statistics of nodes."""
        in_use = [each.in_use for each in self.taken]
        all_time = sum(each.nodes for each in self.taken)
        return NodeFigures(
            least_in_use=min(in_use),
            most_in_use=max(in_use),
            mean_in_use=round(sum(in_use) / len(in_use), 3),
            empty_share=round(1.0 - sum(in_use) / all_time, 6) if all_time else 0.0,
            empty_at_end=len(self._empty),
            empty_names=self._empty[:_NAMES],
        )

    def mean_utilisation(self) -> dict[str, float]:
        return _means([each.utilisation for each in self.taken])

    def mean_fragmentation(self) -> dict[str, float]:
        return _means([each.fragmentation for each in self.taken])


def goes_with_node(pod: PodInfo) -> bool:
    """Return whether a pod belongs to its node, as a DaemonSet's or a static pod does."""
    owner = controller_of(pod)
    return owner is not None and owner.kind in _GO_WITH_NODE


def figures(
    samples: Samples,
    waits: Sequence[float],
    unplaced: Iterable[Unplaced],
    *,
    preemptions: int,
    evictions: int,
    others_evicted: int = 0,
) -> Figures:
    """Return all figures; `waits` are those of placed pods."""
    never = sorted(unplaced, key=lambda each: (-each.waited, each.pod))
    return Figures(
        arrived=len(waits) + len(never),
        placed=len(waits),
        never_placed=len(never),
        waits=_waits(waits),
        preemptions=preemptions,
        evictions=evictions,
        others_evicted=others_evicted,
        mean_utilisation=samples.mean_utilisation(),
        mean_fragmentation=samples.mean_fragmentation(),
        nodes=samples.nodes(),
        unplaced=never[:_EXAMPLES],
        samples=samples.taken,
    )


def _waits(waits: Sequence[float]) -> Waits:
    known = np.array([each for each in waits if each < inf] or [0.0])

    def within(percent: int) -> float:
        return round(float(np.percentile(known, percent, method="higher")), 6)

    half, most, nearly, longest = (within(percent) for percent in PERCENTS)
    return Waits(
        p50=half,
        p90=most,
        p99=nearly,
        max=longest,
        mean=round(float(known.mean()), 6),
        curve={percent: within(percent) for percent in CURVE},
    )


def _share(used: Float64s, total: Float64s) -> float:
    return round(float(used.sum() / total.sum()), 6) if total.any() else 0.0


def _means(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for one in each for name in one})
    return {name: round(sum(one.get(name, 0.0) for one in each) / len(each), 6) for name in names}
