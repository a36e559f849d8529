"""How much of a node's unused GPUs is a fragment: of no use to the pods that are to be expected.

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
    """A kind of pod that is to be expected.

    Attributes:
        milli_cpu: that it asks for.
        gpu_milli: of each of its GPUs; 0 of one that asks for none.
        gpu_count: how many.
        gpu_models: that will do; any, if empty.
        share: how many of all pods are of this kind; only the proportions count.
    """

    milli_cpu: int = 0
    gpu_milli: int = 0
    gpu_count: int = 0
    gpu_models: Sequence[str] = ()
    share: float = 1.0


class Expected:
    """The pods that are to be expected, as arrays.

    Attributes:
        pods: which.
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
        """Return the GPU share of each of m nodes, in thousandths, that an expected pod cannot use, on average.

        Of a pod that cannot be there at all this is all that is left; of any other the GPUs with too little left for it.

        Args:
            cpu: (m,), milliCPU left.
            left: (m, width), thousandths left of each GPU.
            accessible: (m, n_pods), whether the GPUs are of a model that will do.
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
