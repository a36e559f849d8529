from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.simulation.edits import EditError, scaled, with_nodes, without
from tests.support.builders import node, pod, pod_object

COST = "controller.kubernetes.io/pod-deletion-cost"
ZONE = "topology.kubernetes.io/zone"


def owned(name: str, kind: str, owner: str, **fields: Any) -> Any:
    obj = pod_object(name, **fields)
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
    obj["metadata"]["ownerReferences"] = [reference]
    return decode_pod(msgspec.json.encode(obj))


HASH = {"pod-template-hash": "7d9f8b6c5"}
CLUSTER = ClusterFile(
    nodes=[
        node("n-a", cpu="4", labels={ZONE: "a", "kubernetes.io/hostname": "n-a"}, unschedulable=True),
        node("n-b", cpu="8", labels={ZONE: "b"}),
    ],
    pods=[
        owned("web-1", "ReplicaSet", "web-7d9f8b6c5", node="n-a", labels=HASH),
        owned("web-2", "ReplicaSet", "web-7d9f8b6c5", labels=HASH),
        owned("db-0", "StatefulSet", "db", node="n-b"),
        owned("agent", "DaemonSet", "agent", node="n-a"),
        pod("alone", node="n-a"),
    ],
)


def names(cluster: ClusterFile) -> list[str]:
    return [pod.name for pod in cluster.pods]


def test_nodes_like_another_are_added_as_schedulable():
    added = with_nodes(CLUSTER, f"2:like=n-a,{ZONE}=c").nodes[2:]

    assert [each.name for each in added] == ["added-1", "added-2"]
    assert [each.labels["kubernetes.io/hostname"] for each in added] == ["added-1", "added-2"]
    assert {(each.allocatable["cpu"], each.labels[ZONE], each.unschedulable) for each in added} == {
        (4000, "c", False)
    }


def test_nodes_of_a_shape_offer_its_amounts_and_have_its_labels():
    (added,) = with_nodes(CLUSTER, "1:cpu=8,memory=32Gi,example.com/gpu=4,zone=c,disk=ssd").nodes[2:]

    assert (added.allocatable["cpu"], added.allocatable["memory"]) == (8000, 32 * 2**30)
    assert (added.allocatable["example.com/gpu"], added.allocatable["pods"]) == (4, 110)
    assert (added.labels[ZONE], added.labels["disk"]) == ("c", "ssd")


def test_pods_of_a_removed_zone_are_recreated_except_those_of_daemon_sets():
    left = without(CLUSTER, f"{ZONE} in (a)")

    assert [each.name for each in left.nodes] == ["n-b"]
    assert {each.name: each.node_name for each in left.pods} == {
        "web-1": "",
        "web-2": "",
        "db-0": "n-b",
        "alone": "",
    }


def test_a_factor_is_used_exactly_as_written():
    pods = [owned(f"job-{number}", "Job", "job") for number in range(100)]

    assert len(scaled(ClusterFile(pods=pods), "job/job=1.1x").pods) == 110


def test_scaling_gives_the_controller_the_new_number_of_replicas():
    controllers = {
        "apps/v1/replicasets": {"default/web-7d9f8b6c5": b'{"spec": {"replicas": 2}}'},
        "apps/v1/statefulsets": {"default/db": b'{"spec": {"replicas": 3}}', "default/other": b"{}"},
    }
    cluster = replace(CLUSTER, others=controllers)

    def replicas(text: str) -> list[int]:
        kinds = scaled(cluster, text).others.values()
        return [
            msgspec.json.decode(raw)["spec"]["replicas"]
            for kind in kinds
            for raw in kind.values()
            if b"spec" in raw
        ]

    assert replicas("deployment/web=7") == [7, 3]
    assert replicas("statefulset/db=0") == [2, 2], "one pod less, although the controller wants more"
    assert msgspec.json.decode(controllers["apps/v1/replicasets"]["default/web-7d9f8b6c5"]) == {
        "spec": {"replicas": 2}
    }


def test_pods_with_a_low_deletion_cost_are_removed_before_newer_ones():
    costs = [5, -1, 0]
    pods = [
        owned(f"web-{number}", "ReplicaSet", "web", node="n-a", annotations={COST: str(cost)})
        for number, cost in enumerate(costs)
    ]

    assert names(scaled(ClusterFile(pods=pods), "replicaset/web=2")) == ["web-0", "web-2"]


@pytest.mark.parametrize(
    ("text", "there"),
    [
        pytest.param(
            "deployment/web=2x", ["web-1", "web-2", "web-1-more-1", "web-1-more-2"], id="twice a Deployment"
        ),
        pytest.param("deployment/web=1", ["web-1"], id="fewer, and the pending one is removed"),
        pytest.param("replicaset/web-7d9f8b6c5=0", [], id="none"),
        pytest.param("statefulset/default/db=3", ["db-0", "db-1", "db-2"], id="a StatefulSet, by namespace"),
        pytest.param("deployment/web=1.5x", ["web-1", "web-2", "web-1-more-1"], id="rounded up"),
    ],
)
def test_a_workload_is_scaled(text: str, there: list[str]):
    kind = text.partition("/")[0]
    prefix = "db" if kind == "statefulset" else "web"

    found = scaled(CLUSTER, text)

    assert [name for name in names(found) if name.startswith(prefix)] == there
    assert all(not each.node_name for each in found.pods if each.name not in names(CLUSTER))
    assert len({each.uid for each in found.pods}) == len(found.pods)


@pytest.mark.parametrize(
    ("edit", "text", "message"),
    [
        pytest.param(with_nodes, "n-a", "must be NUMBER:like=NODE", id="no number"),
        pytest.param(with_nodes, "1:like=x", "--add-nodes 1:like=x: there is no node x", id="unknown node"),
        pytest.param(with_nodes, "1:cpu=8", "memory is missing", id="no memory"),
        pytest.param(with_nodes, "1:cpu=x,memory=1Gi", "cpu: must be a quantity, was 'x'", id="no quantity"),
        pytest.param(with_nodes, "1:cpu", "'cpu' must be NAME=VALUE", id="no value"),
        pytest.param(without, "zone=x", "no node matches", id="no such zone"),
        pytest.param(without, "zone in", "unable to parse requirement", id="no selector"),
        pytest.param(scaled, "deployment/web", "must be KIND/", id="no size"),
        pytest.param(
            scaled,
            "deployment/x=2",
            "the workload has no pods; workloads with pods: daemonset/agent",
            id="unknown workload",
        ),
    ],
)
def test_an_invalid_edit_is_refused(edit: Any, text: str, message: str):
    with pytest.raises(EditError) as error:
        edit(CLUSTER, text)

    assert message in str(error.value)
