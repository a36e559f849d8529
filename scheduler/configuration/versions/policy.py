"""Converts a Policy object to the plugins of a profile.

Later plugins (scheduling gates, dynamic resources, declared features) run by default: they affect only pods
that use them.

Source:
    kube-scheduler v1.22, staging/src/k8s.io/kube-scheduler/config/v1/types.go.
    kube-scheduler v1.22, pkg/scheduler/framework/plugins/legacy_registry.go, NewLegacyRegistry, predicateOrdering.
    kube-scheduler v1.22, pkg/scheduler/factory.go, createFromConfig;
    pkg/scheduler/framework/plugins/legacy_registry.go; apis/config/validation/validation.go, ValidatePolicy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from scheduler.configuration.decode import decode
from scheduler.configuration.types import ConfigurationStruct, Extender, ExtenderTLS
from scheduler.configuration.versions.profiles import NO_PREFERENCE, required_labels
from scheduler.configuration.versions.steps import (
    NO_AVOID_PODS,
    NO_RESOURCE_LIMITS,
    NO_SERVICE_AFFINITY,
    with_lower_case,
)
from scheduler.objects.wording import did_you_mean, entry, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.configuration.versions.conversion import Conversion

_MAX_INT32 = 2**31 - 1


class ServiceAffinity(ConfigurationStruct, frozen=True, kw_only=True):
    """Places pods of a service on nodes with equal values of these labels."""

    labels: tuple[str, ...] = ()


class LabelsPresence(ConfigurationStruct, frozen=True, kw_only=True):
    """Requires nodes with all of these labels, or with none of them."""

    labels: tuple[str, ...] = ()
    presence: bool = False


class PredicateArgument(ConfigurationStruct, frozen=True, kw_only=True):
    """The argument of a custom predicate; exactly one field is set."""

    service_affinity: ServiceAffinity | None = None
    labels_presence: LabelsPresence | None = None


class Predicate(ConfigurationStruct, frozen=True, kw_only=True):
    """A condition for nodes."""

    name: str = ""
    argument: PredicateArgument | None = None


class ServiceAntiAffinity(ConfigurationStruct, frozen=True, kw_only=True):
    """Spreads pods of a service over the values of a label."""

    label: str = ""


class LabelPreference(ConfigurationStruct, frozen=True, kw_only=True):
    """Prefers nodes with a label, or without it."""

    label: str = ""
    presence: bool = False


class RequestedToCapacityRatioArguments(ConfigurationStruct, frozen=True, kw_only=True):
    """The score as a function of the requested share of resources; entries as in NodeResourcesFit."""

    shape: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()


class PriorityArgument(ConfigurationStruct, frozen=True, kw_only=True):
    """The argument of a custom priority; exactly one field is set."""

    service_anti_affinity: ServiceAntiAffinity | None = None
    label_preference: LabelPreference | None = None
    requested_to_capacity_ratio_arguments: RequestedToCapacityRatioArguments | None = None


class Priority(ConfigurationStruct, frozen=True, kw_only=True):
    """A score for nodes."""

    name: str = ""
    weight: Annotated[int, msgspec.Meta(ge=1, le=_MAX_INT32)]
    argument: PriorityArgument | None = None


class Policy(ConfigurationStruct, frozen=True, kw_only=True):
    """A policy.

    Attributes:
        predicates: None for the default ones, an empty list for the mandatory ones only.
        priorities: None for the default ones, an empty list for none.
        extenders: as in a configuration, but with `enableHttps`, and `httpTimeout` in nanoseconds.
        hard_pod_affinity_symmetric_weight: 0 for the default.
    """

    predicates: tuple[Predicate, ...] | None = None
    priorities: tuple[Priority, ...] | None = None
    extenders: tuple[dict[str, Any], ...] = ()
    hard_pod_affinity_symmetric_weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    always_check_all_predicates: bool = False


PREDICATES: dict[str, tuple[str, ...]] = {
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "HostName": ("NodeName",),
    "PodFitsHostPorts": ("NodePorts",),
    "PodFitsPorts": ("NodePorts",),
    "MatchNodeSelector": ("NodeAffinity",),
    "PodFitsResources": ("NodeResourcesFit",),
    "NoDiskConflict": ("VolumeRestrictions",),
    "PodToleratesNodeTaints": ("TaintToleration",),
    "CheckNodeLabelPresence": ("NodeAffinity",),
    "MaxEBSVolumeCount": ("NodeVolumeLimits",),
    "MaxGCEPDVolumeCount": ("NodeVolumeLimits",),
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
    "MaxAzureDiskVolumeCount": ("NodeVolumeLimits",),
    "MaxCinderVolumeCount": ("NodeVolumeLimits",),
    "CheckVolumeBinding": ("VolumeBinding",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "EvenPodsSpread": ("PodTopologySpread",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
}
"""Predicate -> filter plugins, both in execution order."""

MANDATORY_PREDICATES = frozenset({"PodToleratesNodeTaints", "CheckNodeUnschedulable"})

DEFAULT_PREDICATES = frozenset(
    {
        "NoVolumeZoneConflict",
        "MaxEBSVolumeCount",
        "MaxGCEPDVolumeCount",
        "MaxAzureDiskVolumeCount",
        "MaxCSIVolumeCountPred",
        "MatchInterPodAffinity",
        "NoDiskConflict",
        "GeneralPredicates",
        "PodToleratesNodeTaints",
        "CheckVolumeBinding",
        "CheckNodeUnschedulable",
        "EvenPodsSpread",
    }
)

TAINTED = frozenset(
    {"CheckNodeCondition", "CheckNodeMemoryPressure", "CheckNodeDiskPressure", "CheckNodePIDPressure"}
)
"""Predicates about conditions that the node controller reports as taints since Kubernetes 1.12."""

PRIORITIES: dict[str, str] = {
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "EqualPriority": "",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "ImageLocalityPriority": "ImageLocality",
    "InterPodAffinityPriority": "InterPodAffinity",
    "LeastRequestedPriority": "NodeResourcesFit",
    "MostRequestedPriority": "NodeResourcesFit",
    "NodeAffinityPriority": "NodeAffinity",
    "RequestedToCapacityRatio": "NodeResourcesFit",
    "RequestedToCapacityRatioPriority": "NodeResourcesFit",
    "SelectorSpreadPriority": "PodTopologySpread",
    "ServiceSpreadingPriority": "PodTopologySpread",
    "TaintTolerationPriority": "TaintToleration",
}
"""Priority -> its score plugin; "" for one with equal scores for all nodes."""

STRATEGIES = {
    "LeastRequestedPriority": "LeastAllocated",
    "MostRequestedPriority": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
    "RequestedToCapacityRatioPriority": "RequestedToCapacityRatio",
}
"""Priority -> its scoring strategy of NodeResourcesFit."""

DEFAULT_PRIORITIES = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    "EvenPodsSpreadPriority": 2,
}
"""Priority -> weight, without NodePreferAvoidPodsPriority, which was a default."""

SCORING = frozenset(
    {
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesFit",
        "PodTopologySpread",
        "TaintToleration",
        "VolumeBinding",
    }
)
"""Plugins with both filter and score."""


_NO_PRIORITY = {
    "NodePreferAvoidPodsPriority": NO_AVOID_PODS,
    "ResourceLimitsPriority": NO_RESOURCE_LIMITS,
}
_RATIO = "RequestedToCapacityRatio"
_SECOND = 1_000_000_000  # nanoseconds, in which httpTimeout was


@dataclass(frozen=True, slots=True)
class PolicyPlugins:
    """The result of a policy: fields of a profile, and the extenders of the configuration."""

    plugins: dict[str, Any]
    args: dict[str, dict[str, Any]]  # plugin -> its arguments
    extenders: list[Any]


def convert(fields: dict[str, Any], conversion: Conversion) -> PolicyPlugins | None:
    """Return the plugins of a policy.

    The conversion is of the policy's own document; the fields are without apiVersion and kind.

    Returns:
        None if the policy cannot be decoded.
    """
    policy, errors = decode(fields, Policy)
    conversion.errors.extend(errors)
    if policy is None:
        return None
    walk = _Walk(conversion)
    walk.predicates(policy.predicates)
    walk.priorities(policy.priorities)
    if policy.hard_pod_affinity_symmetric_weight:
        walk.args["InterPodAffinity"] = {"hardPodAffinityWeight": policy.hard_pod_affinity_symmetric_weight}
    if policy.always_check_all_predicates:
        conversion.note(
            None,
            "alwaysCheckAllPredicates",
            "has no effect: a node has the reason of the first plugin that rejects it",
        )
    extenders = [
        extender
        for i, given in enumerate(policy.extenders)
        if (extender := _extender(given, i, conversion)) is not None
    ]
    enabled = {*walk.filters, *walk.weights}
    args = {plugin: args for plugin, args in walk.args.items() if plugin in enabled}
    return PolicyPlugins(_plugins(walk.filters, walk.weights), args, extenders)


@dataclass(slots=True)
class _Walk:
    """Collects plugins.

    Attributes:
        conversion: records errors and losses.
        filters: filter plugins, in order.
        weights: score plugin -> weight.
        args: plugin -> arguments.
    """

    conversion: Conversion
    filters: list[str] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    args: dict[str, dict[str, Any]] = field(default_factory=dict)
    _strategy: str = ""  # the priority that selected the scoring strategy

    def predicates(self, given: tuple[Predicate, ...] | None) -> None:
        names = set(MANDATORY_PREDICATES)
        if given is None:
            names |= DEFAULT_PREDICATES
        present: list[str] = []
        absent: list[str] = []
        for i, predicate in enumerate(given or ()):
            path = entry("predicates", i)
            argument = predicate.argument
            if argument is None:
                self._predicate(predicate.name, path, names)
            elif (argument.service_affinity is None) == (argument.labels_presence is None):
                self._fault(f"{path}.argument", "must have either serviceAffinity or labelsPresence")
            elif argument.labels_presence is not None:
                names.add("CheckNodeLabelPresence")
                (present if argument.labels_presence.presence else absent).extend(
                    argument.labels_presence.labels
                )
            else:
                self._fault(f"{path}.argument.serviceAffinity", f"was removed, {NO_SERVICE_AFFINITY}")
        if present or absent:
            self.args["NodeAffinity"] = {"addedAffinity": required_labels(present, absent)}
            if names.isdisjoint({"GeneralPredicates", "MatchNodeSelector"}):
                self.conversion.note(
                    None,
                    "predicates",
                    "enable nodeSelector and node affinity of pods as well: NodeAffinity checks them together with the labels",
                )
        ordered = (plugin for name, plugins in PREDICATES.items() if name in names for plugin in plugins)
        self.filters.extend(dict.fromkeys(ordered))

    def _predicate(self, name: str, path: str, names: set[str]) -> None:
        if name in {"CheckNodeLabelPresence", "CheckServiceAffinity"}:
            self._fault(path, f"{quoted(name)} needs an argument")
        elif name in PREDICATES:
            names.add(name)
        elif name in TAINTED:
            self.conversion.note(
                None, path, f"has no effect: taints report it, and TaintToleration replaces {name}"
            )
        else:
            hint = did_you_mean(name, (*PREDICATES, *TAINTED))
            self._fault(f"{path}.name", f"no predicate {quoted(name)} is known{hint}")

    def priorities(self, given: tuple[Priority, ...] | None) -> None:
        if given is None:
            for name, weight in DEFAULT_PRIORITIES.items():
                self._priority(name, weight, "priorities")
            return
        for i, priority in enumerate(given):
            path = entry("priorities", i)
            if priority.argument is None or (priority.name in PRIORITIES and priority.name not in STRATEGIES):
                self._named(priority, path)
            else:
                self._custom(priority.argument, priority.weight, path)
        if "PodTopologySpread" in self.weights and "PodTopologySpread" not in self.args:
            # Even spreading alone uses only the pods' own constraints.
            self.args["PodTopologySpread"] = {"defaultingType": "List"}

    def _named(self, priority: Priority, path: str) -> None:
        name = priority.name
        if name in _NO_PRIORITY:
            self._fault(f"{path}.name", f"{quoted(name)} was removed, {_NO_PRIORITY[name]}")
        elif STRATEGIES.get(name) == _RATIO:
            self._fault(f"{path}.argument", "is missing: requestedToCapacityRatioArguments defines the score")
        elif name in PRIORITIES:
            self._priority(name, priority.weight, path)
        else:
            self._fault(
                f"{path}.name", f"no priority {quoted(name)} is known{did_you_mean(name, PRIORITIES)}"
            )

    def _custom(self, argument: PriorityArgument, weight: int, path: str) -> None:
        ratio = argument.requested_to_capacity_ratio_arguments
        given = [argument.service_anti_affinity, argument.label_preference, ratio]
        if sum(each is not None for each in given) != 1:
            self._fault(
                f"{path}.argument",
                "must have one of serviceAntiAffinity, labelPreference and requestedToCapacityRatioArguments",
            )
        elif argument.service_anti_affinity is not None:
            self._fault(f"{path}.argument.serviceAntiAffinity", f"was removed, {NO_SERVICE_AFFINITY}")
        elif argument.label_preference is not None:
            self._fault(f"{path}.argument.labelPreference", NO_PREFERENCE)
        elif ratio is not None:
            self._priority(_RATIO, weight, path, ratio)

    def _priority(
        self, name: str, weight: int, path: str, ratio: RequestedToCapacityRatioArguments | None = None
    ) -> None:
        plugin = PRIORITIES[name]
        if not plugin:
            return
        if name in STRATEGIES:
            if self._strategy and self._strategy != name:
                self._fault(
                    path,
                    f"{name} cannot score beside {self._strategy}: one strategy scores resources now, leave out one",
                )
                return
            self._strategy = name
            self.args["NodeResourcesFit"] = {"scoringStrategy": _strategy(STRATEGIES[name], ratio)}
        if name in {"SelectorSpreadPriority", "ServiceSpreadingPriority"}:
            self.args["PodTopologySpread"] = {"defaultingType": "System"}
        self.weights[plugin] = max(weight, self.weights.get(plugin, 0))

    def _fault(self, path: str, problem: str) -> None:
        self.conversion.fault(None, path, problem)


def _strategy(type_: str, ratio: RequestedToCapacityRatioArguments | None) -> dict[str, Any]:
    strategy: dict[str, Any] = {"type": type_}
    if ratio is not None:
        if ratio.resources:
            strategy["resources"] = [with_lower_case(item) for item in ratio.resources]
        strategy["requestedToCapacityRatio"] = {"shape": [with_lower_case(item) for item in ratio.shape]}
    return strategy


def _plugins(filters: list[str], weights: Mapping[str, int]) -> dict[str, Any]:
    """Return the plugin sets of a profile without other filter and score plugins."""

    def listed(name: str) -> dict[str, Any]:
        return {"name": name, "weight": weights[name]} if name in weights else {"name": name}

    scorers = [name for name in sorted(weights) if name not in filters]
    enabled = [
        "SchedulingGates",
        "PrioritySort",
        *filters,
        "DynamicResources",
        "DefaultPreemption",
        *scorers,
        "DefaultBinder",
        "NodeDeclaredFeatures",
    ]
    plugins: dict[str, Any] = {
        "multiPoint": {"disabled": [{"name": "*"}], "enabled": [listed(name) for name in enabled]}
    }
    only_filter = [{"name": name} for name in filters if name in SCORING and name not in weights]
    only_score = [{"name": name} for name in scorers if name in SCORING]
    for names, points in ((only_filter, ("preScore", "score")), (only_score, ("preFilter", "filter"))):
        if names:
            plugins.update({point: {"disabled": names} for point in points})
    return plugins


def _extender(given: dict[str, Any], index: int, conversion: Conversion) -> dict[str, Any] | None:
    """Return an extender of a configuration, None for an invalid one.

    Keys may have any case, because `BindVerb` was once the usual form.
    """
    path = entry("extenders", index)
    extender = _with_keys_of(Extender, given)
    timeout = extender.get("httpTimeout")
    if isinstance(timeout, int) and not isinstance(timeout, bool):
        extender["httpTimeout"] = f"{timeout // _SECOND}s" if timeout % _SECOND == 0 else f"{timeout}ns"
    if isinstance(extender.get("tlsConfig"), dict):
        extender["tlsConfig"] = _with_keys_of(ExtenderTLS, extender["tlsConfig"])
    errors = decode(extender, Extender, path)[1]
    conversion.errors.extend(errors)
    return None if errors else extender


def _with_keys_of(struct: type[ConfigurationStruct], given: dict[str, Any]) -> dict[str, Any]:
    known = {key.lower(): key for key in struct.__struct_encode_fields__}
    return {known.get(key.lower(), key): value for key, value in given.items()}
