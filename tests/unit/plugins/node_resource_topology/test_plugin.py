"""NodeResourceTopologyMatch: its arguments, events, explanations, metric, and how much it evaluates."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import numpy as np
import pytest

from plugins.node_resource_topology import plugin as module
from plugins.node_resource_topology.plugin import NodeResourceTopologyMatch, NodeResourceTopologyMatchArgs
from plugins.node_resource_topology.topologies import Topologies
from plugins.node_resource_topology.topology_objects import NODE_TOPOLOGIES
from scheduler.configuration.profile_plugins import decode_args
from scheduler.errors import ConfigurationError
from scheduler.framework import SKIP, CycleState, EventResource, NeedsTime
from scheduler.loop_work import run_to_end
from scheduler.testing.builders import snapshot_of
from tests.support.builders import node, pod
from tests.support.counted_labels import calls_of
from tests.unit.plugins.node_resource_topology.numa_cluster import (
    NumaCluster,
    container,
    node_topology,
    numa_pod,
)
from tests.unit.plugins.plugin_calls import requeues

ZONE = {"cpu": "4", "memory": "8Gi"}
LARGE = numa_pod("p", {"cpu": "6", "memory": "1Gi"})


def faults(**given: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        decode_args(NodeResourceTopologyMatchArgs, given, plugin="NodeResourceTopologyMatch", path="args")
    return [str(fault) for fault in raised.value.errors]


def test_the_arguments_of_scheduler_plugins_are_accepted():
    given = {
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 0}]},
        "cacheResyncPeriodSeconds": 5,
        "discardReservedNodes": False,
        "cache": {
            "foreignPodsDetect": "OnlyExclusiveResources",
            "resyncMethod": "All",
            "informerMode": "Shared",
            "resyncScope": "OnlyResources",
        },
        "preemptionMode": "Disabled",
    }
    args = decode_args(NodeResourceTopologyMatchArgs, given, plugin="NodeResourceTopologyMatch", path="args")

    assert args.cache.foreign_pods_detect == "OnlyExclusiveResources"
    assert args.scoring_strategy.resources[0].weight == 1


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        pytest.param(
            {"cacheResyncPeriodSeconds": -1}, "args.cacheResyncPeriodSeconds: must be 0 to 3600, was -1"
        ),
        pytest.param(
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": -1}]}},
            "args.scoringStrategy.resources[0].weight: must be 1 to 100, was -1",
        ),
        pytest.param(
            {"scoringStrategy": {"resources": [{"name": "cpu"}, {"name": "cpu"}]}},
            "args.scoringStrategy.resources[1].name: 'cpu' was named before",
        ),
    ],
)
def test_invalid_arguments_are_named(given: dict[str, Any], fault: str):
    assert faults(**given) == [fault]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"scoringStrategy": {"type": "Best"}}, "args.scoringStrategy.type"),
        ({"cache": {"foreignPodsDetect": "Some"}}, "args.cache.foreignPodsDetect"),
        ({"preemptionMode": "Maybe"}, "args.preemptionMode"),
        ({"namespaces": ["a"]}, "args.namespaces"),
    ],
)
def test_unknown_values_are_refused_with_their_field(given: dict[str, Any], field: str):
    assert [fault.partition(":")[0] for fault in faults(**given)] == [field]


def test_a_preemption_mode_without_an_effect_is_logged(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        NumaCluster().made(preemptionMode="Enabled")

    assert [record.message for record in caplog.records] == [
        "preemptionMode of NodeResourceTopologyMatch has no effect without cacheResyncPeriodSeconds"
    ]


# What costs nothing.


def test_pods_without_requests_share_a_signature_and_are_skipped():
    cluster = NumaCluster(node_topology("n", ZONE))
    plugin = cluster.made()

    assert plugin.signature(pod("a")) == plugin.signature(pod("b")) == ""
    assert plugin.signature(LARGE) is None
    assert plugin.pre_filter(CycleState(), pod("a"), cluster.snapshot) is SKIP


def test_pods_are_skipped_in_a_cluster_without_objects():
    cluster = NumaCluster()

    assert cluster.made().pre_filter(CycleState(), LARGE, cluster.snapshot) is SKIP


def test_equal_pods_are_evaluated_again_only_on_changed_nodes(monkeypatch: pytest.MonkeyPatch):
    cluster = NumaCluster(*(node_topology(f"n{number}", ZONE) for number in range(20)))
    plugin = cluster.made()
    evaluated = calls_of(monkeypatch, module, "unaligned")
    for name in ("a", "b", "c"):
        assert len(cluster.rejected(plugin, numa_pod(name, {"cpu": "6", "memory": "1Gi"}))) == 20
    cluster.store["n3"] = node_topology("n3", {"cpu": "6", "memory": "1Gi"})
    assert len(cluster.rejected(plugin, LARGE)) == 19

    assert [len(slots) for _, slots, _ in evaluated] == [20, 1]


def test_many_objects_are_read_in_steps_while_the_pod_waits():
    cluster = NumaCluster(*(node_topology(f"n{number}", ZONE) for number in range(40)))
    plugin = cluster.made()

    with pytest.raises(NeedsTime) as needs:
        plugin.pre_filter(CycleState(), LARGE, cluster.snapshot)
    assert sum(1 for _ in needs.value.steps) >= 40 / 8
    assert len(cluster.rejected(plugin, LARGE)) == 40


def test_a_pod_with_many_containers_is_evaluated_in_steps():
    cluster = NumaCluster(node_topology("n", {"cpu": "900", "memory": "900Gi"}))
    plugin, state = cluster.made(), CycleState()
    wanted = numa_pod("p", *[{"cpu": "1", "memory": "1Gi"}] * 800)
    snapshot = cluster.snapshot
    plugin.pre_filter(state, wanted, snapshot)
    cluster.fakes.time_slice.slice_seconds = 0.0

    with pytest.raises(NeedsTime) as needs:
        plugin.filter(state, wanted, snapshot, snapshot.all_rows)
    run_to_end(needs.value.steps)
    assert plugin.filter(state, wanted, snapshot, snapshot.all_rows).passing.all()


def test_results_follow_nodes_that_come_and_go():
    cluster = NumaCluster(*(node_topology(f"n{number}", ZONE) for number in range(4)))
    plugin = cluster.made()
    assert set(cluster.rejected(plugin, LARGE)) == {"n0", "n1", "n2", "n3"}

    cluster.table.remove_node("n1")
    cluster.add(node_topology("big", {"cpu": "8", "memory": "8Gi"}))
    assert set(cluster.rejected(plugin, LARGE)) == {"n0", "n2", "n3"}

    part = cluster.snapshot.take(np.array([3, 0], dtype=np.intp))
    state = CycleState()
    plugin.pre_filter(state, LARGE, cluster.snapshot)
    outcomes = plugin.filter(state, LARGE, part, part.all_rows)
    assert [part.name_of(row) for row in range(2) if outcomes.passing[row]] == ["big"]


# Events.


@pytest.mark.parametrize(
    ("change", "helps"),
    [
        pytest.param({"metadata": {"name": "n", "resourceVersion": "2"}}, False, id="a heartbeat"),
        pytest.param({"zones": []}, True, id="other amounts"),
        pytest.param({"attributes": []}, True, id="other settings"),
        pytest.param({"topologyPolicies": ["None"]}, True, id="an old policy"),
        pytest.param(
            {"metadata": {"name": "n", "annotations": {"topology.node.k8s.io/fingerprint": "x"}}},
            True,
            id="a fingerprint",
        ),
    ],
)
def test_which_changes_of_an_object_requeue_pods(change: dict[str, Any], helps: bool):
    old = node_topology("n", ZONE)
    resource = EventResource.of(NODE_TOPOLOGIES)

    assert requeues(NumaCluster().made(), resource, LARGE, old, {**old, **change}) is helps


def test_added_and_deleted_objects_requeue_pods():
    plugin, obj = NumaCluster().made(), node_topology("n", ZONE)
    resource = EventResource.of(NODE_TOPOLOGIES)

    assert requeues(plugin, resource, LARGE, None, obj)
    assert requeues(plugin, resource, LARGE, obj, None)


def test_deleted_pods_and_changed_nodes_requeue_pods():
    events = {each.event.resource.value: each.event.label for each in NumaCluster().made().events()}

    assert events["Pod"] == "PodDelete"
    assert "Node" in events


# Explanations, warnings, metric.


def test_the_explanation_names_the_container_and_what_each_zone_has():
    cluster = NumaCluster(node_topology("n", ZONE, {"cpu": "500m"}))
    plugin = cluster.made()
    wanted = numa_pod("p", {"cpu": "1", "memory": "1Gi"}, {"cpu": "6", "memory": "2Gi"})
    cluster.rejected(plugin, wanted)

    assert plugin.why(wanted, cluster.snapshot, cluster.snapshot.node_info(0)) == [
        "container c1 requests 6 cpu, 2Gi memory of one NUMA zone; node-0 has 4 cpu, 8Gi memory; node-1 has 0.5 cpu, no memory"
    ]


def test_the_explanation_of_the_pod_scope_is_about_the_pod():
    cluster = NumaCluster(node_topology("n", ZONE, scope="pod"))
    plugin = cluster.made()
    cluster.rejected(plugin, LARGE)

    assert plugin.why(LARGE, cluster.snapshot, cluster.snapshot.node_info(0)) == [
        "the pod requests 6 cpu, 1Gi memory of one NUMA zone; node-0 has 4 cpu, 8Gi memory"
    ]


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        pytest.param(
            {"nodeTopologyPodsFingerprint": "pfp0v001"},
            "the fingerprint of the NodeResourceTopology does not include default/o0, default/o1, default/o2 and 2 more yet",
            id="not yet",
        ),
        pytest.param(
            {},
            "this scheduler did not place default/o0, default/o1, default/o2 and 2 more, and the NodeResourceTopology has no "
            "fingerprint of its pods: let its agent write one, or set cache.foreignPodsDetect to None",
            id="no fingerprint",
        ),
    ],
)
def test_the_explanation_of_a_stale_node_names_pods(attributes: dict[str, str], sentence: str):
    cluster = NumaCluster(node_topology("n", ZONE, attributes=attributes))
    plugin = cluster.made(cacheResyncPeriodSeconds=5)
    for number in range(5):
        cluster.put(pod(f"o{number}"), "n")
    cluster.rejected(plugin, LARGE)

    assert plugin.why(LARGE, cluster.snapshot, cluster.snapshot.node_info(0)) == [sentence]


def test_an_invalid_object_is_logged_once_and_explained(caplog: pytest.LogCaptureFixture):
    topology = node_topology("n", {"cpu": "-1", "memory": "1Gi"})
    cluster = NumaCluster(topology)
    plugin = cluster.made()
    with caplog.at_level(logging.WARNING):
        assert cluster.rejected(plugin, LARGE) == {"n": "cannot align container"}
        cluster.store["n"] = {**topology, "metadata": {"name": "n", "resourceVersion": "2"}}
        cluster.rejected(plugin, LARGE)

    assert [(record.message, record.__dict__["node"]) for record in caplog.records] == [
        ("NodeResourceTopology is invalid", "n")
    ]
    assert (
        caplog.records[0].__dict__["error"]
        == "zones[0].resources[0].available: at least 0 is expected, was -1"
    )
    why = plugin.why(LARGE, cluster.snapshot, cluster.snapshot.node_info(0))
    assert why is not None
    assert why[1].startswith("the NodeResourceTopology is invalid: zones[0].resources[0].available")


def test_an_object_that_cannot_be_read_counts_as_absent(caplog: pytest.LogCaptureFixture):
    cluster = NumaCluster(node_topology("n", ZONE))
    plugin = cluster.made()
    assert set(cluster.rejected(plugin, LARGE)) == {"n"}

    with caplog.at_level(logging.WARNING):
        cluster.store["n"] = {"metadata": {"name": "n"}, "zones": 7}
        assert cluster.rejected(plugin, LARGE) == {}
    assert [record.message for record in caplog.records] == ["NodeResourceTopology is invalid"]
    assert Topologies.of(cluster.objects).n_invalid == 1


def test_the_metric_counts_objects_by_state():
    cluster = NumaCluster(
        node_topology("a", ZONE), node_topology("b", {"cpu": "-1"}), node_topology("c", ZONE)
    )
    plugin = cluster.made(cacheResyncPeriodSeconds=5)
    cluster.put(pod("other"), "c")
    cluster.refresh(plugin)

    metrics = cluster.fakes.metrics
    numbers = {
        labels: number for name, labels, number in metrics.calls if name == "custom_scheduler_node_topologies"
    }
    assert numbers == {("read",): 3.0, ("invalid",): 1.0, ("stale",): 1.0}


def test_containers_of_a_pod_may_have_one_name_in_the_signature():
    cluster = NumaCluster(node_topology("n", ZONE))
    wanted = pod("p", containers=[container({"cpu": "1", "memory": "1Gi"})] * 2)

    assert cluster.rejected(cluster.made(), wanted) == {}


def test_the_plugin_needs_only_to_read_the_objects():
    assert NodeResourceTopologyMatch.needs.kinds == {NODE_TOPOLOGIES}
    assert NodeResourceTopologyMatch.needs.rights == frozenset()
    assert msgspec.structs.fields(NodeResourceTopologyMatchArgs)


def test_a_node_that_an_explanation_adds_does_not_fit_because_its_zones_are_unknown():
    cluster = NumaCluster(node_topology("n", ZONE), node_topology("without", ZONE))
    del cluster.store["without"]
    plugin, state = cluster.made(), CycleState()
    more = cluster.snapshot.with_nodes_of(snapshot_of(node("new")))
    plugin.pre_filter(state, LARGE, more)

    outcomes = plugin.filter(state, LARGE, more, more.all_rows)
    assert [outcomes.of(row).reasons for row in range(3)] == [
        ("cannot align container",),
        (),
        ("invalid node topology data",),
    ]


def test_an_object_that_is_created_later_counts_for_its_node():
    cluster = NumaCluster(node_topology("early", ZONE), node_topology("late", ZONE))
    del cluster.store["late"]
    plugin = cluster.made()
    assert set(cluster.rejected(plugin, LARGE)) == {"early"}

    cluster.store["late"] = node_topology("late", ZONE)
    assert set(cluster.rejected(plugin, LARGE)) == {"early", "late"}
