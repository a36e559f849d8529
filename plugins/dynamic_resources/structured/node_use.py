"""What devices take of the node's own resources: CPU, memory and huge pages that a driver manages.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/nodeallocatabledynamicresources.go, buildNodeAllocatableDRAInfo; the
    same in v1.37 with `node_overheads`, addDeviceMapping and addDeviceOverhead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scheduler.objects.quantity import Quantity, parse_quantity, quantity_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from plugins.dynamic_resources.structured.device_features import DeviceFeatures
    from scheduler.objects.dynamic_resources import Device, NodeAllocatableMapping

Written = str | int | float
"""A quantity as the object contains it."""


class NodeUse(NamedTuple):
    """The amounts that the devices of one claim take of their node.

    Attributes:
        mapping: (resource, quantity), sorted: what the devices are, once for the claim.
        overhead: (resource, for each pod, for each container that uses the claim), sorted.
        problem: why that is unknown; the attempt fails.
    """

    mapping: tuple[tuple[str, str], ...] = ()
    overhead: tuple[tuple[str, str | None, str | None], ...] = ()
    problem: str = ""


class _ProblemError(Exception):
    """The use is unknown."""


class UsedDevice(NamedTuple):
    """A device of a claim.

    Attributes:
        name: its name.
        device: the driver's description.
        consumed: capacity -> what the claim consumes of it; empty for a device that is not shared.
    """

    name: str
    device: Device
    consumed: Mapping[str, Written]


def node_use_of(devices: Iterable[UsedDevice], features: DeviceFeatures) -> NodeUse | None:
    """Return what the devices of a claim take of their node; None if none of them takes anything."""
    of_nodes = [each for each in devices if kind_of_node_use(each.device, features)]
    if not of_nodes:
        return None
    mapping, per_pod, per_container = _Sums(), _Sums(), _Sums()
    try:
        for each in of_nodes:
            if not features.node_overheads:
                _add_mapped(each, mapping)
                continue
            for resource, use in each.device.node_allocatable_resources.items():
                if use.mapping is not None:
                    _add_split(each, resource, use.mapping, mapping)
                if use.overhead is not None:
                    per_pod.add(resource, use.overhead.per_pod)
                    per_container.add(resource, use.overhead.per_container)
    except _ProblemError as problem:
        return NodeUse(problem=str(problem))
    of_pods, of_containers = per_pod.texts(), per_container.texts()
    return NodeUse(
        tuple(sorted(mapping.texts().items())),
        tuple(
            (resource, of_pods.get(resource), of_containers.get(resource))
            for resource in sorted(of_pods.keys() | of_containers.keys())
        ),
    )


def is_mapped(device: Device) -> bool:
    """Return whether a device itself is a part of a resource of the node, besides overheads."""
    return any(use.mapping is not None for use in device.node_allocatable_resources.values())


def kind_of_node_use(device: Device, features: DeviceFeatures) -> Hashable:
    """Return the fields of a device from which its use of the node follows; empty if it takes nothing."""
    if not features.node_allocatable:
        return ()
    if features.node_overheads:
        return tuple(device.node_allocatable_resources.items())
    return tuple(device.node_allocatable_resource_mappings.items())


class _Sums:
    """Sums of quantities by resource, in the notation of the first that is not zero."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Quantity, Written]] = {}

    def add(self, resource: str, written: Written | None, times: Written | None = None) -> None:
        """Add a quantity, if there is one, multiplied by another one."""
        if written is None:
            return
        amount = parse_quantity(written)
        if times is not None:
            amount *= parse_quantity(times)
        so_far, like = self._sums.get(resource, (None, written))
        if so_far is None or not so_far.unscaled:
            self._sums[resource] = amount, written
        else:
            self._sums[resource] = so_far + amount, like

    def texts(self) -> dict[str, str]:
        return {resource: quantity_text(total, like) for resource, (total, like) in self._sums.items()}


def _add_mapped(used: UsedDevice, sums: _Sums) -> None:
    for resource, each in used.device.node_allocatable_resource_mappings.items():
        if each.capacity_key:
            field = "NodeAllocatableResourceMappings"
            consumed = _consumed(used, each.capacity_key, resource, field)
            sums.add(resource, consumed, each.allocation_multiplier)
        else:
            sums.add(resource, 0 if each.allocation_multiplier is None else each.allocation_multiplier)


def _add_split(used: UsedDevice, resource: str, each: NodeAllocatableMapping, sums: _Sums) -> None:
    if each.capacity_key:
        consumed = _consumed(used, each.capacity_key, resource, "NodeAllocatableResources")
        sums.add(resource, consumed, each.capacity_multiplier)
    else:
        sums.add(resource, each.device_multiplier)


def _consumed(used: UsedDevice, key: str, resource: str, field: str) -> Written | None:
    """Return what is consumed of a capacity; None if the claim does not consume it.

    Raises:
        _ProblemError: the claim consumes no capacity at all.
    """
    if not used.consumed:
        raise _ProblemError(
            f"device {used.name}: ConsumedCapacity is nil, but Capacity key '{key}' is set in {field} "
            f"for resource {resource}"
        )
    return used.consumed.get(key)
