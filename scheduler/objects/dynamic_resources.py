"""Devices and claims of group resource.k8s.io/v1, with the fields that scheduling reads and writes.

Quantities stay as written; those of slices and claims are checked during decoding, so that `parse_quantity`
accepts them later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.objects.meta import ApiStruct, Condition, ObjectMeta
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.selectors import NodeSelector

MAX_RESULTS = 32
"""Maximum number of devices in one claim."""

# Devices, as published by drivers.


class DeviceAttribute(ApiStruct, frozen=True):
    """resource.DeviceAttribute: a value, or several values, of one of four types."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: tuple[int, ...] = msgspec.field(default=(), name="ints")
    bool_values: tuple[bool, ...] = msgspec.field(default=(), name="bools")
    string_values: tuple[str, ...] = msgspec.field(default=(), name="strings")
    version_values: tuple[str, ...] = msgspec.field(default=(), name="versions")

    @property
    def has_several(self) -> bool:
        """Whether it has a list of values."""
        return bool(self.int_values or self.bool_values or self.string_values or self.version_values)


class CapacityRequestPolicyRange(ApiStruct, frozen=True):
    """resource.CapacityRequestPolicyRange: minimum, maximum and step."""

    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None

    def __post_init__(self) -> None:
        _check_quantities(self.min, self.max, self.step)


class CapacityRequestPolicy(ApiStruct, frozen=True):
    """resource.CapacityRequestPolicy: the allowed amounts of a capacity in one request."""

    default: str | int | float | None = None
    valid_values: tuple[str | int | float, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None

    def __post_init__(self) -> None:
        _check_quantities(self.default, *self.valid_values)


class DeviceCapacity(ApiStruct, frozen=True):
    """resource.DeviceCapacity."""

    value: str | int | float = 0
    request_policy: CapacityRequestPolicy | None = None

    def __post_init__(self) -> None:
        _check_quantities(self.value)


class Counter(ApiStruct, frozen=True):
    """resource.Counter."""

    value: str | int | float = 0

    def __post_init__(self) -> None:
        _check_quantities(self.value)


class CounterSet(ApiStruct, frozen=True):
    """resource.CounterSet: named counters that devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class DeviceCounterConsumption(ApiStruct, frozen=True):
    """resource.DeviceCounterConsumption: one device's consumption of one counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(ApiStruct, frozen=True):
    """resource.DeviceTaint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class DeviceTaintSelector(ApiStruct, frozen=True):
    """resource.DeviceTaintSelector: the devices that have all of the given names; without any, all devices."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct, frozen=True):
    """resource.DeviceTaintRuleSpec."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(ApiStruct, frozen=True):
    """resource.DeviceTaintRule: a taint that an administrator adds to devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


class NodeAllocatableResourceMapping(ApiStruct, frozen=True):
    """resource.NodeAllocatableResourceMapping of Kubernetes 1.36: how much of a node's resource a device is."""

    capacity_key: str | None = None
    allocation_multiplier: str | int | float | None = None

    def __post_init__(self) -> None:
        _check_quantities(self.allocation_multiplier)


class NodeAllocatableMapping(ApiStruct, frozen=True):
    """resource.NodeAllocatableMapping: how much of a node's resource a device is."""

    capacity_key: str | None = None
    capacity_multiplier: str | int | float | None = None
    device_multiplier: str | int | float | None = None

    def __post_init__(self) -> None:
        _check_quantities(self.capacity_multiplier, self.device_multiplier)


class NodeAllocatableOverhead(ApiStruct, frozen=True):
    """resource.NodeAllocatableOverhead: what each pod and container with a device takes of a node's resource besides."""

    per_pod: str | int | float | None = None
    per_container: str | int | float | None = None

    def __post_init__(self) -> None:
        _check_quantities(self.per_pod, self.per_container)


class NodeAllocatableResource(ApiStruct, frozen=True):
    """resource.NodeAllocatableResource."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(ApiStruct, frozen=True):
    """resource.Device; an attribute or capacity without a domain is in the domain of its driver.

    Kubernetes 1.36 has `node_allocatable_resource_mappings`, later versions `node_allocatable_resources`.
    """

    name: str = ""
    attributes: dict[str, DeviceAttribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = msgspec.field(default_factory=dict)
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = msgspec.field(
        default_factory=dict
    )
    node_allocatable_resources: dict[str, NodeAllocatableResource] = msgspec.field(default_factory=dict)


class ResourcePool(ApiStruct, frozen=True):
    """resource.ResourcePool: the pool of a slice, its number of slices, and its version."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiStruct, frozen=True):
    """resource.ResourceSliceSpec."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(ApiStruct, frozen=True):
    """resource.ResourceSlice."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# Device classes, and claims to devices.


class CELDeviceSelector(ApiStruct, frozen=True):
    """resource.CELDeviceSelector."""

    expression: str = ""


class DeviceSelector(ApiStruct, frozen=True):
    """resource.DeviceSelector; without an expression its type is unknown."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(ApiStruct, frozen=True):
    """resource.OpaqueDeviceConfiguration: parameters for the driver, which are only copied."""

    driver: str = ""
    parameters: Any = None


class DeviceClassConfiguration(ApiStruct, frozen=True):
    """resource.DeviceClassConfiguration."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiStruct, frozen=True):
    """resource.DeviceClassSpec."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(ApiStruct, frozen=True):
    """resource.DeviceClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceToleration(ApiStruct, frozen=True):
    """resource.DeviceToleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Return whether the toleration matches a taint; an empty effect or key matches all.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/devicetoleration.go,
            ToleratesTaint.
        """
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        if self.operator in {"", "Equal"}:
            return self.value == taint.value
        return self.operator == "Exists"


class CapacityRequirements(ApiStruct, frozen=True):
    """resource.CapacityRequirements."""

    requests: dict[str, str | int | float] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_quantities(*self.requests.values())


class DeviceDerivedAttribute(ApiStruct, frozen=True):
    """resource.DeviceDerivedAttribute: an attribute for constraints, computed from each device."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(ApiStruct, frozen=True):
    """resource.ExactDeviceRequest."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


class DeviceSubRequest(ApiStruct, frozen=True):
    """resource.DeviceSubRequest: one of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


class DeviceRequest(ApiStruct, frozen=True):
    """resource.DeviceRequest: exactly one request, or the first available one of several."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(ApiStruct, frozen=True):
    """resource.DeviceConstraint: an attribute with equal, or with distinct values, for all requests or for some."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(ApiStruct, frozen=True):
    """resource.DeviceClaimConfiguration."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiStruct, frozen=True):
    """resource.DeviceClaim."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(ApiStruct, frozen=True):
    """resource.ResourceClaimSpec."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(ApiStruct, frozen=True):
    """resource.DeviceRequestAllocationResult: one device; `share_id` distinguishes shares of one device."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    skip_node_operations: tuple[str, ...] = ()
    compatibility_groups: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_quantities(*self.consumed_capacity.values())


class DeviceAllocationConfiguration(ApiStruct, frozen=True):
    """resource.DeviceAllocationConfiguration: configuration of the class or the claim for the driver."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True):
    """resource.DeviceAllocationResult."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(ApiStruct, frozen=True):
    """resource.AllocationResult; without a node selector the devices are available on all nodes."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str = ""


class ResourceClaimConsumerReference(ApiStruct, frozen=True):
    """resource.ResourceClaimConsumerReference."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True):
    """resource.AllocatedDeviceStatus, with the fields that scheduling reads."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(ApiStruct, frozen=True):
    """resource.ResourceClaimStatus."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(ApiStruct, frozen=True):
    """resource.ResourceClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


def _check_quantities(*quantities: str | float | None) -> None:
    for quantity in quantities:
        if quantity is not None:
            parse_quantity(quantity)
