"""How much of what is free nobody can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.snapshot import Float64s


def fragmentation(
    free: Mapping[str, Float64s], kinds: Iterable[tuple[Mapping[str, float], float]]
) -> dict[str, float]:
    """Return resource -> the share of what is free that lies on nodes where pods do not fit, on average over kinds of them.

    Args:
        free: resource -> what nobody asks for, float64[nodes].
        kinds: what a pod of each asks for of these resources, and the kind's share of all pods.
    """
    lost = dict.fromkeys(free, 0.0)
    for wanted, share in kinds:
        fits = np.logical_and.reduce([amounts >= wanted[name] for name, amounts in free.items()])
        for name in lost:
            lost[name] += share * float(free[name][~fits].sum())
    return {name: round(amount / max(float(free[name].sum()), 1.0), 6) for name, amount in lost.items()}
