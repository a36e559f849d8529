"""Prefers nodes that have the pod's images already, the more so the larger they are.

Source:
    kube-scheduler v1.36, plugins/imagelocality/image_locality.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework import MAX_NODE_SCORE, ScorePlugin, divide
from scheduler.objects.images import normalized_image_name

if TYPE_CHECKING:
    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ImageState, Int64s, Rows, Snapshot

_MIB = 1024 * 1024
_LOWEST_BYTES = 23 * _MIB
"""Images of this size in all are not worth a point."""
_HIGHEST_BYTES_PER_CONTAINER = 1000 * _MIB
"""Images of this size for each container are worth all points."""


class ImageLocality(ScorePlugin):
    """Scores by the size of the pod's images on the node.

    The size of an image counts by the share of nodes that have it, so that pods do not all follow the first one:
    a node's score depends on the others.
    """

    name = "ImageLocality"
    api_version = 1

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s | int:
        images = [snapshot.image(name) for name in _image_names(pod)]
        if not any(image.num_nodes for image in images):
            return 0
        total_bytes = np.zeros(snapshot.n_nodes, dtype=np.int64)
        for image in images:
            total_bytes += image.present * np.int64(_scaled_size(image, snapshot.n_nodes))
        spec = pod.pod.spec
        highest = _HIGHEST_BYTES_PER_CONTAINER * (len(spec.init_containers) + len(spec.containers))
        counted = np.where(total_bytes < _LOWEST_BYTES, _LOWEST_BYTES, np.minimum(total_bytes, highest))
        return divide((counted - _LOWEST_BYTES) * MAX_NODE_SCORE, highest - _LOWEST_BYTES)


def _image_names(pod: PodInfo) -> list[str]:
    """Return the image of each container and image volume, as nodes report it."""
    spec = pod.pod.spec
    images = [container.image for container in (*spec.init_containers, *spec.containers)]
    images += [volume.image.reference for volume in spec.volumes if volume.image is not None]
    return [normalized_image_name(image) for image in images]


def _scaled_size(image: ImageState, n_nodes: int) -> int:
    """Return the size that counts, in bytes."""
    scaled = int(float(image.size_bytes) * (float(image.num_nodes) / float(n_nodes)))
    # A size near the end of int64 rounds beyond it; Go's conversion (amd64) gives the lowest int64.
    return scaled if -(1 << 63) <= scaled < 1 << 63 else -(1 << 63)
