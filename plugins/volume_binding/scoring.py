"""Scores nodes by how full the storage that a pod would use there becomes.

Source:
    kube-scheduler v1.36, plugins/volumebinding/scorer.go, and volume_binding.go, Score; v1.37 differs only in the default of
    the feature gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.node_resources.allocation import (
    MAX_SHAPE_SCORE,
    RequestedToCapacityRatio,
    UtilizationShapePoint,
    rounded,
)
from plugins.volumes.storage import StorageObjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugins.volume_binding.node_volumes import NodeVolumes
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot

DEFAULT_SHAPE: Final = (
    UtilizationShapePoint(utilization=0, score=MAX_SHAPE_SCORE),
    UtilizationShapePoint(utilization=100, score=0),
)
"""The emptiest storage is the best.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/defaults.go, SetDefaults_VolumeBindingArgs.
"""


class StorageScorer:
    """Scores the utilization of storage by a line through given points of rising utilization."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._line = RequestedToCapacityRatio([(point.utilization, point.score) for point in shape])

    def score(self, found: NodeVolumes, snapshot: Snapshot, rows: Rows) -> Int64s:
        """Return int64 (n_nodes,), the mean score of the classes used on each of some nodes; 0 without any."""
        total, number = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        for use in _use_by_class(found, StorageObjects(snapshot), rows):
            # Without capacity, storage counts as full.
            has_any = use.capacity != 0
            scores = self._line.score(np.where(has_any, use.requested, 2), np.where(has_any, use.capacity, 1))
            total += np.where(use.is_used, scores, 0)
            number += use.is_used
        scored = np.zeros(snapshot.n_nodes, dtype=np.int64)
        scored[rows] = rounded(total / np.maximum(number, 1))
        return scored


class _Use:
    """The use of one class on some nodes, each (n,).

    Attributes:
        requested: int64, what the claims request, in bytes.
        capacity: int64, the size of the volumes that would be bound, or the free capacity for new ones, in bytes.
        is_used: bool, whether the class counts.
    """

    def __init__(self, n: int) -> None:
        self.requested: Int64s = np.zeros(n, dtype=np.int64)
        self.capacity: Int64s = np.zeros(n, dtype=np.int64)
        self.is_used: Bools = np.zeros(n, dtype=np.bool_)


def _use_by_class(found: NodeVolumes, storage: StorageObjects, rows: Rows) -> Iterable[_Use]:
    """Return the use of each class: on nodes with volumes to bind only these count, elsewhere the volumes to provision."""
    classes: dict[str, _Use] = {}
    binds = np.zeros(len(rows), dtype=np.bool_)
    for match in found.matches:
        names, places = match.volumes_on(rows)
        volumes = [storage.volume(name) for name in names]
        sizes = np.array([0 if each is None else each.spec.capacity.quantity.value() for each in volumes])
        of_class: dict[str, list[int]] = {}
        for number, volume in enumerate(volumes):
            of_class.setdefault("" if volume is None else volume.spec.storage_class_name, []).append(number)
        for name, numbers in of_class.items():
            there = np.isin(places, numbers)
            use = _of(classes, name, len(rows))
            use.requested[there] += match.claim.spec.resources.requests.quantity.value()
            use.capacity[there] += sizes[places[there]]
            use.is_used |= there
        binds |= places >= 0
    for claim, needed in found.provisions(rows):
        free = found.free_bytes(claim)
        if free is None:
            continue
        there = needed & ~binds & (free[rows] >= 0)
        use = _of(classes, claim.spec.storage_class_name or claim.class_name, len(rows))
        use.requested[there] += claim.spec.resources.requests.quantity.value()
        use.capacity[there] = free[rows][there]
        use.is_used |= there
    return classes.values()


def _of(classes: dict[str, _Use], name: str, n: int) -> _Use:
    found = classes.get(name)
    if found is None:
        found = classes[name] = _Use(n)
    return found
