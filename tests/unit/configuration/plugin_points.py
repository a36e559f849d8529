"""The extension points of kube-scheduler's plugins, and the default plugins of each point."""

from __future__ import annotations

from scheduler.framework.interface import ExtensionPoint

_PRE_FILTER = [
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
    "NodeDeclaredFeatures",
]
DEFAULT_ORDER = {  # extension point -> its default plugins, in order
    ExtensionPoint.PRE_ENQUEUE: [
        "SchedulingGates",
        "DynamicResources",
        "DefaultPreemption",
        "GangScheduling",
    ],
    ExtensionPoint.QUEUE_SORT: ["PrioritySort"],
    ExtensionPoint.PRE_FILTER: _PRE_FILTER,
    ExtensionPoint.FILTER: ["NodeUnschedulable", "NodeName", "TaintToleration", *_PRE_FILTER],
    ExtensionPoint.POST_FILTER: ["DynamicResources", "DefaultPreemption"],
    ExtensionPoint.POD_GROUP_POST_FILTER: ["DefaultPreemption"],
    ExtensionPoint.PRE_SCORE: [
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
        "NodeResourcesBalancedAllocation",
    ],
    ExtensionPoint.SCORE: [
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
    ],
    ExtensionPoint.PLACEMENT_GENERATE: ["TopologyPlacementGenerator"],
    ExtensionPoint.PLACEMENT_SCORE: ["NodeResourcesFit", "PodGroupPodsCount"],
    ExtensionPoint.RESERVE: ["VolumeBinding", "DynamicResources"],
    ExtensionPoint.PERMIT: ["DeferredPodScheduling", "GangScheduling"],
    ExtensionPoint.PRE_BIND: ["VolumeBinding", "DynamicResources"],
    ExtensionPoint.BIND: ["DefaultBinder"],
    ExtensionPoint.POST_BIND: [],
}

POINTS = {  # plugin -> its extension points
    name: frozenset(point for point, names in DEFAULT_ORDER.items() if name in names)
    for names in DEFAULT_ORDER.values()
    for name in names
}
