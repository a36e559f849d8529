"""Default values for absent parts of a configuration: plugins, their arguments, and other fields.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins; the arguments: defaults.go beside it; the names:
    pkg/scheduler/framework/plugins/names/names.go.
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, mergePlugins.
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/defaults.go,
    SetDefaults_KubeSchedulerConfiguration. Differences: the names of the profile and of the lease, and the
    defaults of `clientConnection.qps`, `burst` and `percentageOfNodesToScore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scheduler.configuration.types import (
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
    Profile,
)

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
            Plugin(name="DeferredPodScheduling"),
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
    "DeferredPodScheduling": "InPlacePodVerticalScalingSchedulerPreemption",
    "DynamicResources": "DynamicResourceAllocation",
    "NodeDeclaredFeatures": "NodeDeclaredFeatures",
    "GangScheduling": "GangScheduling",
    "TopologyPlacementGenerator": "TopologyAwareWorkloadScheduling",
    "PodGroupPodsCount": "TopologyAwareWorkloadScheduling",
}
"""Plugin -> the feature gate that enables it, in any profile."""

GROUP_READERS: Mapping[str, str] = {"GangScheduling": "GenericWorkload"}
"""Plugin that reads the objects of groups -> the feature gate with which it reads them in every profile, even if it is
not enabled at any extension point."""

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


ALL = "*"
"""In `disabled`: every default plugin."""


def merge_plugins(default: Plugins, custom: Plugins) -> Plugins:
    """Apply a profile's plugin sets to the default plugins, extension point by extension point."""
    return Plugins(
        **{
            name: merge_plugin_set(getattr(default, name), getattr(custom, name))
            for name in Plugins.__struct_fields__
        }
    )


def merge_plugin_set(default: PluginSet, custom: PluginSet) -> PluginSet:
    """Apply a profile's plugin set of one extension point to the defaults.

    Defaults keep their order; one that the profile enables again keeps its position and gets the profile's
    weight, 1 by default. The profile's other plugins follow. A plugin that is both disabled and enabled is
    enabled, among those that follow. The merge is idempotent.
    """
    disabled = tuple(Plugin(name=plugin.name) for plugin in (*custom.disabled, *default.disabled))
    disabled_names = {plugin.name for plugin in disabled}
    by_name = {plugin.name: plugin for plugin in custom.enabled}
    kept = [
        by_name.get(plugin.name, plugin)
        for plugin in default.enabled
        if ALL not in disabled_names and plugin.name not in disabled_names
    ]
    kept_names = {plugin.name for plugin in kept}
    added = [plugin for plugin in custom.enabled if plugin.name not in kept_names]
    return PluginSet(enabled=(*kept, *added), disabled=disabled)


DEFAULT_SCHEDULER_NAME = "custom-scheduler"


def with_a_profile(document: dict[str, Any], scheduler_name: str) -> dict[str, Any]:
    """Name the only profile, or create one.

    Several profiles must all have names, so that adding a second one cannot rename the first.
    """
    profiles = document.get("profiles")
    if profiles is None or profiles == []:
        return {**document, "profiles": [{"schedulerName": scheduler_name}]}
    match profiles:
        case [{**only}] if only.get("schedulerName") is None:
            return {**document, "profiles": [{**only, "schedulerName": scheduler_name}]}
    return document


def with_scalars(settings: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Replace zero values by their defaults, as Go does."""
    contention = settings.enable_contention_profiling
    client = settings.client_connection
    return replace(
        settings,
        leader_election=_or_default(settings.leader_election, LeaderElection(), keep="leader_elect"),
        client_connection=client if client.content_type else replace(client, content_type=_PROTOBUF),
        enable_contention_profiling=settings.enable_profiling if contention is None else contention,
        extenders=tuple(_with_timeout(extender) for extender in settings.extenders),
    )


def with_profiles(settings: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Merge every profile's plugins with the default ones, and fill in arguments."""
    ignored = [
        resource.name
        for extender in settings.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    ]
    profiles = (_with_plugins(profile) for profile in settings.profiles)
    return replace(settings, profiles=tuple(_ignoring(profile, ignored) for profile in profiles))


_PROTOBUF = KubeSchedulerConfiguration().client_connection.content_type


def _or_default(given: LeaderElection, default: LeaderElection, *, keep: str) -> LeaderElection:
    filled = {}
    for name in LeaderElection.__struct_fields__:
        value = getattr(given, name)
        is_zero = value == type(value)() and name != keep
        filled[name] = getattr(default, name) if is_zero else value
    return LeaderElection(**filled)


def _with_timeout(extender: Extender) -> Extender:
    if extender.http_timeout.nanoseconds:
        return extender
    return replace(extender, http_timeout=Extender().http_timeout)


def _with_plugins(profile: Profile) -> Profile:
    plugins = merge_plugins(DEFAULT_PLUGINS, profile.plugins)
    given = [
        replace(config, args=with_default_args(config.name, config.args)) for config in profile.plugin_config
    ]
    named = {config.name for config in given}
    added = [
        PluginConfig(name=name, args=with_default_args(name, {}))
        for name in sorted(enabled_names(plugins))
        if name in DEFAULT_ARGS and name not in named
    ]
    return replace(profile, plugins=plugins, plugin_config=(*given, *added))


def enabled_names(plugins: Plugins) -> tuple[str, ...]:
    """Return the names of all enabled plugins, each once, in the order of the file's extension points."""
    sets = (getattr(plugins, name) for name in Plugins.__struct_fields__)
    return tuple(dict.fromkeys(plugin.name for plugin_set in sets for plugin in plugin_set.enabled))


def _ignoring(profile: Profile, resources: list[str]) -> Profile:
    """Let NodeResourcesFit ignore the resources that extenders manage; this replaces the profile's own list.

    Source:
        kube-scheduler v1.36, pkg/scheduler/scheduler.go, buildExtenders.
    """
    if not resources:
        return profile
    configs = [
        replace(config, args={**config.args, "ignoredResources": resources})
        if config.name == "NodeResourcesFit"
        else config
        for config in profile.plugin_config
    ]
    return replace(profile, plugin_config=tuple(configs))
