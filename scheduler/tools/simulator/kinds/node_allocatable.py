"""The rules of devices that take CPU, memory or huge pages of their node, and of what pods take with them.

Source:
    kube-apiserver v1.36, pkg/apis/resource/validation/validation.go, validateNodeAllocatableResourceMappings;
    pkg/apis/resource/v1/defaults.go; pkg/apis/core/validation/validation.go, validateNodeAllocatableResourceClaimStatus.
    kube-apiserver v1.37: KEP-5517, the API of `nodeAllocatableResources`; the texts of its errors are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resource_names import is_native_resource, is_pod_level_resource
from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    forbidden_field,
    invalid_value,
    not_found,
    required,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.tools.simulator.apimachinery.objects import Object

_MAPPINGS: Final = "nodeAllocatableResourceMappings"
_USES: Final = "nodeAllocatableResources"
_NOT_A_NODES: Final = "must be a node allocatable resource name"


def default_node_use(device: Object) -> None:
    """Set the default values of a device."""
    for mapping in device.get(_MAPPINGS, {}).values():
        mapping.setdefault("allocationMultiplier", "1")


def validate_node_use(device: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of what a device takes of its node."""
    capacity = device.get("capacity", {})
    for name, mapping in device.get(_MAPPINGS, {}).items():
        where = f"{path}.{_MAPPINGS}[{name}]"
        if not is_native_resource(name):
            yield invalid_value(where, f'"{name}"', _NOT_A_NODES)
        yield from _validate_positive(mapping, "allocationMultiplier", where)
        yield from _validate_capacity_key(mapping, capacity, f"{where}.capacityKey")
    for name, use in device.get(_USES, {}).items():
        where = f"{path}.{_USES}[{name}]"
        if not is_pod_level_resource(name):
            yield invalid_value(where, f'"{name}"', "must be cpu, memory or hugepages-<size>")
        if not ("mapping" in use or "overhead" in use):
            yield required(where, "at least one of `mapping` or `overhead` is required")
        if "mapping" in use:
            yield from _validate_mapping(use["mapping"], capacity, f"{where}.mapping")
        if "overhead" in use:
            yield from _validate_overhead(use["overhead"], f"{where}.overhead")


def _validate_mapping(mapping: Object, capacity: Object, path: str) -> Iterator[Cause]:
    if ("deviceMultiplier" in mapping) is ("capacityKey" in mapping):
        yield invalid_value(path, '""', "exactly one of `deviceMultiplier` or `capacityKey` is required")
    if ("capacityMultiplier" in mapping) is not ("capacityKey" in mapping):
        yield invalid_value(path, '""', "`capacityKey` and `capacityMultiplier` must be set together")
    for field in ("deviceMultiplier", "capacityMultiplier"):
        yield from _validate_positive(mapping, field, path)
    yield from _validate_capacity_key(mapping, capacity, f"{path}.capacityKey")


def _validate_overhead(overhead: Object, path: str) -> Iterator[Cause]:
    if not overhead:
        yield required(path, "at least one of `perPod` or `perContainer` is required")
    for field, quantity in overhead.items():
        yield from _validate_not_negative(quantity, f"{path}.{field}")


def _validate_capacity_key(mapping: Object, capacity: Object, path: str) -> Iterator[Cause]:
    key = mapping.get("capacityKey")
    if key is None:
        return
    if not key:
        yield invalid_value(path, '""', "capacityKey must not be an empty string")
    elif key not in capacity:
        yield not_found(path, key)


def _validate_positive(holder: Object, field: str, path: str) -> Iterator[Cause]:
    quantity = holder.get(field)
    if quantity is not None and parse_quantity(quantity).nanos <= 0:
        yield invalid_value(f"{path}.{field}", f'"{quantity}"', "must be positive")


def _validate_not_negative(quantity: str, path: str) -> Iterator[Cause]:
    if parse_quantity(quantity).nanos < 0:
        yield invalid_value(path, f'"{quantity}"', "must be non-negative")


def validate_claim_uses(pod: Object) -> Iterator[Cause]:
    """Yield the errors of the status of a pod that says what its claims take of its node."""
    status = pod["status"]
    references = [*pod["spec"].get("resourceClaims", ()), *status.get("resourceClaimStatuses", ())]
    named = {reference.get("resourceClaimName") for reference in references}
    for index, use in enumerate(status.get("nodeAllocatableResourceClaimStatuses", ())):
        path = f"status.nodeAllocatableResourceClaimStatuses[{index}]"
        claim = use.get("resourceClaimName", "")
        if not claim:
            yield required(f"{path}.resourceClaimName", "must not be empty")
        if claim not in named:
            yield invalid_value(
                f"{path}.resourceClaimName", f'"{claim}"', "no mapping found in pod reference"
            )
        if "mapping" in use or "overhead" in use:
            for name, quantity in _split_quantities(use, path):
                yield from _validate_not_negative(quantity, name)
            continue
        if not use.get("containers"):
            yield required(f"{path}.containers", "must not be empty")
        yield from _validate_resources(use.get("resources", {}), f"{path}.resources")


def _validate_resources(resources: Mapping[str, str], path: str) -> Iterator[Cause]:
    if not resources:
        yield required(path, "must not be empty")
    for name, quantity in resources.items():
        where = f"{path}[{name}]"
        if not is_native_resource(name):
            yield invalid_value(where, f'"{name}"', _NOT_A_NODES)
        yield from _validate_not_negative(quantity, where)


def _split_quantities(use: Object, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each quantity of a status with it."""
    for field in ("mapping", "overhead"):
        for index, entry in enumerate(use.get(field, ())):
            for name in entry.keys() - {"name"}:
                yield f"{path}.{field}[{index}].{name}", entry[name]


def validate_resize(new: Object, old: Object) -> Iterator[Cause]:
    """Yield the error of a change of the requests of a pod that takes resources of its node with its claims.

    Source:
        kube-apiserver v1.36, pkg/apis/core/validation/validation.go, ValidatePodResize.
    """
    if old["status"].get("nodeAllocatableResourceClaimStatuses") and new["spec"] != old["spec"]:
        yield forbidden_field("spec", "pods with node allocatable resource claims cannot be resized")
