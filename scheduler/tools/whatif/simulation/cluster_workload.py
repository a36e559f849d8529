"""A cluster from a file as a workload: its pending pods arrive at the beginning, its other pods stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.evaluation import is_pending
from scheduler.tools.whatif.simulation.workload import Arrival, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.pod import PodInfo


def of_cluster(cluster: ClusterFile) -> Workload:
    """Return a cluster as a workload."""
    pending: Sequence[PodInfo] = [pod for pod in cluster.pods if is_pending(pod)]
    there = [pod for pod in cluster.pods if pod.node_name]
    return Workload(
        ClusterFile(cluster.nodes, there, cluster.others),
        [Arrival(pod, 0.0) for pod in sorted(pending, key=lambda pod: -pod.priority)],
    )
