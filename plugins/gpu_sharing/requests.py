"""What a pod asks of GPUs, by the annotations that Alibaba's trace and its simulator have."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

MILLI: Final = 1000
"""A whole GPU."""
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
"""Annotation of a pod: how much of each of its GPUs; 1000, if it only says how many."""
GPU_COUNT: Final = "alibabacloud.com/gpu-count"
"""Annotation of a pod: how many GPUs; 1, if it only says how much. Of a node it is a resource."""
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
"""Annotation of a pod: the models that will do, as in `V100M16|V100M32`. Of a node it is a label."""
GPU_INDEX: Final = "alibabacloud.com/gpu-index"
"""Annotation of a pod that has been given GPUs: which of its node, as in `0-3`."""


class GpuRequest(NamedTuple):
    """What one pod asks for.

    Attributes:
        milli: of each GPU, in thousandths.
        number: on so many different GPUs; 0 of a pod that asks for none.
        models: one of which it must be; any, if empty.
        fault: what is wrong with the annotations, if anything is.
    """

    milli: int = 0
    number: int = 0
    models: frozenset[str] = frozenset()
    fault: str = ""

    @property
    def total(self) -> int:
        """Of all GPUs together, in thousandths."""
        return self.milli * self.number

    @property
    def is_share(self) -> bool:
        """Whether it is content with a part of one GPU."""
        return self.number == 1 and self.milli < MILLI


NOTHING: Final = GpuRequest()


def gpu_request(pod: PodInfo) -> GpuRequest:
    """Return what a pod asks for."""
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
    """Return which GPUs of its node a pod was given, by its annotation; None if it does not say so."""
    text = pod.annotations.get(GPU_INDEX, "")
    parts = text.split("-")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return tuple(int(part[:8]) for part in parts)
