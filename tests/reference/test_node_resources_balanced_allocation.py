"""NodeResourcesBalancedAllocation as a loop over one node, from reading balanced_allocation.go."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from scheduler.configuration.feature_gates import VERSIONS
from scheduler.objects.resource_names import is_scalar_resource_name
from scheduler.testing.fakes import FakeFeatures
from tests.reference.go import divide, to_int64, wrap
from tests.reference.one_node import OneNode, one_by_one, scored
from tests.support.clusters import RESOURCES, Cluster, wild_clusters, wild_pods
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

names = st.lists(st.sampled_from([*RESOURCES, "pods"]), unique=True, max_size=5)


def balance(amounts: list[tuple[int, int]]) -> int:
    """balanced_allocation.go, balancedResourceScore, of (requested, allocatable) pairs."""
    fractions = []
    total = 0.0
    for requested, allocatable in amounts:
        if allocatable == 0:
            continue
        fraction = float(requested) / float(allocatable)
        if fraction > 1:
            fraction = 1.0
        total += fraction
        fractions.append(fraction)
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = total / float(len(fractions))
        squares = 0.0
        for fraction in fractions:
            squares = squares + (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / float(len(fractions)))
    return to_int64((1 - deviation) * 100.0)


def rank(pod: PodInfo, node: OneNode, resources: list[str], version: str) -> int:
    with_pod, without_pod = [], []
    for name in resources:
        request = pod.resources.balanced_score.get(name, 0)
        scalar = is_scalar_resource_name(name)
        known = name in {"cpu", "memory", "ephemeral-storage"} or scalar
        if not known or (scalar and request == 0):
            continue
        with_pod.append((wrap(node.requested(name) + request), node.allocatable(name)))
        without_pod.append((node.requested(name), node.allocatable(name)))
    if version < "1.36":
        return balance(with_pod)
    change = wrap(wrap(50 + balance(with_pod)) - balance(without_pod))
    return wrap(50 + divide(change, 2))


@given(wild_clusters("resources"), wild_pods("resources"), names, st.sampled_from(VERSIONS))
def test_the_score_is_that_of_the_reference_loop(
    cluster: Cluster, pod: PodInfo, resources: list[str], version: str
):
    args = {"resources": [{"name": name} for name in resources]}
    plugin = made(NodeResourcesBalancedAllocation, features=FakeFeatures(version), **args)

    found = scored(plugin, pod, cluster.snapshot())

    counted = resources or ["cpu", "memory"]
    if not any(pod.resources.balanced_score.get(name, 0) for name in counted):
        assert found == "Skip"
    else:
        assert found == [rank(pod, node, counted, version) for node in one_by_one(cluster)]
