"""The default plugins of a profile, and the default arguments of plugins.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins; the arguments: defaults.go beside it; the names:
    pkg/scheduler/framework/plugins/names/names.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.types import Plugin, Plugins, PluginSet

if TYPE_CHECKING:
    from collections.abc import Mapping

MINIMAL_PLUGINS = ("PrioritySort", "DefaultBinder")
"""A profile with these plugins alone is complete: it needs one plugin at QueueSort and one at Bind."""
DEFAULT_PLUGINS = Plugins(
    multi_point=PluginSet(
        enabled=(
            Plugin(name="SchedulingGates"),
            Plugin(name="PrioritySort"),
            Plugin(name="NodeUnschedulable"),
            Plugin(name="NodeName"),
            Plugin(name="TaintToleration", weight=3),
            Plugin(name="NodeAffinity", weight=2),
            Plugin(name="NodePorts"),
            Plugin(name="NodeResourcesFit", weight=1),
            Plugin(name="VolumeRestrictions"),
            Plugin(name="NodeVolumeLimits"),
            Plugin(name="VolumeBinding"),
            Plugin(name="VolumeZone"),
            Plugin(name="PodTopologySpread", weight=2),
            Plugin(name="InterPodAffinity", weight=2),
            # Before DefaultPreemption: giving back an idle claim is better than evicting a pod.
            Plugin(name="DynamicResources", weight=2),
            Plugin(name="DefaultPreemption"),
            Plugin(name="NodeResourcesBalancedAllocation", weight=1),
            Plugin(name="ImageLocality", weight=1),
            Plugin(name="DefaultBinder"),
            Plugin(name="NodeDeclaredFeatures"),
            Plugin(name="GangScheduling"),
            Plugin(name="TopologyPlacementGenerator"),
            Plugin(name="PodGroupPodsCount", weight=1),
        )
    )
)
"""The default plugins, in execution order."""

GATED_PLUGINS: Mapping[str, str] = {
    "GangScheduling": "gang_scheduling",
    "TopologyPlacementGenerator": "topology_aware_workload_scheduling",
    "PodGroupPodsCount": "topology_aware_workload_scheduling",
}
"""Plugin -> the attribute of FeatureGates that enables it, in any profile."""

UPSTREAM_PLUGINS = frozenset(plugin.name for plugin in DEFAULT_PLUGINS.multi_point.enabled) | {*GATED_PLUGINS}
"""Every plugin of kube-scheduler, including those behind alpha feature gates."""

REMOVED_PLUGINS = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
"""Plugins that kube-scheduler removed and rejects by name; NodeVolumeLimits replaces them."""

_CPU_AND_MEMORY = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]

DEFAULT_ARGS: Mapping[str, Mapping[str, Any]] = {
    "DefaultPreemption": {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100},
    "DynamicResources": {"filterTimeout": "10s", "bindingTimeout": "10m0s"},
    "InterPodAffinity": {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False},
    "NodeAffinity": {},
    "NodeResourcesBalancedAllocation": {"resources": _CPU_AND_MEMORY},
    "NodeResourcesFit": {"scoringStrategy": {"type": "LeastAllocated", "resources": _CPU_AND_MEMORY}},
    "PodTopologySpread": {"defaultingType": "System"},
    "VolumeBinding": {"bindTimeoutSeconds": 600},
}
"""Plugin -> its default arguments, for the plugins of kube-scheduler with arguments."""


def with_default_args(plugin: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of kube-scheduler; values of a wrong type stay, and the plugin reports them.

    Source:
        kube-scheduler v1.36, pkg/scheduler/apis/config/v1/defaults.go, SetDefaults_*Args.
    """
    if plugin not in DEFAULT_ARGS:
        return dict(args)
    given = {key: value for key, value in args.items() if value is not None}
    filled = {**given, **{key: value for key, value in DEFAULT_ARGS[plugin].items() if key not in given}}
    match plugin:
        case "PodTopologySpread" if filled["defaultingType"] == "":
            filled["defaultingType"] = "System"
        case "NodeResourcesBalancedAllocation":
            filled["resources"] = _with_weights(filled["resources"])
        case "NodeResourcesFit" if isinstance(filled["scoringStrategy"], dict):
            strategy = filled["scoringStrategy"]
            resources = _with_weights(strategy.get("resources"))
            filled["scoringStrategy"] = {**strategy, "resources": resources}
    return filled


def _with_weights(resources: Any) -> Any:
    """Replace an empty list by cpu and memory, and an absent weight or 0 by 1."""
    if resources is None or resources == []:
        return _CPU_AND_MEMORY
    if not isinstance(resources, list):
        return resources
    return [{**item, "weight": 1} if _lacks_weight(item) else item for item in resources]


def _lacks_weight(resource: Any) -> bool:
    weight = resource.get("weight") if isinstance(resource, dict) else False
    return weight is None or (weight == 0 and not isinstance(weight, bool))
