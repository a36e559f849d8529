"""Kubernetes versions and feature gates: what this scheduler does as the kube-scheduler of a version does.

kube-scheduler accepts feature gates and the emulated version only as flags; here a configuration file may contain
`featureGates` and `emulatedVersion` too. Workload scheduling is off by default in kube-scheduler; here it is on.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/component-base/featuregate/feature_gate.go, SetWithLogger, unsafeSetFromMap,
    setUnsetAlphaGates; component-base/compatibility/version.go, Validate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from scheduler.configuration.gate_stages import NEEDS, NEEDS_SINCE, STAGES
from scheduler.objects.wording import GO_BOOLEANS, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSIONS = ("1.34", "1.35", "1.36", "1.37")
"""The known Kubernetes versions, oldest first."""
DEFAULT_VERSION = "1.36"
"""The version without an API server and without `emulatedVersion`."""

CHANGES: Mapping[str, tuple[str, str]] = {
    "AntiAffinityHints": (
        "1.37",
        "InterPodAffinity tries a pod again when one of its terms of anti-affinity no longer matches another pod; before, when all had matched",
    ),
    "BalanceImprovement": (
        "1.36",
        "NodeResourcesBalancedAllocation scores by how much a pod improves the balance of a node, not by the balance",
    ),
    "ClaimMetricName": (
        "1.37",
        "`dynamic_resource_allocation_resourceclaim_creates_total` replaces `scheduler_resourceclaim_creates_total`",
    ),
    "CompatibilityGroupsAreKnown": (
        "1.37",
        "devices with compatibility groups are not allocated without DRADeviceCompatibilityGroups, nor others beside them",
    ),
    "DeclaredUserNamespaces": (
        "1.36",
        "NodeDeclaredFeatures also knows UserNamespacesHostNetworkSupport, and its message names no feature",
    ),
    "DeviceCapacityChecks": (
        "1.37",
        "a negative or too large request of capacity ends the attempt; rounding keeps the step's notation",
    ),
    "DeviceConfigurationForAll": (
        "1.37",
        "configuration of a claim is written once, and without the names of requests if it is for all",
    ),
    "DeviceCountersByDriver": ("1.37", "pools of two drivers with one name have their own counters"),
    "DeviceCountersByNode": ("1.37", "a slice of counters is visible to the nodes that it selects only"),
    "DeviceErrorsNameDevices": (
        "1.37",
        "the error of a selector names the device, and recommends optional access for a missing key",
    ),
    "DeviceTaintRuleNeedsSelector": (
        "1.37",
        "a DeviceTaintRule without a selector selects no device, not all",
    ),
    "DistinctAttributeOfEachDevice": (
        "1.37",
        "`distinctAttribute` compares all devices, also those of one request",
    ),
    "DriverOptsIn": (
        "1.36",
        "VolumeLimitScaling applies only to drivers with `preventPodSchedulingIfMissing`",
    ),
    "EventNames": (
        "1.37",
        "in metrics and explanations, events of pods without a node are named `UnscheduledPod...`, updates of a waiting pod `TargetPod...`",
    ),
    "ImageVolumeSizes": ("1.36", "ImageLocality adds the sizes of image volumes"),
    "ImageVolumeThreshold": (
        "1.37",
        "each image volume raises the total size of images from which ImageLocality gives the maximum score",
    ),
    "ListAttributesInExpressions": ("1.37", "expressions read attributes with several values"),
    "NodeAllocatableOverheads": (
        "1.37",
        "devices take resources of the node by `nodeAllocatableResources`, also for each pod and container",
    ),
    "OptionalNodeOperationsAreKnown": (
        "1.37",
        "devices of slices with `skipNodeOperations` are not allocated without DRAOptionalNodeOperations",
    ),
    "PodGroupEntities": (
        "1.37",
        "a group waits and backs off as one, with one priority; it is rejected with one message, and only the whole group preempts",
    ),
    "PodGroupKind": (
        "1.36",
        "groups are PodGroups, tried as a whole; in 1.35 they are parts of Workloads, whose pods wait for each other at Permit",
    ),
    "PodGroupMinCountMutable": ("1.37", "a gang is tried again when its `minCount` falls"),
    "PodGroupPostFilter": ("1.37", "profiles have the extension point `podGroupPostFilter`"),
    "PodGroupVictims": ("1.37", "groups with the disruption mode `all` are one victim for single pods too"),
    "PodHints": (
        "1.36",
        "InterPodAffinity and PodTopologySpread try a pod again for nominated pods too; InterPodAffinity also when the pod's own labels change, or a pod with anti-affinity to it is deleted",
    ),
    "PodTopologyLabels": (
        "1.35",
        "an assumed pod has the zone and region labels of its node, which the API server adds to bound pods",
    ),
    "PreemptionMessage": (
        "1.37",
        "the event and condition of a pod end with the node and the number of victims of its preemption",
    ),
    "WholePodResize": (
        "1.37",
        "a pod in a resize requests the largest of its three totals, not the total of each container's largest request",
    ),
}
"""Change of behavior without a gate -> (the first version with it, what changes)."""

_ON_HERE = (  # in the order of their dependencies
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
)
"""Gates of workload scheduling, which are on by default."""
_SUCCESSORS = {"GangScheduling": "GenericWorkload", "WorkloadAwarePreemption": "GenericWorkload"}
"""Removed gate -> the gate that enables its feature since; the features of other removed gates stay as they were."""
_REMOVED = "removed"
_ALL_ALPHA, _ALL_BETA = "AllAlpha", "AllBeta"
EFFECTS: Mapping[str, str] = {
    "CompositePodGroup": "groups of pods form trees, which are scheduled as one",
    "DRAAdminAccess": "requests for devices may ask for admin access",
    "DRAConsumableCapacity": "claims share devices, and request capacity of them",
    "DRADerivedAttributes": "constraints compare attributes that requests compute",
    "DRADeviceBindingConditions": "pods wait for binding conditions of devices",
    "DRADeviceCompatibilityGroups": "devices with a common compatibility group consume counters together",
    "DRADeviceTaintRules": "DeviceTaintRules taint devices",
    "DRADeviceTaints": "taints exclude devices",
    "DRAExtendedResource": "device classes provide extended resources",
    "DRAFractionalCapacityRange": "ranges of capacity may have fractions",
    "DRAListTypeAttributes": "constraints compare attributes with several values",
    "DRANodeAllocatableResources": "devices take CPU, memory or huge pages of their node",
    "DRAOptionalNodeOperations": "nodes that declare the feature skip operations of drivers; allocations name these",
    "DRAPartitionableDevices": "devices consume counters, and select nodes one by one",
    "DRAPrioritizedList": "requests for devices may have alternatives",
    "DRAResourceClaimDeviceStatus": "pods wait for binding conditions of devices",
    "DRASchedulerFilterTimeout": "the search for devices has a time limit",
    "DRAWorkloadResourceClaims": "claims of a PodGroup are reserved for the group, not for its pods",
    "DynamicResourceAllocation": "claims to devices are considered",
    "GangScheduling": "gangs start together or not at all",
    "GenericWorkload": "pods with a `schedulingGroup` are scheduled as groups",
    "InPlacePodLevelResourcesVerticalScaling": "a resize of a pod as a whole counts in its requests",
    "InPlacePodVerticalScaling": "a resize of containers counts in the requests of a pod",
    "InPlacePodVerticalScalingSchedulerPreemption": "pods are preempted for the resize of a pod on their node",
    "MatchLabelKeysInPodTopologySpread": "topology spread constraints select by their `matchLabelKeys`",
    "NodeDeclaredFeatures": "the plugin NodeDeclaredFeatures is enabled",
    "PodGroupPreemptionPolicy": "whether a group may preempt is a field of the group",
    "PodLevelResources": "a pod may request resources as a whole",
    "SchedulerPopFromBackoffQ": "pods are tried before the end of their backoff while no other pod waits",
    "StorageCapacityScoring": "VolumeBinding scores nodes by the free capacity of their storage, and accepts `shape`",
    "TaintTolerationComparisonOperators": "tolerations compare the numbers of taints with the operators Lt and Gt",
    "TopologyAwareWorkloadScheduling": "groups stay in one domain of their topology constraint",
    "VolumeAttributesClass": "claims may have a VolumeAttributesClass",
    "VolumeLimitScaling": "NodeVolumeLimits rejects nodes without the CSI driver of a volume",
    "WorkloadAwarePreemption": "groups preempt, and are preempted, as a whole",
}
"""Gate that changes decisions here -> what it changes. Every other gate is accepted and has no effect."""


class Stage(NamedTuple):
    """The stage of a gate in one version.

    Attributes:
        name: alpha, beta, ga or deprecated.
        default: whether the gate is on by default.
        locked: whether it cannot be changed.
    """

    name: str
    default: bool
    locked: bool


@cache
def stages_at(version: str) -> Mapping[str, Stage]:
    """Return gate -> its stage in a version, for the gates that kube-scheduler has there."""
    stages = {gate: _stage_at(text, version) for gate, text in STAGES.items()}
    return {gate: stage for gate, stage in stages.items() if stage is not None}


def is_known_at(name: str, version: str) -> bool:
    """Return whether a version has a gate or a change, or had the gate before it was removed."""
    if name in CHANGES:
        return _number(CHANGES[name][0]) <= _number(version)
    return name in stages_at(version) or name in _removed_at(version)


def _stage_at(text: str, version: str) -> Stage | None:
    reached = [change for since, change in _changes(text) if _number(since) <= _number(version)]
    return None if not reached or reached[-1] == _REMOVED else _stage(reached[-1])


def _changes(text: str) -> Iterator[tuple[str, str]]:
    for change in text.split(", "):
        since, _, rest = change.partition(" ")
        yield since, rest


def _stage(change: str) -> Stage:
    name, *words = change.split()
    default = "on" in words or (name in {"beta", "ga"} and "off" not in words)
    return Stage(name, default, "locked" in words)


@cache
def _removed_at(version: str) -> Mapping[str, bool]:
    """Return gate -> whether its feature was on by default before, for the gates that were removed up to a version."""
    found = {}
    for gate, text in STAGES.items():
        changes = list(_changes(text))
        since, last = changes[-1]
        if last == _REMOVED and _number(since) <= _number(version):
            found[gate] = len(changes) > 1 and _stage(changes[-2][1]).default
    return found


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@dataclass(frozen=True, slots=True)
class Features:
    """The enabled feature gates, and the changes of a Kubernetes version that have no gate.

    Attributes:
        version: the emulated version of Kubernetes, for example 1.36.
        names: the gates and changes that are on.
    """

    version: str
    names: frozenset[str]

    def enabled(self, name: str) -> bool:
        """Return whether a gate, or a change of `CHANGES`, is on.

        Raises:
            KeyError: no known version has it.
        """
        if name not in STAGES and name not in CHANGES:
            raise KeyError(name)
        return name in self.names


def features_of(given: Mapping[str, bool], version: str = "") -> Features:
    """Return what is on in a version, without validation.

    An unnamed gate of workload scheduling has the value of `AllAlpha`, true by default, if the gates that it needs are
    on. Every other unnamed gate has its default in that version, or the value of `AllAlpha` or `AllBeta`.

    Args:
        given: gate -> value.
        version: one of `VERSIONS`; "" for the default version.
    """
    return _features_of(frozenset(given.items()), version or DEFAULT_VERSION)


@lru_cache(maxsize=64)  # a configuration is asked many times while its profiles are built
def _features_of(values: frozenset[tuple[str, bool]], version: str) -> Features:
    given = dict(values)
    stages = stages_at(version)
    on = {gate: given.get(gate, _default(stage, given)) for gate, stage in stages.items()}
    for gate in _ON_HERE:
        if gate in stages and gate not in given:
            on[gate] = given.get(_ALL_ALPHA, True) and all(
                on[each] for each in NEEDS.get(gate, ()) if each in on
            )
    removed = _removed_at(version)
    on.update(removed)
    on.update({gate: on[new] for gate, new in _SUCCESSORS.items() if gate in removed})
    changes = (name for name, (since, _) in CHANGES.items() if _number(since) <= _number(version))
    return Features(version, frozenset({*changes, *(gate for gate, value in on.items() if value)}))


def _default(stage: Stage, given: Mapping[str, bool]) -> bool:
    match stage.name:
        case "alpha" if not stage.locked:
            return given.get(_ALL_ALPHA, stage.default)
        case "beta" if not stage.locked:
            return given.get(_ALL_BETA, stage.default)
    return stage.default


def gate_faults(given: Mapping[str, bool], version: str = "") -> Iterator[tuple[str, str]]:
    """Yield (gate, error) with the messages of the kube-scheduler of this version."""
    version = version or DEFAULT_VERSION
    stages = stages_at(version)
    faulty = False
    for gate, value in given.items():
        fault = _fault(gate, value, stages)
        if fault:
            faulty = True
            yield gate, fault
    if faulty or _number(version) < _number(NEEDS_SINCE):
        return
    on = features_of(given, version).names
    for gate in sorted(NEEDS.keys() & on):
        off = [needed for needed in NEEDS[gate] if needed in stages and needed not in on]
        if off:
            yield gate, f"{gate} is enabled, but depends on features that are disabled: [{' '.join(off)}]"


def gate_faults_of_all(given: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield (gate, error) for each gate that no known version accepts, with the message of the default version.

    For a configuration that is read before the API server's version is known.
    """
    for gate, value in given.items():
        if all(_fault(gate, value, stages_at(version)) for version in VERSIONS):
            yield gate, _fault(gate, value, stages_at(DEFAULT_VERSION))


def accepted_gates(
    given: Mapping[str, bool], version: str
) -> tuple[Mapping[str, bool], Sequence[tuple[str, str]]]:
    """Return the gates that a version accepts together, and (gate, error) for each of the others."""
    kept = dict(given)
    left_out: list[tuple[str, str]] = []
    while faults := list(gate_faults(kept, version)):
        # A faulty gate without a given value is on by default, and needs a gate that is given as off.
        refused = {
            each: fault
            for gate, fault in faults
            for each in ((gate,) if gate in kept else NEEDS[gate])
            if each in kept
        } or dict.fromkeys(kept, faults[0][1])
        left_out += refused.items()
        kept = {gate: value for gate, value in kept.items() if gate not in refused}
    return kept, left_out


def _fault(gate: str, value: bool, stages: Mapping[str, Stage]) -> str:
    stage = stages.get(gate)
    if stage is None:
        return f"unrecognized feature gate: {gate}{did_you_mean(gate, stages)}"
    locked = stage.locked and stage.default
    if value != locked and stage.locked:
        return f"cannot set feature gate {gate} to {_word(value)}, feature is locked to {_word(locked)}"
    return ""


def gates_in_vain(given: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield (gate, reason) for each named gate without an effect."""
    for gate in given:
        if gate in EFFECTS or gate in {_ALL_ALPHA, _ALL_BETA}:
            continue
        if gate in STAGES:
            yield gate, "has no effect: it does not change decisions"


def parse_version(text: str) -> str:
    """Parse the value of `--emulated-version`: `1.36` or `kube=1.36`.

    Raises:
        ValueError: the version is invalid or unknown; the message is kube-scheduler's.
    """
    version = text.removeprefix("kube=")
    if not re.fullmatch(r"\d+\.\d+", version):
        raise ValueError(f"illegal version string {text!r}: it must be major.minor, for example 1.36")
    if version not in VERSIONS:
        raise ValueError(f"emulation version {version} is not between [{VERSIONS[0]}, {VERSIONS[-1]}]")
    return version


def version_for(major: str, minor: str) -> str:
    """Return the known version closest to an API server's, from the fields of `/version`.

    Raises:
        ValueError: the fields are not numbers.
    """
    found = re.match(r"\d+", minor)
    if not major.isdigit() or found is None:
        raise ValueError(f"version {major}.{minor}")
    server = int(major), int(found[0])
    return next((each for each in reversed(VERSIONS) if _number(each) <= server), VERSIONS[0])


def parse_gates(text: str) -> dict[str, bool]:
    """Parse the value of a flag: `GenericWorkload=true,kube:GangScheduling=false`.

    Raises:
        ValueError: the value is invalid; the message is kube-scheduler's.
    """
    given: dict[str, bool] = {}
    for part in filter(None, text.split(",")):
        gate, equals, word = (each.strip() for each in part.partition("="))
        component, colon, name = gate.partition(":")
        if colon:
            if component != "kube":
                raise ValueError(f"component not registered: {component}")
            gate = name
        if not equals:
            raise ValueError(f"missing bool value for {gate}")
        if word not in GO_BOOLEANS:
            raise ValueError(
                f'invalid value of {gate}={word}, err: strconv.ParseBool: parsing "{word}": invalid syntax'
            )
        given[gate] = GO_BOOLEANS[word]
    return given


def written_gates(given: Mapping[str, bool]) -> str:
    """Format gates as the value of a flag, sorted by name."""
    return ",".join(f"{gate}={_word(value)}" for gate, value in sorted(given.items()))


def _word(value: bool) -> str:
    return "true" if value else "false"
