"""Pods that are placed on other nodes than in the recording, with the cause."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.scheduling import TieBreaker
from scheduler.tools.whatif.backtest.result import Moves, PlacementCause, PlacementChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.engine.state.cache import Cache
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot
    from scheduler.tools.whatif.backtest.pod_lifetimes import PodLifetime
    from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop

_EXAMPLES: Final = 200


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
            examples=self._moves[:_EXAMPLES],
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
