"""The GPU request of a pod, by the annotations of Alibaba's trace and its simulator."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

MILLI: Final = 1000
"""A whole GPU."""
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
"""Annotation of a pod: the thousandths of each of its GPUs; 1000, if only the number is given."""
GPU_COUNT: Final = "alibabacloud.com/gpu-count"
"""Annotation of a pod: the number of GPUs; 1, if only the thousandths are given. On a node it is a resource."""
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
"""Annotation of a pod: the accepted models, as in `V100M16|V100M32`. On a node it is a label."""
GPU_INDEX: Final = "alibabacloud.com/gpu-index"
"""Annotation of a pod with allocated GPUs: their indexes on its node, as in `0-3`."""


class GpuRequest(NamedTuple):
    """The GPU request of one pod.

    Attributes:
        milli: of each GPU, in thousandths.
        number: the number of different GPUs; 0 for a pod without GPUs.
        models: the accepted models; any, if empty.
        fault: the error in the annotations, if any.
    """

    milli: int = 0
    number: int = 0
    models: frozenset[str] = frozenset()
    fault: str = ""

    @property
    def total(self) -> int:
        """The sum over all GPUs, in thousandths."""
        return self.milli * self.number

    @property
    def is_share(self) -> bool:
        """Whether it requests a part of one GPU."""
        return self.number == 1 and self.milli < MILLI


NOTHING: Final = GpuRequest()


def gpu_request(pod: PodInfo) -> GpuRequest:
    """Return the GPU request of a pod."""
    said = pod.annotations
    if GPU_MILLI not in said and GPU_COUNT not in said:
        return NOTHING
    return _read(said.get(GPU_MILLI, str(MILLI)), said.get(GPU_COUNT, "1"), said.get(GPU_MODEL, ""))


@lru_cache(maxsize=4096)
def _read(milli: str, count: str, models: str) -> GpuRequest:
    for name, text, most in ((GPU_MILLI, milli, MILLI), (GPU_COUNT, count, 1024)):
        if not (text.isascii() and text.isdigit() and int(text[:8]) <= most):
            return GpuRequest(fault=f"annotation {name} must be a number from 0 to {most}, was {text!r:.80}")
    if not int(milli) or not int(count):
        return NOTHING
    return GpuRequest(int(milli), int(count), frozenset(filter(None, models.split("|"))))


def given_gpus(pod: PodInfo) -> tuple[int, ...] | None:
    """Return the GPUs of its node that a pod has, by its annotation; None without one."""
    text = pod.annotations.get(GPU_INDEX, "")
    parts = text.split("-")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return tuple(int(part[:8]) for part in parts)
