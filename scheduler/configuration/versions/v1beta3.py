"""v1beta3 to v1: the plugins for in-tree volume types and SelectorSpread were removed.

Source:
    kube-scheduler v1.28, pkg/scheduler/apis/config/v1beta3; v1.36, validation/validation.go,
    invalidPluginsByVersion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import name_of
from scheduler.configuration.versions.profiles import Profile, Removed, profiles_of

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

_COUNTED_ALL_THE_SAME = "NodeVolumeLimits counts these volumes too"
_REMOVED = {
    name: Removed(by="NodeVolumeLimits", lost=_COUNTED_ALL_THE_SAME)
    for name in ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
}
_SPREAD, _BY = "SelectorSpread", "PodTopologySpread"
_DEFAULT_WEIGHT = 2  # weight of PodTopologySpread
_SCORING = ("score", "multiPoint")


def convert(fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert a v1beta3 configuration to v1."""
    for profile in profiles_of(fields, conversion):
        if "percentageOfNodesToScore" in profile.fields:
            conversion.fault(profile.fields, "percentageOfNodesToScore", "of a profile came with v1")
            del profile.fields["percentageOfNodesToScore"]
        _spread(profile)
        profile.replace(_REMOVED)


def _spread(profile: Profile) -> None:
    """Replace SelectorSpread by PodTopologySpread with its default constraints for pods without their own.

    If both were enabled, PodTopologySpread gets the larger weight.
    """
    wanted = any(_SPREAD in profile.names(point, "enabled") for point in _SCORING)
    for point in (*_SCORING, "preScore"):
        if _SPREAD in profile.names(point, "enabled"):
            _merge(profile, point)
        profile.drop(point, "disabled", {_SPREAD})
    profile.drop_args({_SPREAD})
    args = profile.args(_BY)
    if wanted and (args.get("defaultConstraints") or args.get("defaultingType") == "List"):
        profile.conversion.fault(
            args,
            "defaultingType",
            'must be "System", without defaultConstraints: that is what SelectorSpread has become',
        )


def _merge(profile: Profile, point: str) -> None:
    """Merge the entries of both plugins."""
    enabled = profile.listed(point, "enabled")
    both = [plugin for plugin in enabled if name_of(plugin) in {_SPREAD, _BY}]
    weights = [plugin.get("weight") for plugin in both]
    if _BY not in profile.names(point, "enabled") and not profile.disables(point, _BY):
        weights.append(_DEFAULT_WEIGHT)
    numbers = [weight for weight in weights if isinstance(weight, int) and not isinstance(weight, bool)]
    left = [plugin for plugin in enabled if not any(plugin is other for other in both[1:])]
    profile.list_at(point, "enabled", left)
    both[0]["name"] = _BY
    if numbers and point in _SCORING:
        both[0]["weight"] = max(numbers)
