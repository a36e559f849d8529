"""How much of a node's unused GPU capacity is a fragment: not usable by the expected pods.

Source:
    "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023,
    and hkust-adsl/kubernetes-scheduler-simulator, pkg/utils/frag.go, NodeGpuShareFragAmountScore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from scheduler.snapshot import Bools, Float64s, Int64s


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
