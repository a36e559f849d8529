"""The features of kube-scheduler that change which devices a claim gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from scheduler.framework import Features

OPTIONAL_NODE_OPERATIONS: Final = "DRAOptionalNodeOperations"
"""The gate, and the feature that a node declares, to skip operations of drivers on the node."""

_NAMES: Final = {
    "admin_access": ("DRAAdminAccess",),
    "binding_conditions": ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
    "capacity_checks": ("DeviceCapacityChecks",),
    "compatibility_groups": ("DRADeviceCompatibilityGroups",),
    "config_for_all": ("DeviceConfigurationForAll",),
    "consumable_capacity": ("DRAConsumableCapacity",),
    "counters_by_driver": ("DeviceCountersByDriver",),
    "counters_by_node": ("DeviceCountersByNode",),
    "derived_attributes": ("DRADerivedAttributes",),
    "distinct_devices": ("DistinctAttributeOfEachDevice",),
    "errors_name_devices": ("DeviceErrorsNameDevices",),
    "fractional_ranges": ("DRAFractionalCapacityRange",),
    "knows_compatibility_groups": ("CompatibilityGroupsAreKnown",),
    "knows_optional_node_operations": ("OptionalNodeOperationsAreKnown",),
    "list_attributes": ("DRAListTypeAttributes",),
    "node_allocatable": ("DRANodeAllocatableResources",),
    "node_overheads": ("NodeAllocatableOverheads",),
    "optional_node_operations": (OPTIONAL_NODE_OPERATIONS,),
    "partitionable_devices": ("DRAPartitionableDevices",),
    "prioritized_list": ("DRAPrioritizedList",),
    "rules_need_selectors": ("DeviceTaintRuleNeedsSelector",),
    "taint_rules": ("DRADeviceTaintRules",),
    "taints": ("DRADeviceTaints",),
}
"""Field of `DeviceFeatures` -> the feature gates and changes that must all be on."""


@dataclass(frozen=True, slots=True)
class DeviceFeatures:
    """The enabled features of devices; the defaults are those of Kubernetes 1.36.

    Attributes:
        admin_access: requests may ask for admin access.
        binding_conditions: devices may have binding conditions.
        capacity_checks: a request of capacity that is negative or does not fit in 64 bits ends the attempt.
        compatibility_groups: devices with compatibility groups are allocated.
        config_for_all: configuration for all requests is written once, and without their names.
        consumable_capacity: claims may share devices, and request capacity.
        counters_by_driver: two drivers may have pools of one name with different counters.
        counters_by_node: a slice of counters does not make its pool visible to nodes that the slice does not select.
        derived_attributes: requests may compute attributes for constraints.
        distinct_devices: several devices of one request have distinct values too.
        errors_name_devices: errors of selectors name the device, and recommend optional access for a missing key.
        fractional_ranges: ranges of capacity may have fractions.
        knows_compatibility_groups: only devices with a common compatibility group consume a counter set together.
        knows_optional_node_operations: devices of slices with `skipNodeOperations` are allocated only with
            `optional_node_operations`.
        list_attributes: attributes may have several values.
        node_allocatable: devices may take CPU, memory or huge pages of the node.
        node_overheads: they may also take some for each pod and container; claims without such devices are not shared.
        optional_node_operations: nodes that declare the feature skip operations of drivers; allocations name these.
        partitionable_devices: devices may consume counters, and slices may select nodes for each device.
        prioritized_list: requests may have alternatives.
        reads_lists: expressions read attributes with several values.
        rules_need_selectors: a DeviceTaintRule without a selector selects no device, not all.
        taint_rules: DeviceTaintRules taint devices.
        taints: taints exclude devices.
    """

    admin_access: bool = True
    binding_conditions: bool = True
    capacity_checks: bool = False
    compatibility_groups: bool = False
    config_for_all: bool = False
    consumable_capacity: bool = True
    counters_by_driver: bool = False
    counters_by_node: bool = False
    derived_attributes: bool = False
    distinct_devices: bool = False
    errors_name_devices: bool = False
    fractional_ranges: bool = False
    knows_compatibility_groups: bool = False
    knows_optional_node_operations: bool = False
    list_attributes: bool = False
    node_allocatable: bool = False
    node_overheads: bool = False
    optional_node_operations: bool = False
    partitionable_devices: bool = True
    prioritized_list: bool = True
    reads_lists: bool = False
    rules_need_selectors: bool = False
    taint_rules: bool = False
    taints: bool = True

    @classmethod
    def of(cls, features: Features) -> DeviceFeatures:
        """Return what is on in an emulated version."""
        on = {name: all(map(features.enabled, needed)) for name, needed in _NAMES.items()}
        return cls(reads_lists=on["list_attributes"] or features.enabled("ListAttributesInExpressions"), **on)


DEFAULTS: Final = DeviceFeatures()
