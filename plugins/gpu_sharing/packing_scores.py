"""The policies to which "Beware of Fragmentation" compares its own: packing, and a random node.

Scores, including rounding, are those of the paper's simulator, so that its figures can be reproduced.

Source:
    hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin, best_fit_score.go, dot_product_score.go (merged
    dimensions, normalised by the largest node), gpu_packing_score.go and gpu_clustering_score.go.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

from plugins.gpu_sharing.gpus import MILLI, Gpus, gpu_request, kind_of, tightest
from scheduler.framework import MAX_NODE_SCORE, ClusterObjects, ScorePlugin

if TYPE_CHECKING:
    from collections.abc import Hashable

    from plugins.gpu_sharing.gpus import GpuRequest, GpusLeft
    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Float64s, Int64s, Rows, Snapshot

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


LARGEST_CPU: Final = 128_000
"""MilliCPU of the largest node."""
LARGEST_GPU: Final = 8 * MILLI
"""Thousandths of GPUs of the largest node."""


class GpuScore(ScorePlugin):
    """The base of these policies: they read the cpu and the GPUs that are left.

    Args:
        objects: the state that the plugins that allocate GPUs share.
    """

    api_version = 1

    def __init__(self, *, objects: ClusterObjects) -> None:
        self._gpus = Gpus.of(objects)

    def signature(self, pod: PodInfo) -> Hashable:
        return gpu_request(pod), cpu_request(pod)

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        return self.score_all(pod, gpu_request(pod), self._gpus.left(snapshot, feasible), snapshot)

    @abstractmethod
    def score_all(self, pod: PodInfo, request: GpuRequest, gpus: GpusLeft, snapshot: Snapshot) -> Int64s:
        """Return int64 (n_nodes,)."""


class GpuShareBestFit(GpuScore):
    """Prefers the node with the least cpu and GPU left, as fractions of the largest node."""

    name = "GpuShareBestFit"

    def score_all(self, pod: PodInfo, request: GpuRequest, gpus: GpusLeft, snapshot: Snapshot) -> Int64s:
        cpu = (cpu_left(snapshot) - cpu_request(pod)) / LARGEST_CPU
        gpu = (gpus.left.sum(axis=1) - request.total) / LARGEST_GPU
        left = 0.5 * cpu + 0.5 * gpu
        return _within((1.0 - left) * MAX_NODE_SCORE)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        if not len(feasible):
            return scores
        low, high = scores[feasible].min(), scores[feasible].max()
        stretched: Int64s = (scores - low) * MAX_NODE_SCORE // max(high - low, 1)
        return _within(stretched)


class GpuShareDotProduct(GpuScore):
    """Prefers the node whose free cpu and GPUs match the pod's requests least, as Tetris packs."""

    name = "GpuShareDotProduct"

    def score_all(self, pod: PodInfo, request: GpuRequest, gpus: GpusLeft, snapshot: Snapshot) -> Int64s:
        cpu = cpu_left(snapshot) / LARGEST_CPU * (cpu_request(pod) / LARGEST_CPU)
        gpu = gpus.left.sum(axis=1) / LARGEST_GPU * (request.total / LARGEST_GPU)
        return _within(MAX_NODE_SCORE * (1 - (cpu + gpu) / 2))


class GpuSharePacking(GpuScore):
    """Prefers GPUs that are shared already, then unused GPUs of nodes in use, then unused nodes."""

    name = "GpuSharePacking"

    def score_all(self, pod: PodInfo, request: GpuRequest, gpus: GpusLeft, snapshot: Snapshot) -> Int64s:
        if not request.number:
            return np.zeros(snapshot.n_nodes, dtype=np.int64)
        whole = (gpus.left == MILLI).sum(axis=1)
        chosen = np.take_along_axis(gpus.left, tightest(gpus.left, request), axis=1)
        whole_chosen = (chosen == MILLI).sum(axis=1)
        shared = np.maximum(MAX_NODE_SCORE - (chosen * 100 // MILLI).sum(axis=1) // 10, MAX_NODE_SCORE // 2)
        in_use = np.maximum(MAX_NODE_SCORE // 2 - whole_chosen, MAX_NODE_SCORE // 3)
        unused = np.maximum(MAX_NODE_SCORE // 3 - whole, np.minimum(whole, MAX_NODE_SCORE))
        score = np.where(whole == gpus.counts, unused, np.where(whole_chosen > 0, in_use, shared))
        return np.where(gpus.fitting(request), score, 0).astype(np.int64)


class GpuShareClustering(GpuScore):
    """Prefers nodes with pods of the same kind: pods that share a GPU, or with the same number of whole GPUs."""

    name = "GpuShareClustering"

    def score_all(self, pod: PodInfo, request: GpuRequest, gpus: GpusLeft, snapshot: Snapshot) -> Int64s:
        if not request.number:
            return np.zeros(snapshot.n_nodes, dtype=np.int64)
        quarter = MAX_NODE_SCORE // 4
        own = kind_of(request)
        others, is_alone = gpus.kinds & ~own != 0, gpus.kinds == own
        place = np.select([is_alone, gpus.kinds & own != 0, ~others], [3, 2, 1], 0)
        used = np.maximum(LARGEST_GPU - gpus.left.sum(axis=1), 0)
        return _within(quarter * used // LARGEST_GPU + quarter * place)


def cpu_left(snapshot: Snapshot) -> Int64s:
    """Return int64 (n_nodes,), milliCPU that is not requested."""
    left: Int64s = snapshot.allocatable["cpu"] - snapshot.requested["cpu"]
    return left


def cpu_request(pod: PodInfo) -> int:
    """Return the milliCPU that a pod requests."""
    return pod.resources.requests.get("cpu", 0)


def _within(scores: Float64s | Int64s) -> Int64s:
    """Limit scores to 0 to 100, and truncate them."""
    return np.clip(scores, 0, MAX_NODE_SCORE).astype(np.int64)
