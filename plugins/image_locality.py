"""Prefers nodes that already have the pod's images, weighted by size.

Source:
    kube-scheduler v1.36, plugins/imagelocality/image_locality.go; v1.35 (ImageVolumeSizes), pull request #138951 for v1.37
    (ImageVolumeThreshold).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework import MAX_NODE_SCORE, Features, ScorePlugin, divide
from scheduler.objects.node import normalized_image_name
from scheduler.snapshot import wrapped

if TYPE_CHECKING:
    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot

_MIB = 1024 * 1024
_LOWEST_BYTES = 23 * _MIB
"""Up to this total size of images the score is 0."""
_HIGHEST_BYTES_PER_IMAGE = 1000 * _MIB
"""From this size of images for each counted image the score is the maximum."""
_FEW = 64
"""For a pod with more images all nodes are scanned, without cached columns."""


class ImageLocality(ScorePlugin):
    """Scores by the size of the pod's images on the node.

    The size of an image is weighted by the fraction of nodes that have it, so that pods do not all follow the first
    one: a node's score depends on the other nodes.
    """

    name = "ImageLocality"
    api_version = 1

    def __init__(self, *, features: Features) -> None:
        self._adds_volumes = features.enabled("ImageVolumeSizes")
        self._raises_threshold = features.enabled("ImageVolumeThreshold")

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s | int:
        spec = pod.pod.spec
        images = [container.image for container in (*spec.init_containers, *spec.containers)]
        of_volumes = [volume.image.reference for volume in spec.volumes if volume.image is not None]
        highest = _HIGHEST_BYTES_PER_IMAGE * (
            len(images) + (len(of_volumes) if self._raises_threshold else 0)
        )
        if self._adds_volumes:
            images += of_volumes
        total_bytes = _total_bytes(snapshot, [normalized_image_name(image) for image in images])
        if total_bytes is None:
            return 0
        counted = np.where(total_bytes < _LOWEST_BYTES, _LOWEST_BYTES, np.minimum(total_bytes, highest))
        return divide((counted - _LOWEST_BYTES) * MAX_NODE_SCORE, highest - _LOWEST_BYTES)


def _total_bytes(snapshot: Snapshot, names: list[str]) -> Int64s | None:
    """Return int64 (n_nodes,), the weighted sizes of the images on each node; None if no node has any.

    Args:
        snapshot: the cluster.
        names: the image of each container and image volume.
    """
    if len(names) <= _FEW:
        states = snapshot.images(names)
        if not any(state.num_nodes for state in states.values()):
            return None
        total_bytes = np.zeros(snapshot.n_nodes, dtype=np.int64)
        for name, state in states.items():
            size = _scaled_size(state.size_bytes, state.num_nodes, snapshot.n_nodes)
            total_bytes += state.present * np.int64(wrapped(names.count(name) * size))
        return total_bytes
    images = Counter(names)
    found = snapshot.images_on_nodes(images)
    if not found.rows.size:
        return None
    total_bytes = np.zeros(snapshot.n_nodes, dtype=np.int64)
    num_nodes = np.bincount(found.places, minlength=len(found.names)).tolist()
    of_image = [
        wrapped(images[name] * _scaled_size(size, number, snapshot.n_nodes))
        for name, size, number in zip(found.names, found.sizes_bytes, num_nodes, strict=True)
    ]
    np.add.at(total_bytes, found.rows, np.array(of_image, dtype=np.int64)[found.places])
    return total_bytes


def _scaled_size(size_bytes: int, num_nodes: int, n_nodes: int) -> int:
    """Return the weighted size in bytes of an image that `num_nodes` nodes have."""
    scaled = int(float(size_bytes) * (float(num_nodes) / float(n_nodes)))
    # A size near the maximum of int64 overflows after rounding; Go's conversion (amd64) gives the minimum int64.
    return scaled if -(1 << 63) <= scaled < 1 << 63 else -(1 << 63)
