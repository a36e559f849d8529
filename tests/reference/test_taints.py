"""NodeUnschedulable and TaintToleration as loops over one node, from reading their Go files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from plugins.node_name import NodeName
from plugins.node_unschedulable import NodeUnschedulable
from plugins.taint_toleration import TaintToleration
from scheduler.testing.fakes import FakeFeatures
from tests.reference.go import default_normalize_score
from tests.reference.one_node import PASSES, filtered, one_by_one, scored
from tests.support.clusters import Cluster, wild_clusters, wild_pods

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo


def tolerates(toleration: dict, taint: dict) -> bool:
    """toleration.go, ToleratesTaint, without the comparison operators of a later feature."""
    if toleration["effect"] != "" and toleration["effect"] != taint["effect"]:
        return False
    if toleration["key"] != "" and toleration["key"] != taint["key"]:
        return False
    if toleration["operator"] == "" or toleration["operator"] == "Equal":
        return toleration["value"] == taint["value"]
    return toleration["operator"] == "Exists"


def any_tolerates(pod: PodInfo, taint: dict) -> bool:
    return any(tolerates(toleration, taint) for toleration in pod.object["spec"]["tolerations"])


@given(wild_clusters("taints"), wild_pods("taints"))
def test_cordoned_nodes_are_rejected_as_by_the_reference_loop(cluster: Cluster, pod: PodInfo):
    cordon = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
    refusal = ("UnschedulableAndUnresolvable", ("node(s) were unschedulable",))

    found = filtered(NodeUnschedulable(), pod, cluster.snapshot())

    assert found == [
        refusal if node.node.unschedulable and not any_tolerates(pod, cordon) else PASSES
        for node in one_by_one(cluster)
    ]


@given(wild_clusters("taints"), wild_pods("taints"))
def test_untolerated_taints_are_rejected_as_by_the_reference_loop(cluster: Cluster, pod: PodInfo):
    refusal = ("UnschedulableAndUnresolvable", ("node(s) had untolerated taint(s)",))

    found = filtered(TaintToleration(features=FakeFeatures()), pod, cluster.snapshot())

    expected = []
    for node in one_by_one(cluster):
        verdict = PASSES
        for taint in node.node.object["spec"]["taints"]:
            if taint["effect"] in {"NoSchedule", "NoExecute"} and not any_tolerates(pod, taint):
                verdict = refusal
        expected.append(verdict)
    assert found == expected


@given(wild_clusters("taints"), wild_pods("taints"))
def test_the_taint_score_is_that_of_the_reference_loop(cluster: Cluster, pod: PodInfo):
    counts = []
    for node in one_by_one(cluster):
        count = 0
        for taint in node.node.object["spec"]["taints"]:
            if taint["effect"] == "PreferNoSchedule" and not any_tolerates(pod, taint):
                count += 1
        counts.append(count)

    assert scored(
        TaintToleration(features=FakeFeatures()), pod, cluster.snapshot()
    ) == default_normalize_score(counts, reverse=True)


@given(wild_clusters("taints"))
def test_a_pod_with_a_node_name_passes_only_there(cluster: Cluster):
    from tests.support.builders import pod

    found = filtered(NodeName(), pod("p", nodeName="node-1"), cluster.snapshot())

    refusal = ("UnschedulableAndUnresolvable", ("node(s) didn't match the requested node name",))
    assert found == [PASSES if node.name == "node-1" else refusal for node in cluster.nodes]
