"""The conversion of each old version to the next one, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import mapping, name_of
from scheduler.configuration.versions.profiles import Profile, Removed, move_node_labels, profiles_of
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

_OF_A_PROFILE = ("schedulerName", "plugins", "pluginConfig")
_LOCK_FIELDS = {"lockObjectNamespace": "resourceNamespace", "lockObjectName": "resourceName"}


def from_v1alpha1(fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert a v1alpha1 configuration to v1alpha2: the top-level fields of the only profile became a list of profiles.

    Source:
        kube-scheduler v1.18, pkg/scheduler/apis/config/v1alpha1/conversion.go.
    """
    if "profiles" in fields:
        conversion.fault(
            fields, "profiles", "came with v1alpha2: v1alpha1 has schedulerName, plugins, pluginConfig"
        )
    parts = {key: fields.pop(key, None) for key in _OF_A_PROFILE}
    given = {key: value for key, value in parts.items() if value is not None}
    profile = Profile(conversion.instead(fields, given), conversion)
    fields["profiles"] = [given]
    if "postFilter" in profile.plugins:
        # The extension point between Filter and Score has a new name.
        profile.plugins["preScore"] = profile.plugins.pop("postFilter")
    weight = conversion.whole_number(fields, "hardPodAffinitySymmetricWeight", 0, 100)
    fields.pop("hardPodAffinitySymmetricWeight", None)
    if weight is not None:
        args = {"hardPodAffinityWeight": weight, **profile.args("InterPodAffinity")}
        profile.put_args("InterPodAffinity", args)
    _name_lock(mapping(fields.get("leaderElection")), conversion)


def _name_lock(election: dict[str, Any], conversion: Conversion) -> None:
    for old, new in _LOCK_FIELDS.items():
        before, now = election.get(old), election.get(new)
        if before and now and before != now:
            conversion.fault(
                election, old, f"must be {new}, {quoted(str(now))}, or be left out, was {quoted(str(before))}"
            )
        elif before and not now:
            election[new] = before
        election.pop(old, None)


CLUSTER_AUTOSCALER = "ClusterAutoscalerProvider"
"""The algorithm provider that prefers full nodes; DefaultProvider, the other one, spreads pods."""

NO_RESOURCE_LIMITS = "it was an alpha feature that nothing replaces"
_RENAMED = {
    "DefaultPodTopologySpread": Removed(by="SelectorSpread"),
    "NodeResourceLimits": Removed(advice=NO_RESOURCE_LIMITS),
}


def from_v1alpha2(fields: dict[str, Any], conversion: Conversion, provider: str = "") -> None:
    """Convert a v1alpha2 configuration to v1beta1: fields became arguments of plugins, and Reserve includes Unreserve.

    Args:
        fields: the configuration without `algorithmSource`.
        conversion: collects errors.
        provider: the algorithm provider; "" is the default one.

    Source:
        kube-scheduler v1.18 and v1.19, staging/src/k8s.io/kube-scheduler/config/v1alpha2;
        algorithmprovider/registry.go.
    """
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
_REMOVED_IN_V1BETA2 = {
    "NodePreferAvoidPods": Removed(advice=NO_AVOID_PODS),
    "ServiceAffinity": Removed(advice=NO_SERVICE_AFFINITY),
}


def from_v1beta1(fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert a v1beta1 configuration to v1beta2: NodeResourcesFit replaced four plugins that score resources.

    Source:
        kube-scheduler v1.22, pkg/scheduler/apis/config/v1beta1 and v1beta2; validation/validation.go,
        removedPluginsByVersion, conflictScorePluginsByVersion.
    """
    no_preemption = fields.get("disablePreemption") is True
    if isinstance(fields.get("disablePreemption"), bool | None):
        fields.pop("disablePreemption", None)
    for profile in profiles_of(fields, conversion):
        if no_preemption and not profile.disables("postFilter", "DefaultPreemption"):
            disabled = [*profile.listed("postFilter", "disabled"), {"name": "DefaultPreemption"}]
            profile.list_at("postFilter", "disabled", disabled)
        profile.replace(_REMOVED_IN_V1BETA2)
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


OLD_WEIGHTS = {"TaintToleration": 1, "NodeAffinity": 1, "InterPodAffinity": 1}
"""Weights of default plugins that v1beta3 changed."""

_NO_ADDRESS = "has no effect: --bind-address and --secure-port say where, --http-port without TLS"
_OLD_LOCKS = ("endpoints", "configmaps", "endpointsleases", "configmapsleases")


def from_v1beta2(fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert a v1beta2 configuration to v1beta3: default weights changed, insecure addresses were removed.

    Source:
        kube-scheduler v1.25, pkg/scheduler/apis/config/v1beta2/default_plugins.go and v1beta3/default_plugins.go.
    """
    for key in ("healthzBindAddress", "metricsBindAddress"):
        if fields.pop(key, None):
            conversion.note(fields, key, _NO_ADDRESS)
    election = mapping(fields.get("leaderElection"))
    lock = election.get("resourceLock")
    if lock in _OLD_LOCKS:
        # Only Leases are supported, as in later versions of kube-scheduler; old locks were objects of other
        # kinds.
        message = f"has no effect: a Lease is the lock, {quoted(lock)} is not supported any more"
        conversion.note(election, "resourceLock", message)
        election["resourceLock"] = "leases"
    for profile in profiles_of(fields, conversion):
        if "multiPoint" in profile.plugins:
            conversion.fault(
                profile.plugins, "multiPoint", "came with v1beta3: list the plugins at each extension point"
            )
            del profile.plugins["multiPoint"]
        _keep_old_weights(profile)


def _keep_old_weights(profile: Profile) -> None:
    """Give default plugins their old weights, unless the profile sets others."""
    added = [
        {"name": name, "weight": weight}
        for name, weight in OLD_WEIGHTS.items()
        if name not in profile.names("score", "enabled") and not profile.disables("score", name)
    ]
    profile.list_at("score", "enabled", [*profile.listed("score", "enabled"), *added])


_COUNTED_ALL_THE_SAME = "NodeVolumeLimits counts these volumes too"
_REMOVED_IN_V1 = {
    name: Removed(by="NodeVolumeLimits", lost=_COUNTED_ALL_THE_SAME)
    for name in ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
}
_SPREAD, _BY = "SelectorSpread", "PodTopologySpread"
_DEFAULT_WEIGHT = 2  # weight of PodTopologySpread
_SCORING = ("score", "multiPoint")


def from_v1beta3(fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert a v1beta3 configuration to v1: the plugins for in-tree volume types and SelectorSpread were removed.

    Source:
        kube-scheduler v1.28, pkg/scheduler/apis/config/v1beta3; v1.36, validation/validation.go,
        invalidPluginsByVersion.
    """
    for profile in profiles_of(fields, conversion):
        if "percentageOfNodesToScore" in profile.fields:
            conversion.fault(profile.fields, "percentageOfNodesToScore", "of a profile came with v1")
            del profile.fields["percentageOfNodesToScore"]
        _spread(profile)
        profile.replace(_REMOVED_IN_V1)


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
