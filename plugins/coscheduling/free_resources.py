"""Whether the resources of a whole group are free, on all nodes together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.objects.resource_names import PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.snapshot import Snapshot


def resource_gap(needed: Mapping[str, int], snapshot: Snapshot) -> dict[str, int]:
    """Return what is missing, resource -> amount; nothing if all nodes together have enough.

    Args:
        needed: resource -> milliCPU, bytes or a count.
        snapshot: the cluster.

    Source:
        scheduler-plugins, pkg/coscheduling/core/core.go, CheckClusterResource. Here an overcommitted node counts as full,
        not as negative.
    """
    gap = {}
    for name, amount in needed.items():
        taken = snapshot.pod_count if name == PODS else snapshot.requested[name]
        missing = amount - int(np.maximum(snapshot.allocatable[name] - taken, 0).sum())
        if missing > 0:
            gap[name] = missing
    return gap
