from __future__ import annotations

import pytest

from plugins.registry import IN_TREE

DEFAULT_ORDER = [
    "SchedulingGates",
    "PrioritySort",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "DeferredPodScheduling",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "DefaultPreemption",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "DefaultBinder",
    "NodeDeclaredFeatures",
    "GangScheduling",
    "TopologyPlacementGenerator",
    "PodGroupPodsCount",
]


def test_plugins_are_in_the_default_order_of_upstream():
    upstreams = [name for name in DEFAULT_ORDER if name in IN_TREE]
    assert list(IN_TREE)[: len(upstreams)] == upstreams
    assert list(IN_TREE)[len(upstreams) :] == [
        "NetworkTraffic",
        "NodeLoad",
        "NodePreference",
        "NodeResourceTopologyMatch",
        "CapacityScheduling",
        "Coscheduling",
        "FairQueues",
        "GpuSharing",
        "FragmentationGradientDescent",
        "GpuShareBestFit",
        "GpuShareClustering",
        "GpuShareDotProduct",
        "GpuSharePacking",
        "RandomNode",
    ]  # in no default profile


def test_the_registry_cannot_be_changed():
    with pytest.raises(TypeError):
        IN_TREE["Other"] = IN_TREE["NodeName"]


def test_filters_that_read_only_nodes_or_check_free_capacity():
    reading = {name for name, plugin in IN_TREE.items() if getattr(plugin, "reads_only_nodes", False)}
    checking = {name for name, plugin in IN_TREE.items() if getattr(plugin, "checks_free_capacity", False)}

    assert reading == {"NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity"}
    assert checking == {"NodeResourcesFit"}
