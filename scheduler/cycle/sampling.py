"""percentageOfNodesToScore: in a large cluster, stop looking once enough feasible nodes are found.

All nodes are judged at once, since that costs an array's worth; which of the verdicts count is then decided as if
one node had been looked at after another.

Source:
    kube-scheduler v1.36, schedule_one.go, numFeasibleNodesToFind and findNodesThatPassFilters, as one worker runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.configuration.types import KubeSchedulerConfiguration
    from scheduler.extenders.chain import Extenders
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.runtime.framework import Framework
    from scheduler.snapshot import Rows

_FEWEST_NODES = 100
_LOWEST_PERCENTAGE = 5


def percentages_of(settings: KubeSchedulerConfiguration) -> dict[str, int]:
    """Return schedulerName -> percentageOfNodesToScore in effect: the profile's own, else the configuration's."""
    return {
        profile.scheduler_name: settings.percentage_of_nodes_to_score
        if profile.percentage_of_nodes_to_score is None
        else profile.percentage_of_nodes_to_score
        for profile in settings.profiles
    }


def nodes_to_find(percentage: int, n_nodes: int) -> int:
    """Return how many feasible nodes are enough.

    Args:
        percentage: of the nodes; 0 stands for a share that shrinks from 50 to 5 percent as the cluster grows.
        n_nodes: how many nodes there are to look at.
    """
    if n_nodes < _FEWEST_NODES:
        return n_nodes
    if percentage == 0:
        percentage = max(50 - n_nodes // 125, _LOWEST_PERCENTAGE)
    return max(n_nodes * percentage // 100, _FEWEST_NODES)


class NodeSampling:
    """Where the search ends, and where the next pod's begins, so that all nodes have the same chance.

    Args:
        percentages: schedulerName -> percentageOfNodesToScore in effect.

    Attributes:
        next_start: the place among the nodes, in row order, where the next search begins.
    """

    def __init__(self, percentages: Mapping[str, int]) -> None:
        self._percentages = percentages
        self.next_start = 0

    def configure(self, percentages: Mapping[str, int]) -> None:
        """Take other percentages; the next search begins where it would have begun."""
        self._percentages = percentages

    def cut(
        self,
        framework: Framework,
        rows: Rows,
        feasible: Rows,
        diagnosis: Diagnosis,
        extenders: Extenders | None = None,
    ) -> Rows:
        """Return the feasible nodes that the search comes to; the nodes after its end leave the diagnosis.

        Where nobody ranks nodes and no extender filters them, the first feasible one is enough.

        Args:
            framework: the pod's profile.
            rows: the nodes that were judged, ascending.
            feasible: the ones that passed, ascending.
            diagnosis: the verdicts.
            extenders: who is asked after the plugins.
        """
        enough = nodes_to_find(self._percentages[framework.profile], len(rows))
        if not framework.scoring.has_scorers and not (extenders and extenders.choose):
            enough = min(enough, 1)
        if len(feasible) <= enough:
            self._advance(len(rows), diagnosis.n_nodes)
            return feasible
        begin = self.next_start % len(rows)
        in_order = np.concatenate((rows[begin:], rows[:begin]))
        passes = np.zeros(diagnosis.n_nodes, dtype=bool)
        passes[feasible] = True
        # One too many is what ends the search; it and all after it were not looked at.
        end = int(np.flatnonzero(passes[in_order])[enough])
        looked_at = in_order[:end]
        diagnosis.leave_out(in_order[end:])
        self._advance(end, diagnosis.n_nodes)
        return np.sort(looked_at[passes[looked_at]])

    def _advance(self, nodes: int, n_nodes: int) -> None:
        self.next_start = (self.next_start + nodes) % n_nodes
