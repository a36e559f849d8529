"""Which pods are never evicted, and which not now."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.selectors import parse_labels
from scheduler.tools.whatif.rebalancing.evictable_pods import Wanted
from tests.support.builders import node_object, pod_object
from tests.unit.tools.whatif.rebalancing.rebalanced_clusters import PACKING, budget, rebalancer_of, replica

NODES = (node_object("n1"), node_object("n2"))
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "batch", "annotations": {"custom-scheduler.io/min-run-time": "10m"}},
    "value": 100,
}
PROTECTING = f"{PACKING}  - name: DefaultPreemption\n    args: {{protection: {{}}}}\n"


def why_not(pod: dict[str, Any], *others: Any, config: str = PACKING, wanted: Wanted | None = None) -> str:
    cluster = rebalancer_of(*NODES, pod, *others, config=config, wanted=wanted)
    metadata = pod["metadata"]
    return cluster.evictable.why_not(cluster.pods[f"{metadata['namespace']}/{metadata['name']}"])


def volumes(*sources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    named = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    return replica("p", "n1", volumes=named, **fields)


def deleted(pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["deletionTimestamp"] = "2026-03-01T09:00:00Z"
    return pod


GROUP = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(pod_object("p", node="n1"), "has no controller", id="without a controller"),
        pytest.param(replica("p", "n1", kind="DaemonSet"), "belongs to its node", id="of a DaemonSet"),
        pytest.param(replica("p", "n1", kind="Node"), "belongs to its node", id="a static pod"),
        pytest.param(
            replica("p", "n1", annotations={"kubernetes.io/config.mirror": "x"}),
            "belongs to its node",
            id="a mirror pod by its annotation",
        ),
        pytest.param(
            replica("p", "n1", scheduler_name="other"), "has schedulerName other", id="of another scheduler"
        ),
        pytest.param(deleted(replica("p", "n1")), "is being deleted", id="terminating"),
        pytest.param(replica("p", "n1", priority=2_000_000_000), "is critical", id="critical"),
        pytest.param(
            replica("p", "n1", annotations={SAFE: "false"}), f"{SAFE}: false", id="not safe to evict"
        ),
        pytest.param(
            replica("p", "n1", annotations={"karpenter.sh/do-not-disrupt": "true"}),
            "karpenter.sh/do-not-disrupt: true",
            id="not to disrupt",
        ),
        pytest.param(
            replica("p", "n1", scheduling_group={"podGroupName": "g"}), "member of a group", id="of a group"
        ),
        pytest.param(
            replica("p", "n1", resource_claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]),
            "has claims of its own",
            id="with devices",
        ),
        pytest.param(
            volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
            "has claims of its own",
            id="with an ephemeral volume",
        ),
        pytest.param(volumes({"emptyDir": {}}), "local storage (volume v0)", id="with an empty directory"),
        pytest.param(
            volumes({"configMap": {"name": "c"}}, {"hostPath": {"path": "/x"}}),
            "local storage (volume v1)",
            id="with a path of the node",
        ),
        pytest.param(replica("p", "gone"), "on node gone, which does not exist", id="on an unknown node"),
        pytest.param(replica("p", "n1"), "", id="a replica"),
        pytest.param(replica("p", "n1", kind="StatefulSet"), "", id="of a StatefulSet"),
        pytest.param(volumes({"emptyDir": {"medium": "Memory"}}), "", id="with a directory in memory"),
        pytest.param(
            volumes({"emptyDir": {}}, annotations={SAFE: "true"}), "", id="with storage that is safe to lose"
        ),
        pytest.param(
            volumes({"emptyDir": {}}, {"emptyDir": {}}, annotations={f"{SAFE}-local-volumes": "v0, v1"}),
            "",
            id="with volumes that are safe to lose",
        ),
        pytest.param(
            volumes({"emptyDir": {}}, {"emptyDir": {}}, annotations={f"{SAFE}-local-volumes": "v0"}),
            "local storage (volume v1)",
            id="with another volume than the safe one",
        ),
    ],
)
def test_a_pod_is_evicted_only_if_it_is_replaced_and_loses_nothing(pod: dict[str, Any], expected: str):
    found = why_not(pod, GROUP)

    assert expected in found if expected else not found


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        pytest.param([budget("b", 1)], "", id="that allows one"),
        pytest.param([budget("b", 0)], "PodDisruptionBudget (b) that allows 0 evictions now", id="used up"),
        pytest.param(
            [budget("b", 1), budget("c", 1)], "several PodDisruptionBudgets (b and c)", id="several of them"
        ),
        pytest.param([budget("b", 0, app="db")], "", id="of other pods"),
        pytest.param([budget("b", 0, selector={})], "allows 0", id="of all pods of the namespace"),
        pytest.param([budget("b", 0, selector=None)], "", id="without a selector"),
        pytest.param([{**budget("b", 1), "status": {}}], "is not computed yet", id="without a status"),
    ],
)
def test_an_eviction_needs_what_the_disruption_budgets_allow(budgets: list[Any], expected: str):
    found = why_not(replica("p", "n1"), *budgets)

    assert expected in found if expected else not found


def test_evictions_that_do_not_wait_for_each_other_use_up_a_budget():
    cluster = rebalancer_of(*NODES, replica("p", "n1"), replica("q", "n1"), budget("b", 1))
    p, q = cluster.pods["default/p"], cluster.pods["default/q"]
    assert not cluster.evictable.why_not(q)

    cluster.evictable.budgets.note(p)

    assert "allows 1 eviction now" in cluster.evictable.why_not(q)


def test_a_protected_pod_is_not_evicted_until_its_protection_ends():
    began = "2999-01-01T00:00:00Z"  # it counts as a start now
    pod = replica("p", "n1", priority=100, priority_class_name="batch", status={"startTime": began})

    found = why_not(pod, PRIORITY_CLASS, config=PROTECTING)

    assert found.startswith("is protected from preemption by priority until ")
    assert found.endswith(", by PriorityClass batch")


def test_only_the_selected_pods_are_evicted():
    wanted = Wanted(("shop",), parse_labels("app=web"))

    assert not why_not(replica("p", "n1", namespace="shop"), wanted=wanted)
    assert "not selected" in why_not(replica("p", "n1"), wanted=wanted)
    assert "not selected" in why_not(replica("p", "n1", namespace="shop", owner="db"), wanted=wanted)
