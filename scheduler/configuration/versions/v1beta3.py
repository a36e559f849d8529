"""v1beta3 to v1: the plugins of volumes in trees of their own went, and so did SelectorSpread.

Source:
    kube-scheduler v1.28, pkg/scheduler/apis/config/v1beta3; v1.36, validation/validation.go,
    invalidPluginsByVersion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, name_of
from scheduler.configuration.versions.profiles import (
    Removed,
    args_of,
    each_profile,
    is_disabled,
    names_at,
    plugin_set,
    with_plugin_set,
    without_args,
    without_removed,
)

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

_COUNTED_ALL_THE_SAME = "NodeVolumeLimits counts these volumes too"
_REMOVED = {
    name: Removed(by="NodeVolumeLimits", lost=_COUNTED_ALL_THE_SAME)
    for name in ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
}
_SPREAD, _BY = "SelectorSpread", "PodTopologySpread"
_DEFAULT_WEIGHT = 2  # of PodTopologySpread
_SCORING = ("score", "multiPoint")


def convert(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Return a v1beta3 configuration as v1."""

    def change(profile: dict[str, Any]) -> dict[str, Any]:
        if "percentageOfNodesToScore" in profile:
            conversion.fault(profile, "percentageOfNodesToScore", "of a profile came with v1")
            profile = conversion.without(profile, "percentageOfNodesToScore")
        return without_removed(_spread(profile, conversion), conversion, _REMOVED)

    return each_profile(fields, conversion, change)


def _spread(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Have PodTopologySpread do what SelectorSpread did, by the constraints it has by default for pods without any.

    Beside PodTopologySpread's own scores there is one weight for both: the larger.
    """
    profile = without_args(profile, conversion, (_SPREAD,))
    wanted = any(_SPREAD in names_at(profile, point, "enabled") for point in _SCORING)
    for point in (*_SCORING, "preScore"):
        enabled = entries(plugin_set(profile, point).get("enabled"))
        if _SPREAD in names_at(profile, point, "enabled"):
            profile = with_plugin_set(
                profile, conversion, point, enabled=_merged(profile, conversion, point, enabled)
            )
        if _SPREAD in names_at(profile, point, "disabled"):
            disabled = entries(plugin_set(profile, point).get("disabled"))
            left = [plugin for plugin in disabled if name_of(plugin) != _SPREAD]
            profile = with_plugin_set(profile, conversion, point, disabled=left)
    args = args_of(profile, _BY)
    if wanted and (args.get("defaultConstraints") or args.get("defaultingType") == "List"):
        conversion.fault(
            args,
            "defaultingType",
            'must be "System", without defaultConstraints: that is what SelectorSpread has become',
        )
    return profile


def _merged(profile: dict[str, Any], conversion: Conversion, point: str, enabled: list[Any]) -> list[Any]:
    """Return the enabled plugins with one entry for both."""
    weights = [plugin.get("weight") for plugin in enabled if name_of(plugin) in {_SPREAD, _BY}]
    if _BY not in names_at(profile, point, "enabled") and not is_disabled(profile, point, _BY):
        weights.append(_DEFAULT_WEIGHT)
    numbers = [weight for weight in weights if isinstance(weight, int) and not isinstance(weight, bool)]
    merged: list[Any] = []
    is_there = False
    for plugin in enabled:
        if name_of(plugin) not in {_SPREAD, _BY}:
            merged.append(plugin)
        elif not is_there:
            is_there = True
            heavier = {"weight": max(numbers)} if numbers and point in _SCORING else {}
            merged.append(conversion.changed(plugin, name=_BY, **heavier))
    return merged
