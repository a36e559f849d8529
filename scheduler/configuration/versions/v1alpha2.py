"""v1alpha2 to v1beta1: top-level fields became arguments of plugins, and Unreserve was merged into Reserve.

Source:
    kube-scheduler v1.18 and v1.19, staging/src/k8s.io/kube-scheduler/config/v1alpha2; algorithmprovider/registry.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import name_of
from scheduler.configuration.versions.profiles import Profile, Removed, profiles_of
from scheduler.configuration.versions.v1beta1 import STRATEGIES

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

CLUSTER_AUTOSCALER = "ClusterAutoscalerProvider"
"""The algorithm provider that prefers full nodes; DefaultProvider, the other one, spreads pods."""

NO_RESOURCE_LIMITS = "it was an alpha feature that nothing replaces"
_RENAMED = {
    "DefaultPodTopologySpread": Removed(by="SelectorSpread"),
    "NodeResourceLimits": Removed(advice=NO_RESOURCE_LIMITS),
}


def convert(fields: dict[str, Any], conversion: Conversion, provider: str = "") -> None:
    """Convert a v1alpha2 configuration without `algorithmSource` to v1beta1; `provider` "" is the default one."""
    timeout = conversion.whole_number(fields, "bindTimeoutSeconds", 0, 2**63 - 1)
    fields.pop("bindTimeoutSeconds", None)
    for profile in profiles_of(fields, conversion):
        profile.replace(_RENAMED)
        _drop_unreserve(profile)
        _lower_case(profile)
        if timeout is not None:
            args = {"bindTimeoutSeconds": timeout, **profile.args("VolumeBinding")}
            profile.put_args("VolumeBinding", args)
        if provider == CLUSTER_AUTOSCALER:
            _pack(profile)


def _drop_unreserve(profile: Profile) -> None:
    """Enable the plugins of Unreserve at Reserve: one plugin now implements both."""
    if not isinstance(profile.plugins.get("unreserve"), dict):
        return
    there = {*profile.names("reserve", "enabled"), "VolumeBinding"}
    moved = [plugin for plugin in profile.listed("unreserve", "enabled") if name_of(plugin) not in there]
    profile.list_at("reserve", "enabled", [*profile.listed("reserve", "enabled"), *moved])
    del profile.plugins["unreserve"]


def _lower_case(profile: Profile) -> None:
    """Accept `Name`, `Weight`, `Utilization` and `Score` in any case, as v1alpha2 did."""
    for plugin in STRATEGIES:
        args = profile.args(plugin)
        for key in ("shape", "resources"):
            if isinstance(args.get(key), list):
                args[key] = [with_lower_case(item) for item in args[key]]


def with_lower_case(item: Any) -> Any:
    """Return a mapping with its keys in lower case, and any other value unchanged."""
    return {key.lower(): value for key, value in item.items()} if isinstance(item, dict) else item


def _pack(profile: Profile) -> None:
    """Score as the ClusterAutoscalerProvider did: most allocated nodes first."""
    least, most = "NodeResourcesLeastAllocated", "NodeResourcesMostAllocated"
    if not profile.disables("score", most) and most not in profile.names("score", "enabled"):
        enabled = [*profile.listed("score", "enabled"), {"name": most, "weight": 1}]
        profile.list_at("score", "enabled", enabled)
    if not profile.disables("score", least):
        profile.list_at("score", "disabled", [*profile.listed("score", "disabled"), {"name": least}])
