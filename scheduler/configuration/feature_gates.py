"""Feature gates with kube-scheduler's names: those with an effect here, and those that cannot be changed.

kube-scheduler accepts them only as a flag; here a configuration file may contain `featureGates` too. Workload
scheduling is alpha and off in kube-scheduler; here it is on.

Source:
    kube-scheduler v1.36, pkg/features/kube_features.go; staging/src/k8s.io/component-base/featuregate/feature_gate.go,
    SetWithLogger, unsafeSetFromMap.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from scheduler.objects.wording import GO_BOOLEANS, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The enabled features of workload scheduling.

    Attributes:
        generic_workload: pods with a `schedulingGroup` are scheduled as groups.
        gang_scheduling: groups with the gang policy start together or not at all.
        topology_aware_workload_scheduling: groups stay in one domain of their topology constraint.
        workload_aware_preemption: groups preempt, and are preempted, as a whole.
    """

    generic_workload: bool = True
    gang_scheduling: bool = True
    topology_aware_workload_scheduling: bool = True
    workload_aware_preemption: bool = True


_NEEDS = {  # gate -> the gate it depends on, in the order of the attributes above
    "GenericWorkload": None,
    "GangScheduling": "GenericWorkload",
    "TopologyAwareWorkloadScheduling": "GenericWorkload",
    "WorkloadAwarePreemption": "GangScheduling",
}
_ALL_ALPHA = "AllAlpha"
_ALWAYS_ON = frozenset(
    {
        "AllBeta",
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
        "DRAResourceClaimDeviceStatus",
        "DRASchedulerFilterTimeout",
        "DynamicResourceAllocation",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScaling",
        "MatchLabelKeysInPodTopologySpread",
        "MatchLabelKeysInPodTopologySpreadSelectorMerge",
        "NodeDeclaredFeatures",
        "NodeInclusionPolicyInPodTopologySpread",
        "PodLevelResources",
        "SchedulerAsyncPreemption",
        "SchedulerPopFromBackoffQ",
        "SchedulerQueueingHints",
        "SidecarContainers",
        "VolumeAttributesClass",
    }
)
_ALWAYS_OFF = frozenset(
    {
        "DRADeviceTaintRules",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAWorkloadResourceClaims",
        "StorageCapacityScoring",
        "TaintTolerationComparisonOperators",
        "VolumeLimitScaling",
    }
)
_OF_ITS_INSIDE = frozenset(
    {"NominatedNodeNameForExpectation", "OpportunisticBatching", "SchedulerAsyncAPICalls"}
)
"""Gates of kube-scheduler's implementation; they do not change decisions."""

_KNOWN = {*_NEEDS, _ALL_ALPHA, *_ALWAYS_ON, *_ALWAYS_OFF, *_OF_ITS_INSIDE}


def gates_of(given: Mapping[str, bool]) -> FeatureGates:
    """Return the enabled features. An unnamed gate has the value of `AllAlpha`, true by default, if its dependency is on."""
    on: dict[str, bool] = {}
    for gate, needed in _NEEDS.items():
        by_default = given.get(_ALL_ALPHA, True) and (needed is None or on[needed])
        on[gate] = given.get(gate, by_default)
    return FeatureGates(*on.values())


def gate_faults(given: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield (gate, error) with kube-scheduler's messages."""
    faulty = False
    for gate, value in given.items():
        if gate not in _KNOWN:
            faulty = True
            yield gate, f"unrecognized feature gate: {gate}{did_you_mean(gate, _KNOWN)}"
        elif gate in (_ALWAYS_OFF if value else _ALWAYS_ON):
            faulty = True
            wanted, locked = _word(value), _word(not value)
            yield gate, f"cannot set feature gate {gate} to {wanted}, feature is locked to {locked}"
    if faulty:
        return
    on = dict(zip(_NEEDS, astuple(gates_of(given)), strict=True))
    for gate, needed in _NEEDS.items():
        if needed is not None and on[gate] and not on[needed]:
            yield gate, f"{gate} is enabled, but depends on features that are disabled: [{needed}]"


def gates_in_vain(given: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield (gate, reason) for each named gate without an effect."""
    for gate, value in given.items():
        if gate in _OF_ITS_INSIDE:
            yield gate, "has no effect: it is about the implementation of kube-scheduler"
        elif gate in (_ALWAYS_ON if value else _ALWAYS_OFF):
            yield gate, f"has no effect: it is always {_word(value)} here"


def parse_gates(text: str) -> dict[str, bool]:
    """Parse the value of a flag: `GenericWorkload=true,GangScheduling=false`.

    Raises:
        ValueError: the value is invalid; the message is kube-scheduler's.
    """
    given: dict[str, bool] = {}
    for part in filter(None, text.split(",")):
        gate, equals, word = (each.strip() for each in part.partition("="))
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
