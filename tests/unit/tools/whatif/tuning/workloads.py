"""A small workload that packing serves with fewer nodes, and one that only packing places."""

from __future__ import annotations

from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.simulation.workload import Arrival, Workload
from tests.support.builders import node, pod

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PACKING = (
    HEAD
    + """\
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}}
"""
)


def nodes(number: int) -> ClusterFile:
    return ClusterFile(nodes=[node(f"n-{each}", cpu="4", memory="16Gi") for each in range(number)])


def small() -> Workload:
    """Return 24 pods, one each ten seconds, each of which runs for 45 seconds; four nodes could run 64 of them."""
    arrivals = [Arrival(pod(f"p-{each}", cpu="250m", memory="1Gi"), 10.0 * each, 45.0) for each in range(24)]
    return Workload(nodes(4), arrivals)


def needs_packing() -> Workload:
    """Return pods that run without end on two nodes: the last one needs a whole node."""
    sizes = ["1", "1", "1", "4"]
    return Workload(
        nodes(2),
        [Arrival(pod(f"p-{each}", cpu=cpu, memory="4Gi"), 10.0 * each) for each, cpu in enumerate(sizes)],
    )
