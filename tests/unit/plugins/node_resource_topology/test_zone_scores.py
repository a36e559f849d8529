"""Scores by NUMA zones; the cases are those of the tests of scheduler-plugins, with other numbers."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.node_resource_topology.requests import zone_request
from plugins.node_resource_topology.topology_objects import NodeTopology, read_topology
from tests.unit.plugins.node_resource_topology.numa_cluster import NumaCluster, node_topology, numa_pod

GPU = "example.com/gpu"


def strategy(type_: str, **weights: int) -> dict[str, Any]:
    return {
        "type": type_,
        "resources": [{"name": name, "weight": weight} for name, weight in weights.items()],
    }


SIZES = (
    ("small", {"cpu": "2", "memory": "100Mi"}),
    ("middle", {"cpu": "4", "memory": "400Mi"}),
    ("large", {"cpu": "8", "memory": "200Mi"}),
)
"""Nodes of two equal zones."""
WANTED = numa_pod("p", {"cpu": "2", "memory": "50Mi"})


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize(
    ("type_", "scores"),
    [
        # (free cpu + free memory) / 2, in percent
        pytest.param("LeastAllocated", {"small": 25, "middle": 68, "large": 75}, id="least allocated"),
        pytest.param("MostAllocated", {"small": 75, "middle": 31, "large": 25}, id="most allocated"),
        # 100 * (1 - variance of the two shares): (1, 0.5), (0.5, 0.125), (0.25, 0.25)
        pytest.param("BalancedAllocation", {"small": 87, "middle": 92, "large": 100}, id="balanced"),
    ],
)
def test_a_node_is_scored_by_what_the_pod_takes_of_a_zone(type_: str, scores: dict[str, int], scope: str):
    cluster = NumaCluster(*(node_topology(name, zone, zone, scope=scope) for name, zone in SIZES))

    assert cluster.scores(cluster.made(scoringStrategy=strategy(type_)), WANTED) == scores


def test_resources_have_weights():
    cluster = NumaCluster(node_topology("n", {"cpu": "4", "memory": "100Mi"}))
    plugin = cluster.made(scoringStrategy=strategy("MostAllocated", cpu=3, memory=1))

    assert cluster.scores(plugin, numa_pod("p", {"cpu": "4", "memory": "50Mi"})) == {"n": 87}


def test_the_lowest_score_of_the_zones_that_hold_the_pod_counts():
    cluster = NumaCluster(
        node_topology(
            "n",
            {"cpu": "8", "memory": "100Mi"},
            {"cpu": "4", "memory": "100Mi"},
            {"cpu": "1", "memory": "10Mi"},
        )
    )

    # 75 and 50, 50 and 50; the last zone holds neither
    assert cluster.scores(cluster.made(), WANTED) == {"n": 50}


def test_the_containers_scores_are_averaged():
    cluster = NumaCluster(node_topology("n", {"cpu": "10", "memory": "100Mi"}))
    wanted = numa_pod("p", {"cpu": "1", "memory": "10Mi"}, {"cpu": "5", "memory": "50Mi"})

    assert cluster.scores(cluster.made(), wanted) == {"n": (90 + 50) // 2}


def test_cpus_are_scored_as_whole_ones():
    cluster = NumaCluster(node_topology("n", {"cpu": "4", "memory": "100Mi"}))
    wanted = numa_pod("p", {"cpu": "2500m", "memory": "100Mi"})

    assert cluster.scores(cluster.made(), wanted) == {"n": (25 + 0) // 2}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_other_policies_are_scored_by_the_number_of_zones_only(policy: str):
    cluster = NumaCluster(node_topology("n", {"cpu": "4", "memory": "100Mi"}, policy=policy))

    assert cluster.scores(cluster.made(), WANTED) == {"n": 0}
    assert cluster.scores(cluster.made(scoringStrategy=strategy("LeastNUMANodes")), WANTED) == {"n": 94}


def test_pods_that_are_not_guaranteed_are_not_scored():
    cluster = NumaCluster(node_topology("n", {"cpu": "4", "memory": "100Mi"}))

    assert cluster.scores(cluster.made(), numa_pod("p", {"cpu": "1"}, guaranteed=False)) is None


def test_nodes_without_an_object_have_the_lowest_score():
    cluster = NumaCluster(*(node_topology(name, {"cpu": "8", "memory": "1Gi"}) for name in ("a", "b")))
    del cluster.store["b"]

    assert cluster.scores(cluster.made(), WANTED) == {"a": 85, "b": 0}


# The number of zones.

FEW = (("n4", "4"), ("n2", "2"), ("n6", "6"))


@pytest.mark.parametrize(
    ("scope", "cpus", "scores"),
    [
        pytest.param("container", ["2"], {"n4": 94, "n2": 94, "n6": 94}, id="one zone"),
        pytest.param("container", ["4"], {"n4": 94, "n2": 82, "n6": 94}, id="two zones of a small node"),
        pytest.param("container", ["6"], {"n4": 82, "n2": 0, "n6": 94}, id="more than a small node has"),
        pytest.param("container", ["2", "2"], {"n4": 94, "n2": 94, "n6": 94}, id="a zone for each container"),
        pytest.param("container", ["1", "3"], {"n4": 94, "n2": 82, "n6": 94}, id="most of the containers"),
        pytest.param(
            "container", ["5", "3"], {"n4": 82, "n2": 0, "n6": 94}, id="the second one in what is left"
        ),
        pytest.param("pod", ["2", "2"], {"n4": 94, "n2": 82, "n6": 94}, id="a pod as a whole"),
        pytest.param("pod", ["5", "3"], {"n4": 82, "n2": 0, "n6": 82}, id="a large pod as a whole"),
    ],
)
def test_fewer_zones_are_better(scope: str, cpus: list[str], scores: dict[str, int]):
    cluster = NumaCluster(
        *(
            node_topology(name, *[{"cpu": each, "memory": "1Gi"}] * 2, policy="best-effort", scope=scope)
            for name, each in FEW
        )
    )
    plugin = cluster.made(scoringStrategy=strategy("LeastNUMANodes"))

    wanted = numa_pod("p", *({"cpu": each, "memory": "1Mi"} for each in cpus))
    assert cluster.scores(plugin, wanted) == scores


NEAR = ((10, 12, 20, 20), (12, 10, 20, 20), (20, 20, 10, 12), (20, 20, 12, 10))
"""Two pairs of near zones."""


def with_costs(name: str, costs: Any, *zones: dict[str, str], **more: Any) -> dict[str, Any]:
    topology = node_topology(name, *zones, policy="best-effort", **more)
    for zone, row in zip(topology["zones"], costs, strict=True):
        zone["costs"] = [{"name": f"node-{number}", "value": cost} for number, cost in enumerate(row)]
    return topology


def test_of_as_many_zones_the_nearest_are_better():
    with_gpu, without = ({"cpu": "2", "memory": "1Gi", GPU: count} for count in ("1", "0"))
    cluster = NumaCluster(
        with_costs("near", NEAR, with_gpu, with_gpu, without, without),
        with_costs("far", NEAR, with_gpu, without, with_gpu, without),
    )
    plugin = cluster.made(scoringStrategy=strategy("LeastNUMANodes"))

    one, two = ({"cpu": "2", "memory": "1Mi", GPU: count} for count in ("1", "2"))
    assert cluster.scores(plugin, numa_pod("p", one)) == {"near": 94, "far": 94}
    assert cluster.scores(plugin, numa_pod("q", two)) == {"near": 82, "far": 76}


def test_the_kubelets_number_of_zones_scales_the_score():
    zone = {"cpu": "2", "memory": "1Gi"}
    cluster = NumaCluster(
        node_topology("n", zone, zone, attributes={"topologyManagerMaxNUMANodes": "4"}),
        node_topology("m", zone, zone, attributes={"topologyManagerMaxNUMANodes": "5000"}),
    )
    plugin = cluster.made(scoringStrategy=strategy("LeastNUMANodes"))

    assert cluster.scores(plugin, numa_pod("p", {"cpu": "4", "memory": "1Mi"})) == {"n": 62, "m": 100}


def test_a_node_with_more_than_eight_zones_has_the_lowest_score():
    zone = {"cpu": "2", "memory": "1Gi"}
    cluster = NumaCluster(node_topology("eight", *[zone] * 8), node_topology("nine", *[zone] * 9))
    plugin = cluster.made(scoringStrategy=strategy("LeastNUMANodes"))

    assert cluster.scores(plugin, numa_pod("p", {"cpu": "1", "memory": "1Mi"})) == {"eight": 94, "nine": 0}


# A slow reference for the number of zones.

_amounts = st.fixed_dictionaries(
    {"cpu": st.integers(0, 4).map(str), "memory": st.integers(1, 4).map("{}Gi".format)},
    optional={GPU: st.integers(0, 2).map(str)},
)
_costs = st.lists(
    st.lists(st.sampled_from([10, 12, 20, 255]), min_size=4, max_size=4), min_size=4, max_size=4
)


@st.composite
def _nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for place in range(draw(st.integers(1, 3))):
        zones = draw(st.lists(_amounts, min_size=1, max_size=4))
        costs = [row[: len(zones)] for row in draw(_costs)[: len(zones)]]
        found.append(
            with_costs(f"n{place}", costs, *zones, scope=draw(st.sampled_from(["pod", "container"])))
        )
    return found


def slow_score(topology: NodeTopology, request: Any) -> int:
    zones = [dict(zone.available) for zone in topology.zones]
    most, is_nearest = 0, True
    every = (
        [each.amounts for each in request.containers] if topology.scope == "container" else [request.whole]
    )
    for amounts in every:
        if not any(name in zone for name, _ in amounts for zone in zones):
            continue
        for size in range(1, len(zones) + 1):
            ways = []
            for members in combinations(range(len(zones)), size):
                apart = sum(
                    topology.zones[one].costs[topology.zones[other].number]
                    for one in members
                    for other in members
                )
                fits = all(name in zones[member] for name, _ in amounts for member in members) and all(
                    sum(zones[member][name] for member in members) >= amount
                    for name, amount in amounts
                    if amount
                )
                ways.append((apart, members, fits))
            fitting = [(apart, members) for apart, members, fits in ways if fits]
            if fitting:
                apart, members = min(fitting)
                most = max(most, size)
                is_nearest &= apart == min(each[0] for each in ways)
                for name, amount in amounts:
                    left = amount
                    for member in members:
                        used = min(left, zones[member][name])
                        zones[member][name] -= used
                        left -= used
                break
        else:
            return 0
    if not most:
        return 100
    return 100 - most * 12 + (6 if is_nearest else 0)


@given(_nodes(), st.lists(_amounts, min_size=1, max_size=3))
def test_zones_are_counted_as_by_a_loop_over_combinations(nodes: list[Any], containers: list[dict[str, str]]):
    wanted = numa_pod("p", *({**each, "cpu": f"{int(each['cpu']) or 1}"} for each in containers))
    cluster = NumaCluster(*nodes)
    plugin = cluster.made(scoringStrategy=strategy("LeastNUMANodes"))

    expected = {}
    for each in nodes:
        topology = read_topology(each)
        assert isinstance(topology, NodeTopology)
        expected[each["metadata"]["name"]] = slow_score(topology, zone_request(wanted))
    assert cluster.scores(plugin, wanted) == expected
