"""v1beta1 to v1beta2: NodeResourcesFit replaced the plugins that score resources, and four plugins were removed.

Source:
    kube-scheduler v1.22, pkg/scheduler/apis/config/v1beta1 and v1beta2; validation/validation.go,
    removedPluginsByVersion, conflictScorePluginsByVersion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import name_of
from scheduler.configuration.versions.node_labels import move_node_labels
from scheduler.configuration.versions.profiles import Profile, Removed, profiles_of
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

FIT = "NodeResourcesFit"
STRATEGIES = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""Old plugin -> the scoring strategy of NodeResourcesFit that replaces it."""
_SCORERS = {FIT, *STRATEGIES}
_DEFAULT = "NodeResourcesLeastAllocated"

NO_SERVICE_AFFINITY = "use podAffinity or podAntiAffinity in the pods, which InterPodAffinity follows"
NO_AVOID_PODS = "use a taint with the effect PreferNoSchedule on the nodes"
_REMOVED = {
    "NodePreferAvoidPods": Removed(advice=NO_AVOID_PODS),
    "ServiceAffinity": Removed(advice=NO_SERVICE_AFFINITY),
}


def convert(fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert a v1beta1 configuration to v1beta2."""
    no_preemption = fields.get("disablePreemption") is True
    if isinstance(fields.get("disablePreemption"), bool | None):
        fields.pop("disablePreemption", None)
    for profile in profiles_of(fields, conversion):
        if no_preemption and not profile.disables("postFilter", "DefaultPreemption"):
            disabled = [*profile.listed("postFilter", "disabled"), {"name": "DefaultPreemption"}]
            profile.list_at("postFilter", "disabled", disabled)
        profile.replace(_REMOVED)
        move_node_labels(profile)
        constraints = profile.args("PodTopologySpread")
        if constraints.get("defaultConstraints") and not constraints.get("defaultingType"):
            constraints["defaultingType"] = "List"  # the default of v1beta1; now it is "System"
        _choose_strategy(profile)


def _choose_strategy(profile: Profile) -> None:
    """Replace the plugin that scores resources by a strategy of NodeResourcesFit, in its position."""
    enabled = profile.listed("score", "enabled")
    chosen = [plugin for plugin in enabled if name_of(plugin) in _SCORERS]
    is_default = not profile.disables("score", _DEFAULT) and _DEFAULT not in map(name_of, chosen)
    scorer = _DEFAULT if is_default else name_of(chosen[0]) if chosen else ""
    way_out = f"disable {scorer}" if is_default else f"leave out {scorer}"
    for extra in chosen[0 if is_default else 1 :]:
        message = f"{quoted(name_of(extra))} cannot score beside {scorer}: one strategy scores resources now, {way_out}"
        profile.conversion.fault(extra, "name", message)
    left = [plugin for plugin in enabled if not any(plugin is extra for extra in chosen[1:])]
    profile.list_at("score", "enabled", left)
    for plugin in chosen[:1]:
        plugin["name"] = FIT
    profile.drop("score", "disabled", _SCORERS)
    if not scorer and not profile.disables("score", FIT):
        profile.list_at("score", "disabled", [*profile.listed("score", "disabled"), {"name": FIT}])
    given = profile.args(scorer)
    if scorer in STRATEGIES and (given or scorer != _DEFAULT):
        strategy = profile.conversion.instead(given, _strategy(scorer, given, profile.conversion))
        profile.put_args(FIT, {**profile.args(FIT), "scoringStrategy": strategy}, instead_of=scorer)
    profile.drop_args(STRATEGIES)


def _strategy(scorer: str, given: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    by_ratio = scorer == "RequestedToCapacityRatio"
    for key in given:
        if key not in {"apiVersion", "kind", "resources"} and not (key == "shape" and by_ratio):
            conversion.fault(given, key, "unknown field")
    strategy: dict[str, Any] = {"type": STRATEGIES[scorer]}
    if given.get("resources"):
        strategy["resources"] = given["resources"]
    if by_ratio:
        strategy["requestedToCapacityRatio"] = {"shape": given.get("shape") or []}
    return strategy
