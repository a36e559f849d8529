"""Keeps whole GPU nodes free: pods with GPUs fill nodes in use, and pods without GPUs avoid GPU nodes.

If small requests are spread over the nodes, each node has a few free GPUs, and a pod that requests eight fits no node.
All nodes are scored at once, as arrays.
"""

from typing import ClassVar

import numpy as np

from scheduler.framework import MAX_NODE_SCORE, PluginArgs, ScorePlugin


class GpuPackingArgs(PluginArgs):
    resource: str = "nvidia.com/gpu"


class GpuPacking(ScorePlugin):
    name = "GpuPacking"
    api_version = 1
    Args: ClassVar = GpuPackingArgs

    def __init__(self, *, args: GpuPackingArgs):
        self._resource = args.resource

    def signature(self, pod):
        return pod.resources.requests.get(self._resource, 0)

    def score(self, state, pod, snapshot, feasible):
        gpus = snapshot.allocatable[self._resource]
        wanted = pod.resources.requests.get(self._resource, 0)
        if wanted == 0:
            return np.where(gpus == 0, MAX_NODE_SCORE, 0)
        used = np.minimum(snapshot.requested[self._resource] + wanted, gpus)
        return MAX_NODE_SCORE * used // np.maximum(gpus, 1)
