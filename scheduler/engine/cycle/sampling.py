"""percentageOfNodesToScore: ends the search in a large cluster after enough feasible nodes.

All nodes are evaluated at once, because array operations are cheap. The results that count are then selected as if the
nodes had been evaluated one after another.

Source:
    kube-scheduler v1.36, schedule_one.go, numFeasibleNodesToFind and findNodesThatPassFilters, as one worker runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.configuration.types import KubeSchedulerConfiguration
    from scheduler.engine.runtime.framework import Framework
    from scheduler.extensions.extenders import Extenders
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.snapshot import Bools, Rows

_FEWEST_NODES = 100
_LOWEST_PERCENTAGE = 5


def percentages_of(settings: KubeSchedulerConfiguration) -> dict[str, int]:
    """Return schedulerName -> effective percentageOfNodesToScore: the profile's own, or the configuration's."""
    return {
        profile.scheduler_name: settings.percentage_of_nodes_to_score
        if profile.percentage_of_nodes_to_score is None
        else profile.percentage_of_nodes_to_score
        for profile in settings.profiles
    }


def nodes_to_find(percentage: int, n_nodes: int) -> int:
    """Return the number of feasible nodes that ends the search.

    Args:
        percentage: percentage of the nodes; 0 means a share that decreases from 50 to 5 percent with the cluster's size.
        n_nodes: the number of nodes to search.
    """
    if n_nodes < _FEWEST_NODES:
        return n_nodes
    if percentage == 0:
        percentage = max(50 - n_nodes // 125, _LOWEST_PERCENTAGE)
    return max(n_nodes * percentage // 100, _FEWEST_NODES)


class NodeSampling:
    """Limits searches, and rotates their start, so that all nodes have the same chance.

    Args:
        percentages: schedulerName -> effective percentageOfNodesToScore.

    Attributes:
        next_start: the position among the nodes, in row order, where the next search begins.
    """

    def __init__(self, percentages: Mapping[str, int]) -> None:
        self._percentages = percentages
        self.next_start = 0

    def configure(self, percentages: Mapping[str, int]) -> None:
        """Replace the percentages; the start of the next search stays."""
        self._percentages = percentages

    def cut(
        self,
        framework: Framework,
        rows: Rows,
        feasible: Rows,
        diagnosis: Diagnosis,
        extenders: Extenders | None = None,
        preferred: Bools | None = None,
    ) -> Rows:
        """Return the feasible nodes within the search; the diagnosis loses the nodes after its end.

        If no plugin scores nodes and no extender filters them, the first feasible node is enough.

        Args:
            framework: the pod's profile.
            rows: the evaluated nodes, ascending.
            feasible: the feasible nodes, ascending.
            diagnosis: the filter results.
            extenders: the extenders, which are called after the plugins.
            preferred: (n_nodes,); a search that ends early is for these nodes, if one of them is feasible.
        """
        enough = nodes_to_find(self._percentages[framework.profile], len(rows))
        if not framework.scoring.has_scorers and not (extenders and extenders.choose):
            enough = min(enough, 1)
        if preferred is not None and len(feasible) > enough and preferred[feasible].any():
            diagnosis.leave_out(feasible[~preferred[feasible]])
            rows, feasible = rows[preferred[rows]], feasible[preferred[feasible]]
        if len(feasible) <= enough:
            self._advance(len(rows), diagnosis.n_nodes)
            return feasible
        begin = self.next_start % len(rows)
        in_order = np.concatenate((rows[begin:], rows[:begin]))
        passes = np.zeros(diagnosis.n_nodes, dtype=bool)
        passes[feasible] = True
        # The first feasible node beyond the limit ends the search; it and all later nodes count as not examined.
        end = int(np.flatnonzero(passes[in_order])[enough])
        looked_at = in_order[:end]
        diagnosis.leave_out(in_order[end:])
        self._advance(end, diagnosis.n_nodes)
        return np.sort(looked_at[passes[looked_at]])

    def _advance(self, nodes: int, n_nodes: int) -> None:
        self.next_start = (self.next_start + nodes) % n_nodes
