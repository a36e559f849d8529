"""v1beta1 to v1beta2: NodeResourcesFit took over the scoring of resources, and four plugins went.

Source:
    kube-scheduler v1.22, pkg/scheduler/apis/config/v1beta1 and v1beta2; validation/validation.go,
    removedPluginsByVersion, conflictScorePluginsByVersion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, name_of
from scheduler.configuration.versions.node_labels import without_node_labels
from scheduler.configuration.versions.profiles import (
    Removed,
    args_of,
    each_profile,
    is_disabled,
    plugin_set,
    with_args,
    with_plugin_set,
    without_args,
    without_removed,
)
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

FIT = "NodeResourcesFit"
STRATEGIES = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""Plugin that was -> the scoring strategy of NodeResourcesFit that it is now."""
_DEFAULT = "NodeResourcesLeastAllocated"

NO_SERVICE_AFFINITY = "use podAffinity or podAntiAffinity in the pods, which InterPodAffinity follows"
NO_AVOID_PODS = "use a taint with the effect PreferNoSchedule on the nodes"
_REMOVED = {
    "NodePreferAvoidPods": Removed(advice=NO_AVOID_PODS),
    "ServiceAffinity": Removed(advice=NO_SERVICE_AFFINITY),
}


def convert(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Return a v1beta1 configuration as v1beta2."""
    no_preemption = fields.get("disablePreemption") is True
    if isinstance(fields.get("disablePreemption"), bool | None):
        fields = conversion.without(fields, "disablePreemption")

    def change(profile: dict[str, Any]) -> dict[str, Any]:
        if no_preemption and not is_disabled(profile, "postFilter", "DefaultPreemption"):
            disabled = entries(plugin_set(profile, "postFilter").get("disabled"))
            profile = with_plugin_set(
                profile, conversion, "postFilter", disabled=[*disabled, {"name": "DefaultPreemption"}]
            )
        profile = without_removed(profile, conversion, _REMOVED)
        profile = without_node_labels(profile, conversion)
        profile = _with_listed_constraints(profile, conversion)
        return _with_strategy(profile, conversion)

    return each_profile(fields, conversion, change)


def _with_listed_constraints(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Say "List" where constraints are listed: it was the default then, "System" is now."""
    args = args_of(profile, "PodTopologySpread")
    if not args.get("defaultConstraints") or args.get("defaultingType"):
        return profile
    return with_args(profile, conversion, "PodTopologySpread", {**args, "defaultingType": "List"})


def _with_strategy(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Make the plugin that scores resources a strategy of NodeResourcesFit."""
    candidates = {FIT, *STRATEGIES}
    enabled = entries(plugin_set(profile, "score").get("enabled"))
    chosen = [plugin for plugin in enabled if name_of(plugin) in candidates]
    is_default = not is_disabled(profile, "score", _DEFAULT) and _DEFAULT not in map(name_of, chosen)
    for extra in chosen[0 if is_default else 1 :]:
        other = _DEFAULT if is_default else name_of(chosen[0])
        way_out = f"disable {other}" if is_default else f"leave out {other}"
        conversion.fault(
            extra,
            "name",
            f"{quoted(name_of(extra))} cannot score beside {other}: one strategy scores resources now, {way_out}",
        )
    scorer = _DEFAULT if is_default else name_of(chosen[0]) if chosen else ""
    profile = _score_with_fit(profile, conversion, chosen, scores=bool(scorer))
    if scorer in STRATEGIES:
        profile = _with_strategy_args(profile, conversion, scorer)
    return without_args(profile, conversion, tuple(STRATEGIES))


def _score_with_fit(
    profile: dict[str, Any], conversion: Conversion, chosen: list[Any], *, scores: bool
) -> dict[str, Any]:
    """Put NodeResourcesFit where the plugins were that scored resources."""
    score = plugin_set(profile, "score")
    enabled: list[Any] = []
    for plugin in entries(score.get("enabled")):
        if not any(plugin is each for each in chosen):
            enabled.append(plugin)
        elif plugin is chosen[0]:
            enabled.append(conversion.changed(plugin, name=FIT))
    disabled = [
        plugin for plugin in entries(score.get("disabled")) if name_of(plugin) not in {FIT, *STRATEGIES}
    ]
    if not scores and "*" not in map(name_of, disabled):
        disabled.append({"name": FIT})
    lists = {
        key: value
        for key, value in (("enabled", enabled), ("disabled", disabled))
        if value != entries(score.get(key))
    }
    return with_plugin_set(profile, conversion, "score", **lists) if lists else profile


def _with_strategy_args(profile: dict[str, Any], conversion: Conversion, scorer: str) -> dict[str, Any]:
    given = args_of(profile, scorer)
    if scorer == _DEFAULT and not given:
        return profile
    known = {
        "apiVersion",
        "kind",
        "resources",
        "shape" if scorer == "RequestedToCapacityRatio" else "resources",
    }
    for key in given:
        if key not in known:
            conversion.fault(given, key, "unknown field")
    strategy: dict[str, Any] = {"type": STRATEGIES[scorer]}
    if given.get("resources"):
        strategy["resources"] = given["resources"]
    if scorer == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = {"shape": given.get("shape") or []}
    args = {**args_of(profile, FIT), "scoringStrategy": conversion.instead(given, strategy)}
    return with_args(profile, conversion, FIT, args, instead_of=(scorer,))
