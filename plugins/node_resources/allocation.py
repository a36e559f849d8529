"""How full nodes are, resource by resource: what the scores of resources are made of.

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
        name: as in requests.
        weight: how much it counts beside the others; 0 reads as 1.
    """

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight == 0:
            msgspec.structs.force_setattr(self, "weight", 1)


DEFAULT_RESOURCES = (ResourceSpec(CPU), ResourceSpec(MEMORY))


def may_be_of_devices(resources: Iterable[ResourceSpec]) -> bool:
    """Return whether a device class may stand for any of some resources."""
    return any(is_dra_extended_resource_name(resource.name) for resource in resources)


class Usage(NamedTuple):
    """One resource on all nodes.

    Attributes:
        name: which.
        weight: how much it counts.
        allocatable: int64 (n_nodes,), milliCPU, bytes or a count; 0 where a node lacks the resource.
        allocated: the same, what the pods on the node ask for.
        requested: the same, the pod to place included.
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
        specs: the resources the profile names.
        requests: what the pod asks for of each of them.
        allocated: where to read what cpu and memory the pods on nodes ask for: with or without the least
            amounts that count for pods which ask for none.
        devices: counts those that nodes have instead of a resource; None where they do not count.
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
        else:  # an extended resource says nothing about a pod that asks for none
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
    """Return what `usages` does of one node, for a pod that asks for nothing that devices stand for.

    Args:
        node: which.
        specs: the resources the profile names.
        requests: what the pod asks for of each of them.
        nonzero: whether pods that ask for no cpu or memory count with the least amounts.
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
