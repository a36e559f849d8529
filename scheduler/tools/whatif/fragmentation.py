"""Free capacity that pods cannot use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.snapshot import Float64s


def fragmentation(
    free: Mapping[str, Float64s], kinds: Iterable[tuple[Mapping[str, float], float]]
) -> dict[str, float]:
    """Return resource -> the share of free capacity on nodes that pods do not fit, averaged over kinds of pods.

    Args:
        free: resource -> free capacity, float64[nodes].
        kinds: for each kind of pods, its requests of these resources, and its share of all pods.
    """
    lost = dict.fromkeys(free, 0.0)
    for wanted, share in kinds:
        fits = np.logical_and.reduce([amounts >= wanted[name] for name, amounts in free.items()])
        for name in lost:
            lost[name] += share * float(free[name][~fits].sum())
    return {name: round(amount / max(float(free[name].sum()), 1.0), 6) for name, amount in lost.items()}
