"""v1alpha2 to v1beta1: fields of the whole scheduler became arguments of plugins, and a point was merged into another.

Source:
    kube-scheduler v1.18 and v1.19, staging/src/k8s.io/kube-scheduler/config/v1alpha2; algorithmprovider/registry.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, mapping, name_of
from scheduler.configuration.versions.profiles import (
    Removed,
    args_of,
    each_profile,
    is_disabled,
    names_at,
    plugin_set,
    with_args,
    with_plugin_set,
    without_removed,
)
from scheduler.configuration.versions.v1beta1 import STRATEGIES

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

CLUSTER_AUTOSCALER = "ClusterAutoscalerProvider"
"""The algorithm provider that fills nodes up; DefaultProvider, the other one, spreads."""

NO_RESOURCE_LIMITS = "it was an alpha feature that nothing replaces"
_RENAMED = {
    "DefaultPodTopologySpread": Removed(by="SelectorSpread"),
    "NodeResourceLimits": Removed(advice=NO_RESOURCE_LIMITS),
}


def convert(fields: dict[str, Any], conversion: Conversion, provider: str = "") -> dict[str, Any]:
    """Return a v1alpha2 configuration, less `algorithmSource`, as v1beta1; `provider` "" is the default one."""
    timeout = conversion.whole_number(fields, "bindTimeoutSeconds", 0, 2**63 - 1)
    fields = conversion.without(fields, "bindTimeoutSeconds")

    def change(profile: dict[str, Any]) -> dict[str, Any]:
        profile = without_removed(profile, conversion, _RENAMED)
        profile = _without_unreserve(profile, conversion)
        profile = _with_lower_case(profile, conversion)
        if timeout is not None:
            args = {"bindTimeoutSeconds": timeout, **args_of(profile, "VolumeBinding")}
            profile = with_args(profile, conversion, "VolumeBinding", args)
        return _packed(profile, conversion) if provider == CLUSTER_AUTOSCALER else profile

    return each_profile(fields, conversion, change)


def _without_unreserve(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Enable at Reserve what is enabled at Unreserve: one plugin does both now."""
    if not isinstance(mapping(profile.get("plugins")).get("unreserve"), dict):
        return profile
    there = names_at(profile, "reserve", "enabled")
    moved = [
        plugin
        for plugin in entries(plugin_set(profile, "unreserve").get("enabled"))
        if name_of(plugin) not in {*there, "VolumeBinding"}
    ]
    if moved:
        enabled = [*entries(plugin_set(profile, "reserve").get("enabled")), *moved]
        profile = with_plugin_set(profile, conversion, "reserve", enabled=enabled)
    plugins = conversion.without(profile["plugins"], "unreserve")
    return conversion.changed(profile, plugins=plugins)


def _with_lower_case(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Read `Name`, `Weight`, `Utilization` and `Score` in any case, as was allowed."""
    for plugin in STRATEGIES:
        args = args_of(profile, plugin)
        lowered = {
            key: [with_lower_case(item) for item in value]
            for key, value in args.items()
            if key in {"shape", "resources"} and isinstance(value, list)
        }
        if lowered:
            profile = with_args(profile, conversion, plugin, {**args, **lowered})
    return profile


def with_lower_case(item: Any) -> Any:
    """Return a mapping with its keys in lower case, and anything else as it is."""
    return {key.lower(): value for key, value in item.items()} if isinstance(item, dict) else item


def _packed(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Score as the ClusterAutoscalerProvider did: most allocated first."""
    least, most = "NodeResourcesLeastAllocated", "NodeResourcesMostAllocated"
    is_off = is_disabled(profile, "score", most)
    score = plugin_set(profile, "score")
    enabled, disabled = entries(score.get("enabled")), entries(score.get("disabled"))
    if not is_off and most not in map(name_of, enabled):
        enabled = [*enabled, {"name": most, "weight": 1}]
    if not is_disabled(profile, "score", least):
        disabled = [*disabled, {"name": least}]
    return with_plugin_set(profile, conversion, "score", enabled=enabled, disabled=disabled)
