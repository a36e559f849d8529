"""Preemption: what the pods of a node would free in its NUMA zones, and what pods have freed that ended."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from plugins.node_resource_topology.pod_fingerprint import fingerprint, xxh64
from plugins.node_resource_topology.reservations import freed_by_pod
from plugins.node_resource_topology.topology_objects import NodeTopology, read_topology
from scheduler.framework import CycleState
from scheduler.framework.sliced_work import answer_to_end
from tests.unit.plugins.node_resource_topology.numa_cluster import (
    METADATA,
    VECTOR,
    NumaCluster,
    leb89,
    node_topology,
    numa_pod,
    with_placement,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugins.node_resource_topology.plugin import NodeResourceTopologyMatch
    from scheduler.objects.pod import PodInfo

UNALIGNED, EXCEEDING = (
    "cannot align container",
    "eviction simulation in NRT is not possible: resource release request exceeds NUMA allocatable",
)
ENABLED: dict[str, Any] = {"cacheResyncPeriodSeconds": 5, "preemptionMode": "Enabled"}
HALF, THREE = {"cpu": "2", "memory": "2Gi"}, {"cpu": "3", "memory": "3Gi"}
NAMES = [f"p{number}" for number in range(4)]


def full(
    zones: Mapping[str, int], *, name: str = "n", allocatable: str = "4", **fields: Any
) -> dict[str, Any]:
    """A node with two zones that are full; pod -> the zone that its container c0 has half of."""
    zone = {"cpu": allocatable, "memory": "16Gi"}
    included = fingerprint(("default", pod) for pod in zones)
    obj = node_topology(name, zone, zone, attributes={"nodeTopologyPodsFingerprint": included}, **fields)
    for each in obj["zones"]:
        for resource, amount in zip(each["resources"], ("0", "8Gi"), strict=True):
            resource["available"] = amount
    return with_placement(obj, {("default", pod, "c0"): number for pod, number in zones.items()})


def there(cluster: NumaCluster, *names: str, on: str = "n", **fields: Any) -> list[PodInfo]:
    """Run pods with two cpus each."""
    placed = [cluster.put(numa_pod(name, HALF, **fields), on) for name in names]
    for each in placed:
        cluster.runs(each)
    return placed


def reason_without(
    cluster: NumaCluster,
    plugin: NodeResourceTopologyMatch,
    wanted: PodInfo,
    evicted: Sequence[PodInfo],
    back: Sequence[PodInfo] = (),
) -> str:
    """Return why the node is rejected after some pods are evicted, and some of them are not; "" if it is not."""
    state, snapshot = CycleState(), cluster.snapshot
    assert answer_to_end(lambda: plugin.pre_filter(state, wanted, snapshot)) is None
    plugin.remove_pods(state, wanted, [(0, each) for each in evicted], snapshot)
    before = state.clone()
    plugin.add_pods(state, wanted, [(0, each) for each in back], snapshot)
    again = plugin.filter(before, wanted, snapshot, snapshot.all_rows).of(0).reasons
    outcome = plugin.filter(state, wanted, snapshot, snapshot.all_rows).of(0)
    assert plugin.filter(before, wanted, snapshot, snapshot.all_rows).of(0).reasons == again, "a clone"
    return "".join(map(str, outcome.reasons))


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_evicted_pods_free_their_own_zone(scope: str):
    cluster = NumaCluster(full(dict(zip(NAMES, (0, 0, 1, 1), strict=True)), scope=scope))
    pods, plugin, wanted = there(cluster, *NAMES), cluster.made(**ENABLED), numa_pod("high", THREE)

    aligning = {
        (one.name, other.name)
        for one, other in product(pods, pods)
        if not reason_without(cluster, plugin, wanted, [one, other])
    }
    assert aligning == {("p0", "p1"), ("p1", "p0"), ("p2", "p3"), ("p3", "p2")}
    assert reason_without(cluster, plugin, wanted, pods[:2], back=pods[1:2])
    assert not reason_without(cluster, plugin, wanted, pods, back=pods[2:])


def test_nodes_are_evaluated_together_by_their_own_pods():
    zones = {
        "container": {"p0": 0, "p1": 0},
        "pod": {"p2": 0, "p3": 1},
        "of others": {"p4": 1, "p5": 1},
    }
    cluster = NumaCluster()
    for scope, its in zones.items():
        cluster.add(full(its, name=scope, scope=scope if scope == "pod" else "container"))
    pods = [(row, pod) for row, name in enumerate(zones) for pod in there(cluster, *zones[name], on=name)]
    plugin, wanted = cluster.made(**ENABLED), numa_pod("high", THREE)
    assert len(cluster.rejected(plugin, wanted)) == len(zones)

    state, snapshot = CycleState(), cluster.snapshot
    plugin.pre_filter(state, wanted, snapshot)
    plugin.remove_pods(state, wanted, pods[:4], snapshot)
    assert plugin.filter(state, wanted, snapshot, snapshot.all_rows).passing.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("args", "obj"),
    [
        pytest.param({**ENABLED, "preemptionMode": "Disabled"}, None, id="disabled"),
        pytest.param({"preemptionMode": "Enabled"}, None, id="no cache"),
        pytest.param({**ENABLED, "discardReservedNodes": True}, None, id="no fingerprints are compared"),
        pytest.param(ENABLED, full({"p0": 0}), id="a placement of other pods"),
        pytest.param(ENABLED, node_topology("n", {"cpu": "0", "memory": "16Gi"}), id="no placement"),
    ],
)
def test_what_evictions_free_is_not_known(args: dict[str, Any], obj: dict[str, Any] | None):
    cluster = NumaCluster(obj or full({"p0": 0, "p1": 0}))
    pods, plugin = there(cluster, "p0", "p1"), cluster.made(cache={"foreignPodsDetect": "None"}, **args)
    assert reason_without(cluster, plugin, numa_pod("high", THREE), pods) == UNALIGNED


def test_pods_that_share_their_cpus_free_none():
    cluster = NumaCluster(full({"p0": 0}))
    pods = there(cluster, "p0"), there(cluster, "shared", guaranteed=False)
    cluster.store["n"]["attributes"][2]["value"] = fingerprint([("default", "p0"), ("default", "shared")])
    plugin = cluster.made(**ENABLED)

    assert reason_without(cluster, plugin, numa_pod("high", HALF), pods[1]) == UNALIGNED
    assert not reason_without(cluster, plugin, numa_pod("high", HALF), pods[0] + pods[1])


def test_no_node_is_used_that_would_have_more_free_than_is_allocatable():
    cluster = NumaCluster(full({"p0": 0, "p1": 0}, allocatable="3"))
    pods, plugin = there(cluster, "p0", "p1"), cluster.made(**ENABLED)
    assert reason_without(cluster, plugin, numa_pod("high", HALF), pods) == EXCEEDING
    assert not reason_without(cluster, plugin, numa_pod("high", HALF), pods[:1])


def test_nominated_pods_change_nothing():
    cluster = NumaCluster(full({"p0": 0, "p1": 0}))
    pods, plugin = there(cluster, "p0", "p1"), cluster.made(**ENABLED)
    nominated = numa_pod("nominated", HALF)
    assert not reason_without(cluster, plugin, numa_pod("high", HALF), pods, back=[nominated])
    assert reason_without(cluster, plugin, numa_pod("high", HALF), [], back=[nominated]) == UNALIGNED


def test_a_pod_that_ended_frees_its_zone_before_the_object_shows_it():
    """Otherwise the preemptor would evict other pods until the agent has written the object."""
    cluster = NumaCluster(full({"p0": 0, "p1": 0}))
    pods, plugin = there(cluster, "p0", "p1"), cluster.made(**ENABLED)
    high, next_one = numa_pod("high", THREE), numa_pod("next", HALF)
    assert cluster.rejected(plugin, high) == {"n": UNALIGNED}

    cluster.gone(pods[0])
    assert cluster.rejected(plugin, high) == {"n": UNALIGNED}
    cluster.gone(pods[1])
    assert cluster.rejected(plugin, high) == {}
    placed = cluster.place(plugin, high, "n")
    assert cluster.rejected(plugin, next_one) == {"n": UNALIGNED}

    cluster.runs(placed)
    cluster.store["n"] = full({"high": 0})
    assert cluster.rejected(plugin, next_one) == {"n": UNALIGNED}
    assert not reason_without(cluster, plugin, next_one, [placed])


def test_zones_of_containers_are_read_when_a_profile_begins_to_use_them():
    cluster = NumaCluster(full({"p0": 0, "p1": 0}))
    pods, before = there(cluster, "p0", "p1"), cluster.made(**{**ENABLED, "preemptionMode": "Disabled"})
    wanted = numa_pod("high", THREE)
    assert reason_without(cluster, before, wanted, pods) == UNALIGNED
    assert not reason_without(cluster, cluster.made(**ENABLED), wanted, pods)


# The placement of containers.


def topology(metadata: str, *vectors: str, cpu: str = "1") -> NodeTopology:
    obj = node_topology("n", *[{"cpu": cpu}] * 4, attributes={METADATA: metadata})
    for zone, vector in zip(obj["zones"], vectors, strict=False):
        zone["attributes"] = [{"name": VECTOR, "value": vector}] if vector else []
    found = read_topology(obj)
    assert isinstance(found, NodeTopology)
    return found


def placed(found: NodeTopology, *pods: PodInfo) -> dict[str, int]:
    """Pod -> the number of the zone of its only container."""
    return {
        pod.key: found.zones[freed_by_pod(found, pods)[pod.uid][0][0]].number
        for pod in pods
        if pod.uid in freed_by_pod(found, pods)
    }


def named(key: str) -> PodInfo:
    namespace, name = key.split("/")
    return numa_pod(name, {"cpu": "1", "memory": "1Gi"}, namespace=namespace)


def metadata(n_containers: int, n_zones: int, fullest: int) -> str:
    return f"npv0v001::ve=leb89::cc={n_containers}::nn={n_zones}::bn={fullest}"


@pytest.mark.parametrize(
    ("found", "zones"),
    [
        pytest.param(
            topology(metadata(4, 2, 0), "", "#"),
            {"ns1/pod1": 0, "ns1/pod2": 0, "ns1/pod3": 0, "ns2/pod1": 1},
            id="one in a vector",
        ),
        pytest.param(
            topology(metadata(4, 2, 0), "", "!%"),
            {"ns1/pod1": 0, "ns1/pod2": 0, "ns2/pod1": 1, "ns2/pod2": 1},
            id="two in a vector",
        ),
        pytest.param(
            topology(metadata(4, 2, 1), "$"),
            {"ns1/pod1": 0, "ns2/pod1": 1, "ns2/pod2": 1, "ns2/pod3": 1},
            id="most in the second zone",
        ),
        pytest.param(
            topology(metadata(5, 4, 0), "", "!", "'"),
            {"ns1/pod1": 0, "ns1/pod2": 0, "ns1/pod3": 0, "ns2/pod4": 1, "ns3/pod5": 2},
            id="several vectors",
        ),
    ],
)
def test_the_encoding_is_that_of_the_agents(
    found: NodeTopology, zones: dict[str, int], monkeypatch: pytest.MonkeyPatch
):
    """The expected values are those of the tests of numaplacement, whose containers have the name cnt1."""
    pods = [named(key) for key in zones]
    monkeypatch.setattr(
        "plugins.node_resource_topology.reservations.exclusive_requests",
        lambda *_: [("cnt1", (("cpu", 1000),))],
    )
    assert placed(found, *pods) == zones


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "!"), (1, "#"), (63, "e"), (64, "f!"), (1663, "~e"), (1664, "gf!"), (40_063, "~~e")],
)
def test_numbers_have_several_digits(number: int, text: str):
    """The container at that place of the order, and no other one, is in zone 1."""
    assert leb89(number) == text
    pods = [named(f"ns/p{each}") for each in range(max(number + 1, 2) if number < 64 else 66)]
    found = placed(topology(metadata(len(pods), 2, 0), "", text), *pods)
    ordered = sorted(pods, key=lambda pod: xxh64(f"ns\0{pod.name}\0c0".encode()))
    there = {pod.key for pod in ordered[number : number + 1]}
    assert {key for key, zone in found.items() if zone == 1} == there
    assert bool(found) == bool(there)


@pytest.mark.parametrize(
    ("text", "vectors"),
    [
        pytest.param(metadata(3, 2, 0), ("", "!"), id="other containers"),
        pytest.param(metadata(2, 2, 0), ("", "$"), id="a place beyond the last one"),
        pytest.param(metadata(2, 2, 0), ("", "!!"), id="a container twice"),
        pytest.param(metadata(2, 3, 0), ("", "!", "!"), id="a container in two zones"),
        pytest.param(metadata(2, 2, 0), ("", "f"), id="half a number"),
        pytest.param(metadata(2, 2, 0), ("", '"'), id="no digit"),
        pytest.param(metadata(2, 2, 0), ("", "é"), id="no ASCII"),
        pytest.param(metadata(2, 2, 0), ("", "f" * 100_000 + "!"), id="a number without end"),
    ],
)
def test_a_placement_that_does_not_fit_the_pods_is_of_no_use(text: str, vectors: tuple[str, ...]):
    found = topology(text, *vectors)
    assert found.problems == ()
    assert freed_by_pod(found, [named("ns/a"), named("ns/b")]) == {}


EXPECTED = "npv0v001::ve=leb89::cc=NUMBER::nn=NUMBER::bn=NUMBER is expected"


@pytest.mark.parametrize(
    ("text", "vectors", "problem"),
    [
        pytest.param("npv0v999::ve=leb89::cc=1::nn=2::bn=0", (), EXPECTED, id="another version"),
        pytest.param("npv0v001::ve=plain::cc=1::nn=2::bn=0", (), EXPECTED, id="another encoding"),
        pytest.param("npv0v001::ve=leb89::cc=1::nn=2", (), EXPECTED, id="a missing field"),
        pytest.param(metadata(1, 2, 0) + "::xx=1", (), EXPECTED, id="an unknown field"),
        pytest.param("npv0v001::ve=leb89::cc=-1::nn=2::bn=0", (), EXPECTED, id="no number"),
        pytest.param(metadata(1, 2, 2), (), "bn below nn is expected", id="an unknown zone"),
        pytest.param(
            metadata(1, 2, 0),
            ("!",),
            "vectors of zones below nn other than bn are expected",
            id="the fullest zone",
        ),
        pytest.param(
            metadata(1, 2, 0),
            ("", "", "!"),
            "vectors of zones below nn other than bn are expected",
            id="a further zone",
        ),
    ],
)
def test_invalid_metadata_are_named(text: str, vectors: tuple[str, ...], problem: str):
    found = topology(text, *vectors)
    assert found.placement is None
    assert [each.partition(", was")[0] for each in found.problems] == [f"attribute {METADATA}: {problem}"]
