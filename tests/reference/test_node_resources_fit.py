"""NodeResourcesFit's rules as loops over one node, from reading fit.go and the scorers beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from plugins.node_resources.fit import NodeResourcesFit
from scheduler.objects.resource_names import is_extended_resource_name, is_scalar_resource_name
from tests.reference.go import divide, to_int64, wrap
from tests.reference.one_node import PASSES, OneNode, Verdict, filtered, one_by_one, scored
from tests.support.clusters import RESOURCES, Cluster, wild_clusters, wild_pods
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

arguments = st.fixed_dictionaries(
    {
        "ignoredResources": st.lists(st.sampled_from(RESOURCES), max_size=1),
        "ignoredResourceGroups": st.lists(st.sampled_from(["example.com", "nvidia.com"]), max_size=1),
    }
)
specs = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from([*RESOURCES, "pods"]), "weight": st.integers(0, 100)}),
    max_size=4,
)
shapes = st.lists(
    st.fixed_dictionaries({"utilization": st.integers(0, 100), "score": st.integers(0, 10)}),
    min_size=1,
    max_size=4,
    unique_by=lambda point: point["utilization"],
).map(lambda shape: sorted(shape, key=lambda point: point["utilization"]))
strategies = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["LeastAllocated", "MostAllocated"]), "resources": specs}),
    st.fixed_dictionaries(
        {
            "type": st.just("RequestedToCapacityRatio"),
            "resources": specs,
            "requestedToCapacityRatio": st.fixed_dictionaries({"shape": shapes}),
        }
    ),
)


def fits(pod: PodInfo, node: OneNode, ignored: list[str], groups: list[str]) -> Verdict:
    """fit.go, fitsRequest and Filter."""
    requests = pod.resources.requests
    reasons, hopeless = [], False
    if len(node.pods) + 1 > node.allocatable("pods"):
        reasons.append("Too many pods")
    for resource in ("cpu", "memory", "ephemeral-storage"):
        amount = requests.get(resource, 0)
        if amount > 0 and amount > wrap(node.allocatable(resource) - node.requested(resource)):
            reasons.append(f"Insufficient {resource}")
            hopeless = hopeless or amount > node.allocatable(resource)
    for resource in sorted(requests):
        amount = requests[resource]
        if resource in {"cpu", "memory", "ephemeral-storage"} or amount == 0:
            continue
        if is_extended_resource_name(resource) and (resource in ignored or resource.split("/")[0] in groups):
            continue
        if amount > wrap(node.allocatable(resource) - node.requested(resource)):
            reasons.append(f"Insufficient {resource}")
            hopeless = hopeless or amount > node.allocatable(resource)
    if not reasons:
        return PASSES
    return "UnschedulableAndUnresolvable" if hopeless else "Unschedulable", tuple(reasons)


def usage(pod_request: int, resource: str, node: OneNode) -> tuple[int, int]:
    """resource_allocation.go, calculateNodeAllocatableRequest, of one resource: (requested, allocatable)."""
    if pod_request == 0 and is_scalar_resource_name(resource):
        return 0, 0
    if resource in {"cpu", "memory"}:
        allocated = node.nonzero_requested(resource)
    elif resource == "ephemeral-storage" or is_scalar_resource_name(resource):
        allocated = node.requested(resource)
    else:
        return 0, 0
    if node.allocatable(resource) == 0:
        return 0, 0
    return wrap(allocated + pod_request), node.allocatable(resource)


def line(shape: list[dict[str, int]], at: int) -> int:
    """shape_score.go, BuildBrokenLinearFunction."""
    points = [(point["utilization"], point["score"] * 10) for point in shape]
    for index, (utilization, score) in enumerate(points):
        if at <= utilization:
            if index == 0:
                return points[0][1]
            before, low = points[index - 1]
            return low + divide((score - low) * (at - before), utilization - before)
    return points[-1][1]


def score_of_one(strategy: dict, requested: int, capacity: int) -> int:
    if strategy["type"] == "LeastAllocated":
        if requested > capacity:
            return 0
        return divide(wrap(wrap(capacity - requested) * 100), capacity)
    if strategy["type"] == "MostAllocated":
        return divide(wrap(min(requested, capacity) * 100), capacity)
    shape = strategy["requestedToCapacityRatio"]["shape"]
    if requested > capacity:
        return line(shape, 100)
    return line(shape, divide(wrap(requested * 100), capacity))


def rank(pod: PodInfo, node: OneNode, strategy: dict) -> int:
    resources = strategy["resources"] or [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    total, weights = 0, 0
    by_ratio = strategy["type"] == "RequestedToCapacityRatio"
    for resource in resources:
        name, weight = resource["name"], resource["weight"] or 1
        requested, capacity = usage(pod.resources.fit_score.get(name, 0), name, node)
        if capacity == 0:
            continue
        score = score_of_one(strategy, requested, capacity)
        if by_ratio and score <= 0:
            continue
        total = wrap(total + wrap(score * weight))
        weights += weight
    if weights == 0:
        return 0
    if by_ratio:
        mean = float(total) / float(weights)
        return to_int64(math.floor(mean) + (1 if mean - math.floor(mean) >= 0.5 else 0))
    return divide(total, weights)


@given(wild_clusters("resources"), wild_pods("resources"), arguments)
def test_the_filter_agrees_with_the_reference_loop(cluster: Cluster, pod: PodInfo, args: dict):
    plugin = made(NodeResourcesFit, **args)

    found = filtered(plugin, pod, cluster.snapshot())

    ignored, groups = args["ignoredResources"], args["ignoredResourceGroups"]
    assert found == [fits(pod, node, ignored, groups) for node in one_by_one(cluster)]


@given(wild_clusters("resources"), wild_pods("resources"), strategies)
def test_the_score_is_that_of_the_reference_loop(cluster: Cluster, pod: PodInfo, strategy: dict):
    plugin = made(NodeResourcesFit, scoringStrategy=strategy)

    found = scored(plugin, pod, cluster.snapshot())

    assert found == [rank(pod, node, strategy) for node in one_by_one(cluster)]
