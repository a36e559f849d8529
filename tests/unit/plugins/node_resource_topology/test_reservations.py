"""What placed pods take of zones until the object of their node shows it."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.node_resource_topology.pod_fingerprint import fingerprint
from scheduler.framework import CycleState
from tests.support import virtual_time
from tests.unit.plugins.node_resource_topology.numa_cluster import NumaCluster, node_topology, numa_pod

STALE, UNALIGNED = "invalid node topology data", "cannot align container"
FULL, LESS = {"cpu": "4", "memory": "8Gi"}, {"cpu": "1", "memory": "1Gi"}
CACHED: dict[str, Any] = {"cacheResyncPeriodSeconds": 5}


def topology(cpu: str, *pods: Any, name: str = "n", method: str = "", **more: Any) -> dict[str, Any]:
    """A node of one zone whose object includes some pods."""
    attributes = {"nodeTopologyPodsFingerprint": fingerprint((pod.namespace, pod.name) for pod in pods)}
    if method:
        attributes["nodeTopologyPodsFingerprintMethod"] = method
    return node_topology(name, {"cpu": cpu, "memory": "8Gi"}, attributes=attributes, **more)


def three(name: str) -> Any:
    return numa_pod(name, {"cpu": "3", "memory": "1Gi"})


def test_without_a_cache_the_newest_object_is_used_as_it_is():
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made()
    cluster.place(plugin, three("a"), "n")

    assert cluster.rejected(plugin, three("b")) == {}
    cluster.store["n"] = topology("1")
    assert cluster.rejected(plugin, three("b")) == {"n": UNALIGNED}


def test_a_placed_pod_is_subtracted_from_every_zone():
    cluster = NumaCluster(node_topology("n", FULL, FULL))
    plugin = cluster.made(**CACHED)
    cluster.place(plugin, three("a"), "n")

    assert cluster.rejected(plugin, three("b")) == {"n": UNALIGNED}
    assert cluster.rejected(plugin, numa_pod("c", LESS)) == {}


def test_a_pod_that_was_not_bound_is_subtracted_no_longer():
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made(**CACHED)
    placed = cluster.place(plugin, three("a"), "n")
    assert cluster.rejected(plugin, three("b")) == {"n": UNALIGNED}

    plugin.unreserve(CycleState(), placed, "n")
    cluster.gone(placed)
    assert cluster.rejected(plugin, three("b")) == {}


def test_a_deleted_pod_is_subtracted_no_longer():
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made(**CACHED)
    placed = cluster.place(plugin, three("a"), "n")

    cluster.gone(placed)
    assert cluster.rejected(plugin, three("b")) == {}


def test_a_newer_object_replaces_subtracted_amounts_when_it_includes_the_pod():
    cluster = NumaCluster(topology("8"))
    plugin = cluster.made(**CACHED)
    first = cluster.place(plugin, three("a"), "n")
    assert cluster.rejected(plugin, numa_pod("b", {"cpu": "6", "memory": "1Gi"})) == {"n": UNALIGNED}

    cluster.store["n"] = topology("7")  # of the time before the pod
    assert cluster.rejected(plugin, numa_pod("b", {"cpu": "6", "memory": "1Gi"})) == {"n": UNALIGNED}

    cluster.store["n"] = topology("6", first)
    assert cluster.rejected(plugin, numa_pod("b", {"cpu": "6", "memory": "1Gi"})) == {}


def test_a_pending_pod_stays_subtracted_if_the_object_does_not_include_it():
    cluster = NumaCluster(topology("8"))
    plugin = cluster.made(**CACHED)
    running, pending = (cluster.place(plugin, three(name), "n") for name in ("a", "b"))
    cluster.runs(running)
    cluster.store["n"] = topology("5", running)

    assert cluster.rejected(plugin, three("c")) == {"n": UNALIGNED}
    assert cluster.rejected(plugin, numa_pod("c", {"cpu": "2", "memory": "1Gi"})) == {}
    cluster.gone(pending)
    assert cluster.rejected(plugin, three("c")) == {}


def test_a_fingerprint_is_compared_again_after_the_period():
    cluster = NumaCluster(topology("8"))
    plugin = cluster.made(**CACHED)
    first, second = (cluster.place(plugin, three(name), "n") for name in ("a", "b"))
    cluster.store["n"] = topology("6", first)
    assert cluster.rejected(plugin, numa_pod("c", {"cpu": "2", "memory": "1Gi"})) == {}
    assert cluster.rejected(plugin, three("c")) == {"n": UNALIGNED}
    cluster.gone(second)
    assert cluster.rejected(plugin, numa_pod("c", {"cpu": "6", "memory": "1Gi"})) == {"n": UNALIGNED}

    cluster.refresh(plugin)
    assert cluster.rejected(plugin, numa_pod("c", {"cpu": "6", "memory": "1Gi"})) == {}


# Pods that this scheduler has not placed.


def test_a_node_with_pods_that_its_object_does_not_include_is_not_used():
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made(**CACHED)
    assert cluster.rejected(plugin, three("a")) == {}

    other = cluster.put(numa_pod("other", LESS), "n")
    assert cluster.rejected(plugin, three("a")) == {"n": STALE}
    assert cluster.scores(plugin, three("a")) == {"n": 0}

    cluster.store["n"] = topology("3", other)
    assert cluster.rejected(plugin, three("a")) == {}


def test_pods_of_the_time_before_the_start_are_compared_too():
    cluster = NumaCluster(topology("4"), topology("4", name="m"))
    other = cluster.put(numa_pod("other", LESS), "n")
    plugin = cluster.made(**CACHED)

    assert cluster.rejected(plugin, three("a")) == {"n": STALE}
    cluster.store["n"] = topology("3", other)
    assert cluster.rejected(plugin, three("a")) == {}


@pytest.mark.parametrize(
    ("detected", "other", "is_stale"),
    [
        pytest.param("All", numa_pod("o", LESS, guaranteed=False), True, id="any pod"),
        pytest.param("OnlyExclusiveResources", numa_pod("o", LESS), True, id="whole cpus"),
        pytest.param(
            "OnlyExclusiveResources", numa_pod("o", LESS, guaranteed=False), False, id="shared cpus"
        ),
        pytest.param(
            "OnlyExclusiveResources",
            numa_pod("o", {"example.com/nic": "1"}),
            False,
            id="a device that no zone has",
        ),
        pytest.param("None", numa_pod("o", LESS), False, id="no pod"),
    ],
)
def test_which_pods_of_others_matter(detected: str, other: Any, is_stale: bool):
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made(**CACHED, cache={"foreignPodsDetect": detected})
    cluster.put(other, "n")

    assert cluster.rejected(plugin, three("a")) == ({"n": STALE} if is_stale else {})


@pytest.mark.parametrize(
    ("method", "written", "is_stale"),
    [
        pytest.param("Autodetect", "with-exclusive-resources", False, id="the object says so"),
        pytest.param("Autodetect", "", True, id="the object does not say so"),
        pytest.param("OnlyExclusiveResources", "", False, id="the profile says so"),
        pytest.param("All", "with-exclusive-resources", True, id="the profile says all"),
    ],
)
def test_a_fingerprint_may_be_of_pods_with_exclusive_resources_only(
    method: str, written: str, is_stale: bool
):
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made(**CACHED, cache={"resyncMethod": method})
    exclusive, _shared = (
        cluster.put(numa_pod("e", LESS), "n"),
        cluster.put(numa_pod("s", LESS, guaranteed=False), "n"),
    )
    cluster.store["n"] = topology("3", exclusive, method=written)

    assert cluster.rejected(plugin, three("a")) == ({"n": STALE} if is_stale else {})


def test_an_annotation_may_have_the_fingerprint():
    placed = numa_pod("a", LESS)
    obj = node_topology("n", FULL)
    obj["metadata"]["annotations"] = {
        "topology.node.k8s.io/fingerprint": fingerprint([(placed.namespace, placed.name)])
    }
    cluster = NumaCluster(obj)
    cluster.put(placed, "n")

    assert cluster.rejected(cluster.made(**CACHED), three("b")) == {}


@pytest.mark.parametrize(("scope", "rejected"), [("All", {}), ("OnlyResources", {"n": UNALIGNED})])
def test_changed_settings_of_the_kubelet_count_at_once(scope: str, rejected: dict[str, str]):
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made(**CACHED, cache={"resyncScope": scope})
    cluster.place(plugin, numa_pod("a", LESS), "n")
    cluster.store["n"] = topology("4", three("unknown"), policy="none")

    assert cluster.rejected(plugin, numa_pod("b", {"cpu": "4", "memory": "1Gi"})) == rejected


def test_pods_that_a_stale_node_rejected_are_tried_again_when_its_data_are_used():
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made(**CACHED)
    other = cluster.put(numa_pod("other", LESS), "n")
    cluster.store["n"] = topology("3", other, numa_pod("starting", LESS))
    waiting = three("a")
    assert cluster.rejected(plugin, waiting) == {"n": STALE}
    cluster.refresh(plugin)
    assert cluster.fakes.activator.activated == []

    cluster.put(numa_pod("starting", LESS), "n")
    cluster.refresh(plugin)
    assert cluster.fakes.activator.activated == [waiting.uid]


def test_profiles_share_what_placed_pods_take():
    cluster = NumaCluster(topology("4"))
    one, other = cluster.made(**CACHED), cluster.made(**CACHED)
    cluster.place(one, three("a"), "n")

    assert cluster.rejected(other, three("b")) == {"n": UNALIGNED}


def test_a_node_is_read_again_after_its_object_was_deleted_and_created():
    cluster = NumaCluster(topology("4"))
    plugin = cluster.made(**CACHED)
    cluster.place(plugin, three("a"), "n")
    del cluster.store["n"]
    assert cluster.rejected(plugin, three("b")) == {}

    cluster.store["n"] = topology("4")
    assert cluster.rejected(plugin, three("b")) == {"n": STALE}


# Nodes are left out while a pod is bound there.


def test_a_node_is_left_out_until_its_pod_is_bound():
    cluster = NumaCluster(topology("4"), topology("4", name="m"))
    plugin = cluster.made(discardReservedNodes=True, cacheResyncPeriodSeconds=5)
    assert cluster.rejected(plugin, three("a")) == {}
    first, second = (cluster.place(plugin, numa_pod(name, LESS), "n") for name in ("a", "b"))

    assert cluster.rejected(plugin, three("c")) == {"n": STALE}
    virtual_time.run(plugin.post_bind(CycleState(), first, "n"))
    assert cluster.rejected(plugin, three("c")) == {"n": STALE}
    plugin.unreserve(CycleState(), second, "n")
    assert cluster.rejected(plugin, three("c")) == {}
