"""Policies that score nodes for shared GPUs: by fragmentation, and those to which the paper compares it.

Scores, including rounding, are those of the paper's simulator, so that its figures can be reproduced.

Source:
    hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin, best_fit_score.go, dot_product_score.go (merged
    dimensions, normalised by the largest node), gpu_packing_score.go and gpu_clustering_score.go.
    "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023,
    and hkust-adsl/kubernetes-scheduler-simulator, pkg/utils/frag.go, NodeGpuShareFragAmountScore.
    hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin/fgd_score.go.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec
import numpy as np

from plugins.gpu_sharing import GPU_MODEL, MILLI, NO_SHARE, Gpus, gpu_request, kind_of, tightest
from scheduler.errors import FieldError
from scheduler.framework import MAX_NODE_SCORE, ClusterObjects, PluginArgs, ReservePlugin, ScorePlugin, Status

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from plugins.gpu_sharing import GpuRequest, GpusLeft
    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Float64s, Int64s, Rows, Snapshot

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


class TypicalPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A kind of expected pods.

    Attributes:
        milli_cpu: the cpu request.
        gpu_milli: the request of each GPU; 0 for a pod without GPUs.
        gpu_count: the number of GPUs.
        gpu_models: the accepted models; any, if empty.
        share: the number of pods of this kind; only the proportions count.
    """

    milli_cpu: int = 0
    gpu_milli: int = 0
    gpu_count: int = 0
    gpu_models: Sequence[str] = ()
    share: float = 1.0


class Expected:
    """The expected pods, as arrays.

    Attributes:
        pods: the kinds of pods.
    """

    def __init__(self, pods: Sequence[TypicalPod]) -> None:
        self.pods = tuple(pods)
        shares = np.array([pod.share for pod in self.pods])
        self._shares = shares / max(shares.sum(), 1e-300)
        self._cpu = np.array([pod.milli_cpu for pod in self.pods], dtype=np.int64)
        self._counts = np.array([pod.gpu_count for pod in self.pods], dtype=np.int64)
        milli = np.array([pod.gpu_milli for pod in self.pods], dtype=np.int64)
        self._wants_gpu = milli > 0
        self._sizes, self._size_of = np.unique(milli, return_inverse=True)

    def fragments(self, cpu: Int64s, left: Int64s, accessible: Bools) -> Float64s:
        """Return the GPU capacity of each of m nodes, in thousandths, that an expected pod cannot use, on average.

        For a pod that does not fit at all this is everything that is left; else the GPUs with too little left for it.

        Args:
            cpu: (m,), milliCPU left.
            left: (m, width), thousandths left of each GPU.
            accessible: (m, n_pods), whether the pod accepts the model of the GPUs.
        """
        total = left.sum(axis=1)
        enough = np.empty((len(left), len(self._sizes)), dtype=np.int64)
        crumbs = np.empty_like(enough)
        for place, size in enumerate(self._sizes.tolist()):  # few: pods ask for round numbers
            fits = left >= size
            enough[:, place] = fits.sum(axis=1)
            crumbs[:, place] = np.where(fits, 0, left).sum(axis=1)
        fits_there = (
            self._wants_gpu
            & accessible
            & (enough[:, self._size_of] >= self._counts)
            & (cpu[:, None] >= self._cpu)
        )
        lost = np.where(fits_there, crumbs[:, self._size_of], total[:, None])
        amount: Float64s = lost @ self._shares
        return amount


_NO_NUMBER = 1e-6
"""Smaller differences come from the order of floating point additions."""


class FragmentationGradientDescentArgs(PluginArgs, frozen=True):
    """Arguments of FragmentationGradientDescent.

    Attributes:
        typical_pods: the kinds of expected pods, as `custom-scheduler simulate --typical-pods` finds them. Without any,
          nothing is a fragment and all nodes have the same score.
    """

    typical_pods: Sequence[TypicalPod] = ()

    def faults(self) -> Iterator[FieldError]:
        for index, pod in enumerate(self.typical_pods):
            for name, value in (
                ("milliCpu", pod.milli_cpu),
                ("gpuMilli", pod.gpu_milli),
                ("gpuCount", pod.gpu_count),
            ):
                if value < 0:
                    yield FieldError(f"typicalPods[{index}].{name}", f"must be 0 or more, was {value}")
            if not 0 < pod.share < float("inf"):
                yield FieldError(f"typicalPods[{index}].share", f"must be more than 0, was {pod.share}")


class FragmentationGradientDescent(ScorePlugin, ReservePlugin):
    """Scores 50 where the pod creates no fragment, less where it creates more; gives it the GPU that loses least."""

    name = "FragmentationGradientDescent"
    api_version = 1
    reason_codes = MappingProxyType(
        {NO_SHARE.code: "the GPUs of the node have less left than the pod requests"}
    )
    Args = FragmentationGradientDescentArgs

    def __init__(self, *, args: FragmentationGradientDescentArgs, objects: ClusterObjects) -> None:
        self._expected = Expected(args.typical_pods)
        self._objects = objects
        self._gpus = Gpus.of(objects)

    def signature(self, pod: PodInfo) -> Hashable:
        return gpu_request(pod), cpu_request(pod)

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        left = self._gpus.left(snapshot, feasible).left[feasible]
        scores = np.zeros(snapshot.n_nodes, dtype=np.int64)
        if len(feasible):
            per_choice = self._scores(
                pod, cpu_left(snapshot)[feasible], left, self._accessible(snapshot, feasible)
            )
            scores[feasible] = np.maximum(per_choice.max(axis=1), 0)
        return scores

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        request, snapshot = gpu_request(pod), self._objects.snapshot()
        row = snapshot.row_of(node_name)
        if not request.is_share or row is None:
            return None  # whole GPUs are equivalent; GpuSharing allocates them
        left = self._gpus.left_without(pod, snapshot, row)
        if left.max(initial=0) < request.milli:
            return Status.unschedulable(NO_SHARE)
        cpu = cpu_left(snapshot)[[row]] + cpu_request(pod)
        accessible = self._accessible(snapshot, np.array([row], dtype=np.intp))
        per_choice = self._scores(pod, cpu, left[None, :], accessible)
        self._gpus.give(pod, [int(per_choice[0].argmax())])
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._gpus.take_back(pod)

    def _accessible(self, snapshot: Snapshot, rows: Rows) -> Bools:
        """Return bool (m, n_pods), whether an expected pod accepts the model of a node's GPUs."""
        accessible = np.ones((len(rows), len(self._expected.pods)), dtype=np.bool_)
        for place, typical in enumerate(self._expected.pods):
            if typical.gpu_models:
                accessible[:, place] = snapshot.label(GPU_MODEL).among(frozenset(typical.gpu_models))[rows]
        return accessible

    def _scores(self, pod: PodInfo, cpu: Int64s, left: Int64s, accessible: Bools) -> Int64s:
        """Return int64 (m, n_choices): one score for each GPU that a pod may share, -1 where it does not fit; else one score."""
        request = gpu_request(pod)
        before = self._expected.fragments(cpu, left, accessible)
        cpu = cpu - cpu_request(pod)
        if not request.is_share:
            after = self._expected.fragments(cpu, _with_whole(left, request), accessible)
            return _score(before - after)[:, None]
        width = left.shape[1]
        # All choices at once: a copy of the nodes for each of their GPUs.
        choices = np.repeat(left[:, None, :], width, axis=1)
        places = np.arange(width)
        choices[:, places, places] -= request.milli
        fits = choices[:, places, places] >= 0
        np.maximum(choices, 0, out=choices)
        after = self._expected.fragments(
            np.repeat(cpu, width), choices.reshape(-1, width), np.repeat(accessible, width, axis=0)
        )
        scores = _score(before[:, None] - after.reshape(-1, width))
        return np.where(fits, scores, -1)


def _with_whole(left: Int64s, request: GpuRequest) -> Int64s:
    """Return what is left after a pod got whole GPUs on every node."""
    if not request.number:
        return left
    left, chosen = left.copy(), tightest(left, request)
    taken = np.take_along_axis(left, chosen, axis=1) - request.milli
    np.put_along_axis(left, chosen, np.maximum(taken, 0), axis=1)
    return left


def _score(gained: Float64s) -> Int64s:
    """Convert the change of fragments, in thousandths of a GPU, to a score of 0 to 100."""
    steps = np.where(np.abs(gained) < _NO_NUMBER, 0.0, gained) / 1000.0
    with np.errstate(over="ignore"):
        return (MAX_NODE_SCORE / (1.0 + np.exp(-steps))).astype(np.int64)
