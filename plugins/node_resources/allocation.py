"""Utilization of nodes by resource, the basis of the scores of resources.

Source:
    kube-scheduler v1.36, plugins/noderesources/resource_allocation.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from scheduler.objects.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_dra_extended_resource_name,
    is_scalar_resource_name,
)
from scheduler.snapshot import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugins.dynamic_resources.class_totals import ClassTotals
    from scheduler.snapshot import Int64s, NodeInfo, ResourceArrays, Snapshot


class ResourceSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A resource that counts in a score.

    Attributes:
        name: the name in requests.
        weight: its weight; 0 means 1.
    """

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight == 0:
            msgspec.structs.force_setattr(self, "weight", 1)


DEFAULT_RESOURCES = (ResourceSpec(CPU), ResourceSpec(MEMORY))


def may_be_of_devices(resources: Iterable[ResourceSpec]) -> bool:
    """Return whether a device class may provide any of some resources."""
    return any(is_dra_extended_resource_name(resource.name) for resource in resources)


class Usage(NamedTuple):
    """One resource on all nodes.

    Attributes:
        name: the resource.
        weight: its weight.
        allocatable: int64 (n_nodes,), milliCPU, bytes or a count; 0 where a node lacks the resource.
        allocated: int64 (n_nodes,), what the pods on the node request.
        requested: int64 (n_nodes,), `allocated` with the pod to place.
    """

    name: str
    weight: int
    allocatable: Int64s
    allocated: Int64s
    requested: Int64s


def usages(
    snapshot: Snapshot,
    specs: Iterable[ResourceSpec],
    requests: Sequence[int],
    allocated: ResourceArrays,
    devices: ClassTotals | None = None,
) -> list[Usage]:
    """Return the resources that count for a pod.

    Args:
        snapshot: the cluster.
        specs: the resources of the profile.
        requests: the pod's request of each of them.
        allocated: the arrays of the requests of pods on nodes: with or without the default requests for cpu and memory.
        devices: counts the devices that nodes have instead of a resource; None to ignore devices.
    """
    found = []
    for spec, request in zip(specs, requests, strict=True):
        offered = snapshot.allocatable[spec.name]
        if spec.name in {CPU, MEMORY}:
            taken = allocated[spec.name]
        elif spec.name == EPHEMERAL_STORAGE:
            taken = snapshot.requested[spec.name]
        elif request and is_scalar_resource_name(spec.name):
            taken = snapshot.requested[spec.name]
            totals = None if devices is None else devices.of(snapshot, spec.name)
            if totals is not None:
                by_devices = (offered == 0) & (totals.capacity > 0)
                offered = np.where(by_devices, totals.capacity, offered)
                taken = np.where(by_devices, totals.taken, taken)
        else:  # an extended resource does not matter to a pod without a request
            continue
        found.append(Usage(spec.name, spec.weight, offered, taken, taken + request))
    return found


class NodeUsage(NamedTuple):
    """One resource on one node; as `Usage`."""

    weight: int
    allocatable: int
    allocated: int
    requested: int


def usages_on(
    node: NodeInfo, specs: Iterable[ResourceSpec], requests: Sequence[int], *, nonzero: bool
) -> list[NodeUsage]:
    """Return the result of `usages` for one node and a pod without requests for devices.

    Args:
        node: the node.
        specs: the resources of the profile.
        requests: the pod's request of each of them.
        nonzero: whether pods without a request for cpu or memory count with the default requests.
    """
    offered, taken = node.allocatable, node.requested
    cpu_and_memory = node.nonzero_requested if nonzero else (taken.get(CPU, 0), taken.get(MEMORY, 0))
    usages_there = []
    for spec, request in zip(specs, requests, strict=True):
        name = spec.name
        if name == CPU:
            allocated = cpu_and_memory[0]
        elif name == MEMORY:
            allocated = cpu_and_memory[1]
        elif name == EPHEMERAL_STORAGE or (request and is_scalar_resource_name(name)):
            allocated = taken.get(name, 0)
        else:
            continue
        requested = wrapped(allocated + request)
        usages_there.append(NodeUsage(spec.weight, offered.get(name, 0), allocated, requested))
    return usages_there
