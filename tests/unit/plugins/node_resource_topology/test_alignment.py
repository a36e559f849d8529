"""Which nodes hold a pod in one NUMA zone; the cases are those of the tests of scheduler-plugins, with other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.node_resource_topology.alignment import ALIGNED, unaligned
from plugins.node_resource_topology.requests import zone_request
from plugins.node_resource_topology.topology_objects import NodeTopology, read_topology
from plugins.node_resource_topology.zone_table import ZoneTable
from scheduler.loop_work import run_to_end
from tests.support.builders import pod
from tests.unit.plugins.node_resource_topology.numa_cluster import (
    NumaCluster,
    container,
    node_topology,
    numa_pod,
)

NIC, GPU, HUGE = "example.com/nic", "example.com/gpu", "hugepages-2Mi"
CONTAINER, POD, INIT, SIDECAR = (
    f"cannot align {what}" for what in ("container", "pod", "init container", "sidecar container")
)

SMALL = {"cpu": "4", "memory": "8Gi", NIC: "10", HUGE: "128Mi"}
LARGE = {"cpu": "8", "memory": "8Gi", NIC: "2", HUGE: "128Mi"}


def by_scope() -> NumaCluster:
    """Two equal nodes, of which one aligns containers, the other the pod as a whole."""
    return NumaCluster(
        node_topology("each", SMALL, LARGE),
        node_topology("whole", SMALL, LARGE, scope="pod"),
        allocatable={GPU: "2"},
    )


@pytest.mark.parametrize(
    ("wanted", "is_rejected"),
    [
        pytest.param(numa_pod("p", {"cpu": "2", "memory": "2Gi"}), False, id="a zone holds it"),
        pytest.param(numa_pod("p", {"cpu": "8", "memory": "8Gi"}), False, id="it fills a zone"),
        pytest.param(numa_pod("p", {"cpu": "9", "memory": "1Gi"}), True, id="no zone has as many cpus"),
        pytest.param(numa_pod("p", {"cpu": "8", "memory": "1Gi", NIC: "3"}), True, id="no zone has both"),
        pytest.param(numa_pod("p", {"cpu": "2", "memory": "1Gi", NIC: "0"}), False, id="none of a device"),
        pytest.param(
            numa_pod("p", {"cpu": "2", "memory": "1Gi", "example.com/other": "0"}),
            False,
            id="none of an unknown device",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "2", "memory": "1Gi", "example.com/other": "1"}),
            True,
            id="a device that the node lacks",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "2", "memory": "1Gi", GPU: "2"}),
            False,
            id="a device of the node that is in no zone",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"}),
            False,
            id="storage is in no zone",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "2", "memory": "1Gi", HUGE: "128Mi"}), False, id="huge pages of a zone"
        ),
        pytest.param(
            numa_pod("p", {"cpu": "2", "memory": "1Gi", HUGE: "130Mi"}), True, id="too many huge pages"
        ),
        pytest.param(
            numa_pod("p", {"cpu": "2", "memory": "1Gi", "hugepages-1Gi": "1Gi"}),
            True,
            id="huge pages of a size that no zone has",
        ),
        pytest.param(numa_pod("p", {}), False, id="best effort"),
        pytest.param(numa_pod("p", {NIC: "10"}), False, id="best effort with devices of a zone"),
        pytest.param(numa_pod("p", {NIC: "11"}), True, id="best effort with too many devices"),
        pytest.param(
            numa_pod("p", {"cpu": "20", "memory": "40Gi"}, guaranteed=False),
            False,
            id="burstable: cpu and memory are shared",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "20", NIC: "5"}, guaranteed=False), False, id="burstable with devices"
        ),
        pytest.param(
            numa_pod("p", {"cpu": "1", NIC: "11"}, guaranteed=False),
            True,
            id="burstable with too many devices",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "1", HUGE: "256Mi"}, guaranteed=False),
            False,
            id="burstable: huge pages are shared",
        ),
    ],
)
def test_a_pod_of_one_container_needs_one_zone_in_either_scope(wanted: Any, is_rejected: bool):
    cluster = by_scope()
    found = cluster.rejected(cluster.made(), wanted)

    assert found == ({"each": CONTAINER, "whole": POD} if is_rejected else {})


@pytest.mark.parametrize(
    ("wanted", "rejected"),
    [
        pytest.param(
            numa_pod("p", *[{"cpu": "4", "memory": "4Gi"}] * 3),
            {"whole": POD},
            id="three containers in two zones",
        ),
        pytest.param(
            numa_pod("p", *[{"cpu": "4", "memory": "4Gi"}] * 4),
            {"each": CONTAINER, "whole": POD},
            id="the fourth finds no zone",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "1", "memory": "1Gi"}, init=({"cpu": "9", "memory": "1Gi"},)),
            {"each": INIT, "whole": POD},
            id="an init container finds no zone",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "8", "memory": "8Gi"}, init=({"cpu": "8", "memory": "8Gi"},) * 3),
            {},
            id="init containers end before",
        ),
        pytest.param(
            numa_pod("p", *[{"cpu": "2", "memory": "1Gi", NIC: "6"}] * 2),
            {"each": CONTAINER, "whole": POD},
            id="the lowest zone is used up by the first container",
        ),
        pytest.param(
            numa_pod("p", {"cpu": "1", "memory": "1Gi"}, overhead={"cpu": "7500m"}),
            {"whole": POD},
            id="the overhead counts for the pod as a whole",
        ),
    ],
)
def test_containers_are_aligned_one_after_another_or_together(wanted: Any, rejected: dict[str, str]):
    cluster = by_scope()

    assert cluster.rejected(cluster.made(), wanted) == rejected


def test_a_sidecar_is_named_in_the_reason():
    cluster = by_scope()
    large = container({"cpu": "9", "memory": "1Gi"}, restartPolicy="Always")
    wanted = pod("p", containers=[container({"cpu": "1", "memory": "1Gi"})], initContainers=[large])

    assert cluster.rejected(cluster.made(), wanted) == {"each": SIDECAR, "whole": POD}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "unknown"])
def test_only_the_policy_single_numa_node_rejects_nodes(policy: str):
    cluster = NumaCluster(node_topology("n", SMALL, policy=policy))

    assert cluster.rejected(cluster.made(), numa_pod("p", {"cpu": "99", "memory": "1Gi"})) == {}


def test_nodes_without_an_object_are_not_rejected():
    cluster = NumaCluster(node_topology("with", SMALL), node_topology("without", SMALL))
    del cluster.store["without"]

    found = cluster.rejected(cluster.made(), numa_pod("p", {"cpu": "99", "memory": "1Gi"}))

    assert found == {"with": CONTAINER}


def test_a_node_without_zones_holds_only_what_belongs_to_no_zone():
    cluster = NumaCluster(node_topology("n"), allocatable={GPU: "2"})
    plugin = cluster.made()

    assert cluster.rejected(plugin, numa_pod("p", {"cpu": "1", "memory": "1Gi"})) == {"n": CONTAINER}
    assert cluster.rejected(plugin, numa_pod("q", {GPU: "1"})) == {}


def test_a_zone_with_too_large_a_number_does_not_count():
    topology = node_topology("n", {"cpu": "2", "memory": "4Gi"}, {"cpu": "4", "memory": "4Gi"})
    topology["zones"][1]["name"] = "node-75"
    cluster = NumaCluster(topology)

    assert cluster.rejected(cluster.made(), numa_pod("p", {"cpu": "3", "memory": "1Gi"})) == {"n": CONTAINER}


# A slow reference: one node after another, with dictionaries.

_amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", NIC, HUGE, "ephemeral-storage"]), st.integers(0, 6).map(str), max_size=4
)
_topologies = st.lists(
    st.builds(
        lambda zones, scope: node_topology("n", *zones, scope=scope),
        st.lists(_amounts, max_size=3),
        st.sampled_from(["pod", "container"]),
    ),
    min_size=1,
    max_size=4,
)
_pods = st.builds(
    lambda containers, init, guaranteed: numa_pod("p", *containers, init=init, guaranteed=guaranteed),
    st.lists(_amounts, min_size=1, max_size=3),
    st.lists(_amounts, max_size=2).map(tuple),
    st.booleans(),
)


def slowly_lowest(zones: list[dict[str, int]], request: Any, amounts: Any) -> int | None:
    candidates = set(range(64))
    for name, amount in amounts:
        if not amount:
            continue
        having = {place for place, zone in enumerate(zones) if name in zone}
        shared = not request.is_guaranteed and name in {"cpu", "memory", HUGE}
        suits = {place for place in having if shared or zones[place][name] >= amount}
        if having or name not in {NIC, "ephemeral-storage"}:
            candidates &= suits
    return min(candidates, default=None)


def slowly_unaligned(topology: NodeTopology, request: Any) -> int:
    zones = [dict(zone.available) for zone in topology.zones]
    if topology.scope == "pod":
        return ALIGNED if slowly_lowest(zones, request, request.whole) is not None else 0
    for place, each in enumerate(request.containers):
        zone = slowly_lowest(zones, request, each.amounts)
        if zone is None:
            return place
        if each.is_init:
            continue
        for name, amount in each.amounts:
            shared = not request.is_guaranteed and name in {"cpu", "memory", HUGE}
            if not shared and zone < len(zones) and name in zones[zone]:
                zones[zone][name] -= amount
    return ALIGNED


@given(_topologies, _pods)
def test_arrays_give_the_results_of_a_loop_over_nodes(topologies: list[Any], wanted: Any):
    table, request = ZoneTable(), zone_request(wanted)
    read = [read_topology(each) for each in topologies]
    for place, topology in enumerate(read):
        assert isinstance(topology, NodeTopology)
        table.put(f"n{place}", topology)

    found = run_to_end(unaligned(table, np.arange(len(read)), request))

    assert found.tolist() == [slowly_unaligned(each, request) for each in read]
