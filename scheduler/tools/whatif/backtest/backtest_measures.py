"""Measures that a backtest takes, and pods that are placed on other nodes than in the recording."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.scheduling import TieBreaker
from scheduler.tools.whatif.backtest.result import (
    CURVE,
    PERCENTS,
    BacktestSample,
    Figures,
    Moves,
    NodeFigures,
    PlacementCause,
    PlacementChange,
    Unplaced,
    Waits,
)
from scheduler.tools.whatif.simulation.simulation_measures import fragmentation, nodes_in_use

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.daemon.app.assembly import Parts
    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.state.cache import Cache
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Float64s, Rows, Snapshot
    from scheduler.tools.whatif.backtest.pod_lifetimes import PodLifetime
    from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop

_MOVE_EXAMPLES: Final = 200


class RecordedTies(TieBreaker):
    """Chooses the recorded node among equally good nodes, so that no pod moves by chance; else a node by the seed."""

    def __init__(self, seed: int, lives: Mapping[str, PodLifetime]) -> None:
        super().__init__(seed)
        self._lives = lives

    def choose(self, pod: PodInfo, best: Rows, snapshot: Snapshot) -> int:
        life = self._lives.get(pod.uid)
        row = snapshot.row_of(life.node) if life is not None and life.node else None
        return row if row is not None and row in best else super().choose(pod, best, snapshot)


class BacktestDecisions(NoObserver):
    """Observes decisions, and compares each with the recorded node of the pod.

    Args:
        lives: uid -> the recorded pod; replacement pods of the backtest are not in it.

    Attributes:
        preemptions: number of decisions that preempted pods.
        messages: uid -> why the pod was not placed, from its last decision.
    """

    def __init__(self, lives: Mapping[str, PodLifetime]) -> None:
        self.preemptions = 0
        self.messages: dict[str, str] = {}
        self._lives = lives
        self._cache: Cache | None = None
        self._decided: dict[str, PlacementChange] = {}  # uid -> its last one
        self._moves: list[PlacementChange] = []
        self._placed: set[str] = set()
        self._same = 0

    def watch(self, cache: Cache, loop: VirtualTimeLoop, decision_seconds: float) -> None:
        """Set the cluster, its loop, and the time that a decision takes."""
        self._cache, self._loop, self._decision_seconds = cache, loop, decision_seconds

    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None:
        self._loop.stall(self._decision_seconds)
        uid = decision.pod.uid
        if not decision.node_name:
            self.preemptions += bool(decision.nominated_node_name)
            self.messages[uid] = decision.status.message
            return
        life = self._lives.get(uid)
        if life is None or life.is_there or decision.node_name == life.node:
            return
        assert self._cache is not None
        cause, by, scores = _cause(decision, self._cache.snapshot(), life.node)
        self._decided[uid] = PlacementChange(
            at=round(self._loop.time(), 6),
            pod=life.pod.key,
            recorded=life.node,
            now=decision.node_name,
            cause=cause,
            by=by,
            scores=scores,
        )

    def placed(self, pod: PodInfo) -> None:
        """Note that a pod was bound; only the first binding counts."""
        life = self._lives.get(pod.uid)
        if life is None or pod.uid in self._placed or life.is_there:
            return
        self._placed.add(pod.uid)
        move = self._decided.pop(pod.uid, None)
        if pod.node_name == life.node:
            self._same += 1
        elif move is not None and move.now == pod.node_name:
            self._moves.append(move)
        else:  # bound elsewhere by an extender or a plugin
            self._moves.append(
                PlacementChange(
                    at=round(self._loop.time(), 6),
                    pod=pod.key,
                    recorded=life.node,
                    now=pod.node_name,
                    cause=PlacementCause.SKIPPED,
                    by="",
                )
            )

    def moves(self, lives: Iterable[PodLifetime]) -> Moves:
        """Return the moves of these pods."""
        elsewhere = [move for move in self._moves if move.cause != PlacementCause.NEW]
        causes: dict[str, Counter[str]] = {}
        for move in elsewhere:
            causes.setdefault(move.cause, Counter())[move.by] += 1
        return Moves(
            same=self._same,
            elsewhere=len(elsewhere),
            only_now=len(self._moves) - len(elsewhere),
            only_then=sum(
                bool(life.node) and not life.is_there and life.pod.uid not in self._placed for life in lives
            ),
            causes={cause: dict(by.most_common()) for cause, by in sorted(causes.items())},
            examples=self._moves[:_MOVE_EXAMPLES],
        )


def _cause(
    decision: Decision, snapshot: Snapshot, recorded: str
) -> tuple[str, str, dict[str, tuple[int, int]]]:
    """Return why a pod is not on its recorded node: the cause, the plugin, and the scores of both nodes by plugin."""
    row, now = snapshot.row_of(recorded), snapshot.row_of(decision.node_name)
    if not recorded or row is None or now is None:
        return (PlacementCause.GONE if recorded else PlacementCause.NEW), "", {}
    refusal = decision.diagnosis.outcome_of(row)
    if refusal is not None:
        return PlacementCause.REFUSED, refusal[0], {}
    scores = _scores(decision, row, now)
    if scores is None:
        return PlacementCause.SKIPPED, "", {}
    if sum(there - here for here, there in scores.values()) <= 0:
        return PlacementCause.TIE, "", scores
    return (
        PlacementCause.TIPPED,
        max(sorted(scores), key=lambda name: scores[name][1] - scores[name][0]),
        scores,
    )


def _scores(decision: Decision, *rows: int) -> dict[str, tuple[int, int]] | None:
    """Return plugin -> the weighted scores of two rows; None if one of them was not scored."""
    ranked = decision.scores
    if ranked is None or not np.isin(rows, ranked.rows).all():
        return None
    here, there = np.searchsorted(ranked.rows, rows)
    return {name: (int(values[here]), int(values[there])) for name, values in ranked.by_plugin.items()}


ZONE: Final = "topology.kubernetes.io/zone"
SAMPLES: Final = 200
_KINDS: Final = 20
"""Number of the most frequent kinds of pods that count for fragmentation."""
_NAMES: Final = 100
_EXAMPLES: Final = 50
_USUAL: Final = ("cpu", "memory")

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
        snapshot = self._parts.cache.snapshot()
        in_use = nodes_in_use(self._nodes, self._parts.pods.values())
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
