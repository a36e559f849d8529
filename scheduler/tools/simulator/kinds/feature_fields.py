"""The fields of each kind that need a feature gate.

Fields of gates without an effect on scheduling are missing: they are kept in every version.

Source:
    kube-apiserver v1.36, pkg/api/pod/util.go, dropDisabledFields and dropDisabledPodStatusFields;
    pkg/api/{persistentvolume,persistentvolumeclaim,resourceclaimspec}; strategy.go of the kinds in
    pkg/registry/{core/node,storage/csidriver,resource/*,scheduling/*}.
    kube-apiserver v1.35, pkg/api/pod/util.go, dropDisabledWorkloadRef.
    kube-apiserver v1.37: KEP-5945 and KEP-5963 for the fields of their gates;
    pkg/registry/scheduling/compositepodgroup/strategy.go, dropDisabledPreemptionPolicyField.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.configuration.feature_gates import is_known_at
from scheduler.tools.simulator.apimachinery.disabled_fields import DisabledFields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.configuration.feature_gates import Features

_TEMPLATE: Final = "spec.template.spec."
_PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    "pod spec": {
        "pods": "spec.",
        "podtemplates": "template.spec.",
        "replicationcontrollers": _TEMPLATE,
        "deployments.apps": _TEMPLATE,
        "replicasets.apps": _TEMPLATE,
        "statefulsets.apps": _TEMPLATE,
        "daemonsets.apps": _TEMPLATE,
        "jobs.batch": _TEMPLATE,
        "cronjobs.batch": "spec.jobTemplate.spec.template.spec.",
    },
    "claim spec": {
        "resourceclaims.resource.k8s.io": "spec.devices.",
        "resourceclaimtemplates.resource.k8s.io": "spec.spec.devices.",
    },
    "group spec": {
        "podgroups.scheduling.k8s.io": "spec.",
        "compositepodgroups.scheduling.k8s.io": "spec.",
        "workloads.scheduling.k8s.io": "spec.podGroupTemplates[].",
    },
}
"""A part that several kinds have -> resource -> its path there."""
_SLICES: Final = "resourceslices.resource.k8s.io"
_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_GROUPS: Final = "podgroups.scheduling.k8s.io"
_RESULTS: Final = "status.allocation.devices.results[]"

_FIELDS: Final = (
    ("pod spec", "DynamicResourceAllocation", "resourceClaims containers[].resources.claims initContainers[].resources.claims"),
    ("pod spec", "GenericWorkload PodGroupKind", "schedulingGroup"),
    ("pod spec", "GenericWorkload !PodGroupKind", "workloadRef"),
    ("pod spec", "InPlacePodVerticalScaling", "containers[].resizePolicy initContainers[].resizePolicy"),
    ("pod spec", "MatchLabelKeysInPodTopologySpread", "topologySpreadConstraints[].matchLabelKeys"),
    ("pod spec", "PodLevelResources", "resources"),
    ("pods", "DRAExtendedResource", "status.extendedResourceClaimStatus"),
    ("pods", "DRANodeAllocatableResources", "status.nodeAllocatableResourceClaimStatuses"),
    ("pods", "DynamicResourceAllocation", "status.resourceClaimStatuses"),
    ("pods", "InPlacePodLevelResourcesVerticalScaling", "status.resources status.allocatedResources"),
    ("nodes", "InPlacePodVerticalScalingSchedulerPreemption", "spec.podPreemptionPolicy"),
    ("nodes", "NodeDeclaredFeatures", "status.declaredFeatures"),
    ("persistentvolumes", "VolumeAttributesClass", "spec.volumeAttributesClassName"),
    (
        "persistentvolumeclaims",
        "VolumeAttributesClass",
        "spec.volumeAttributesClassName status.currentVolumeAttributesClassName status.modifyVolumeStatus",
    ),
    ("csidrivers.storage.k8s.io", "VolumeLimitScaling DriverOptsIn", "spec.preventPodSchedulingIfMissing"),
    ("deviceclasses.resource.k8s.io", "DRAExtendedResource", "spec.extendedResourceName"),
    (_SLICES, "DRAConsumableCapacity", "spec.devices[].allowMultipleAllocations spec.devices[].capacity{}.requestPolicy"),
    (
        _SLICES,
        "DRADeviceBindingConditions DRAResourceClaimDeviceStatus",
        "spec.devices[].bindingConditions spec.devices[].bindingFailureConditions spec.devices[].bindsToNode",
    ),
    (_SLICES, "DRADeviceCompatibilityGroups", "spec.devices[].consumesCounters[].compatibilityGroups"),
    (_SLICES, "DRADeviceTaints", "spec.devices[].taints"),
    (
        _SLICES,
        "DRAListTypeAttributes",
        (
            "spec.devices[].attributes{}.ints spec.devices[].attributes{}.bools spec.devices[].attributes{}.strings "
            "spec.devices[].attributes{}.versions"
        ),
    ),
    (_SLICES, "DRANodeAllocatableResources !NodeAllocatableOverheads", "spec.devices[].nodeAllocatableResourceMappings"),
    (_SLICES, "DRANodeAllocatableResources NodeAllocatableOverheads", "spec.devices[].nodeAllocatableResources"),
    (_SLICES, "DRAOptionalNodeOperations", "spec.skipNodeOperations"),
    (
        _SLICES,
        "DRAPartitionableDevices",
        (
            "spec.sharedCounters spec.perDeviceNodeSelection spec.devices[].consumesCounters spec.devices[].nodeName "
            "spec.devices[].nodeSelector spec.devices[].allNodes"
        ),
    ),
    ("claim spec", "DRAAdminAccess", "requests[].exactly.adminAccess"),
    (
        "claim spec",
        "DRAConsumableCapacity",
        "requests[].exactly.capacity requests[].firstAvailable[].capacity constraints[].distinctAttribute",
    ),
    (
        "claim spec",
        "DRADerivedAttributes",
        "requests[].exactly.derivedAttributes requests[].firstAvailable[].derivedAttributes",
    ),
    ("claim spec", "DRADeviceTaints", "requests[].exactly.tolerations requests[].firstAvailable[].tolerations"),
    ("claim spec", "DRAPrioritizedList", "requests[].firstAvailable"),
    (_CLAIMS, "DRAAdminAccess", f"spec.devices.requests[].exactly.adminAccess {_RESULTS}.adminAccess"),
    (
        _CLAIMS,
        "DRAConsumableCapacity",
        (
            "spec.devices.requests[].exactly.capacity spec.devices.requests[].firstAvailable[].capacity "
            f"{_RESULTS}.shareID {_RESULTS}.consumedCapacity status.devices[].shareID"
        ),
    ),
    (_CLAIMS, "DRADeviceBindingConditions", f"{_RESULTS}.bindingConditions {_RESULTS}.bindingFailureConditions"),
    (_CLAIMS, "DRADeviceCompatibilityGroups", f"{_RESULTS}.compatibilityGroups"),
    (_CLAIMS, "DRAOptionalNodeOperations", f"{_RESULTS}.skipNodeOperations"),
    (_CLAIMS, "DRAResourceClaimDeviceStatus", "status.devices"),
    ("group spec", "DRAWorkloadResourceClaims", "resourceClaims"),
    ("group spec", "PodGroupPreemptionPolicy", "preemptionPolicy"),
    ("group spec", "TopologyAwareWorkloadScheduling", "schedulingConstraints"),
    ("group spec", "WorkloadAwarePreemption", "disruptionMode"),
    ("group spec", "WorkloadAwarePreemption", "priorityClassName"),
    ("group spec", "WorkloadAwarePreemption", "priority"),
    (_GROUPS, "DRAWorkloadResourceClaims", "spec.resourceClaims status.resourceClaimStatuses"),
)  # fmt: skip
"""(a part of `_PLACES` or a resource, the features that must all be on, the fields); `!` is a change that must be off."""
_VALUES: Final = (
    (
        "pod spec",
        "TaintTolerationComparisonOperators",
        "tolerations[].operator",
        ("Lt", "Gt"),
        ("Equal", "Exists", "Lt", "Gt"),
    ),
)
"""(part, features, fields, the values that need them, all values)."""


def disabled_fields(features: Features) -> Mapping[str, Sequence[DisabledFields]]:
    """Return resource -> the fields that a server with these features does not keep."""
    found: dict[str, list[DisabledFields]] = {}
    rows: list[tuple[str, str, str, Sequence[str], Sequence[str]]] = [
        *((*row, (), ()) for row in _FIELDS),
        *_VALUES,
    ]
    for part, needed, fields, values, supported in rows:
        names = needed.split()
        if all(_is_on(name, features) for name in names):
            continue
        is_known = bool(values) or all(_is_known(name, features) for name in names)
        for resource, place in _PLACES.get(part, {part: ""}).items():
            paths = [f"{place}{field}".split(".") for field in fields.split()]
            found.setdefault(resource, []).append(DisabledFields(paths, values, supported, is_known))
    return found


def _is_on(name: str, features: Features) -> bool:
    return features.enabled(name.lstrip("!")) is not name.startswith("!")


def _is_known(name: str, features: Features) -> bool:
    return is_known_at(name.lstrip("!"), features.version) is not name.startswith("!")
