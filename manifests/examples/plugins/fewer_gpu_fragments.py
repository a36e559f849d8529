"""Leaves as little as possible of a GPU that nobody can use: the request that the cluster mostly sees is the measure.

Of the GPUs' shares that would be left on a node, what is no multiple of `typical` is a fragment; the fewest of them win. A
small cousin of FragmentationGradientDescent.
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
