"""RandomNode: chooses one of the feasible nodes at random."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from scheduler.framework import MAX_NODE_SCORE, ScorePlugin

if TYPE_CHECKING:
    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot

_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class RandomNode(ScorePlugin):
    """Gives one node the best score, all others none. It differs between pods, but not between attempts at one pod."""

    name = "RandomNode"
    api_version = 1
    reads_pods = False

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._hashes = np.zeros(0, dtype=np.uint64)

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        if snapshot.names != self._names:
            self._names = snapshot.names
            self._hashes = np.array([crc32(name.encode()) for name in self._names], dtype=np.uint64)
        mixed = (self._hashes + np.uint64(crc32(pod.uid.encode()) << 32)) * _MIX
        mixed = (mixed ^ (mixed >> _HALF)) * _MIX
        return (mixed >> _HALF).astype(np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        chosen = np.zeros_like(scores)
        if len(feasible):
            chosen[feasible[scores[feasible].argmax()]] = MAX_NODE_SCORE
        return chosen
