"""Nodes chosen all at once are those chosen one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from scheduler.objects.selectors import required_node_affinity
from scheduler.snapshot import nodes_required
from tests.clusters import Cluster, wild_clusters, wild_pods

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo


@given(wild_clusters("labels"), wild_pods("labels"))
def test_required_affinity_holds_where_it_holds_for_the_node(cluster: Cluster, pod: PodInfo):
    affinity = required_node_affinity(pod.pod.spec.node_selector, pod.node_affinity)

    chosen = nodes_required(cluster.snapshot(), affinity)

    assert chosen.tolist() == [affinity.matches(node.name, node.labels) for node in cluster.nodes]
