"""Leaves as little unusable GPU capacity as possible, measured by the most common request in the cluster.

The fragment of a node is its remaining GPU capacity modulo `typical`. The node with the smallest fragment wins. This is a
simple version of FragmentationGradientDescent.
"""

from typing import ClassVar

import numpy as np

from scheduler.framework import MAX_NODE_SCORE, PluginArgs, ScorePlugin


class FewerGpuFragmentsArgs(PluginArgs):
    resource: str = "example.com/gpu-milli"
    typical: int = 500


class FewerGpuFragments(ScorePlugin):
    name = "FewerGpuFragments"
    api_version = 1
    Args: ClassVar = FewerGpuFragmentsArgs

    def __init__(self, *, args: FewerGpuFragmentsArgs):
        self._resource, self._typical = args.resource, max(args.typical, 1)

    def signature(self, pod):
        return pod.resources.requests.get(self._resource, 0)

    def score(self, state, pod, snapshot, feasible):
        wanted = pod.resources.requests.get(self._resource, 0)
        left = snapshot.allocatable[self._resource] - snapshot.requested[self._resource] - wanted
        fragment = np.maximum(left, 0) % self._typical
        return MAX_NODE_SCORE - MAX_NODE_SCORE * fragment // self._typical
