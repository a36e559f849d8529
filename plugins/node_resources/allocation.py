"""Utilization of nodes by resource, and the scoring strategies of NodeResourcesFit that are based on it.

Source:
    kube-scheduler v1.36, plugins/noderesources/resource_allocation.go.
    kube-scheduler v1.36, plugins/noderesources: least_allocated.go, most_allocated.go,
    requested_to_capacity_ratio.go.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from scheduler.errors import FieldError
from scheduler.framework import MAX_NODE_SCORE, divide, divide_one, divide_small
from scheduler.objects.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_dra_extended_resource_name,
    is_scalar_resource_name,
)
from scheduler.snapshot import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from plugins.dynamic_resources.devices import ClassTotals
    from scheduler.snapshot import Bools, Float64s, Int64s, NodeInfo, ResourceArrays, Snapshot

    ResourceScore = Callable[[Int64s, Int64s], Int64s]
    """(requested, capacity) of one resource -> score, each (n_nodes,); no capacity is 0."""


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


LEAST_ALLOCATED = "LeastAllocated"
MOST_ALLOCATED = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"

_STRATEGIES = (LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO)

MAX_SHAPE_SCORE = 10
"""The best score in the shape of RequestedToCapacityRatio."""

_LARGE = 2**53 // MAX_NODE_SCORE
"""Below this capacity a division by a faster method is exact: 81 TiB."""


class UtilizationShapePoint(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A point of the line that scores utilization: percent -> 0 to 10."""

    utilization: int = 0
    score: int = 0


class RequestedToCapacityRatioParam(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The line itself, by rising utilization."""

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How nodes are scored, and by which resources; cpu and memory if none are named."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None

    def __post_init__(self) -> None:
        if not self.resources:
            msgspec.structs.force_setattr(self, "resources", DEFAULT_RESOURCES)


def strategy_faults(strategy: ScoringStrategy) -> Iterator[FieldError]:
    """Yield the errors of a strategy; paths are relative to the arguments of NodeResourcesFit."""
    path = "scoringStrategy"
    if strategy.type not in _STRATEGIES:
        yield FieldError(f"{path}.type", f"must be one of {', '.join(_STRATEGIES)}, was {strategy.type!r}")
    for index, resource in enumerate(strategy.resources):
        if not 0 < resource.weight <= 100:
            yield FieldError(f"{path}.resources[{index}].weight", f"must be 1 to 100, was {resource.weight}")
    path = f"{path}.requestedToCapacityRatio"
    ratio = strategy.requested_to_capacity_ratio
    if strategy.type != REQUESTED_TO_CAPACITY_RATIO:
        if ratio is not None:
            yield FieldError(path, f"must not be given when type is {strategy.type}")
    elif ratio is None:
        yield FieldError(path, f"must be given when type is {REQUESTED_TO_CAPACITY_RATIO}")
    else:
        yield from shape_faults(ratio.shape, f"{path}.shape")


def shape_faults(shape: Sequence[UtilizationShapePoint], path: str) -> Iterator[FieldError]:
    """Yield the errors of the points of a line."""
    if not shape:
        yield FieldError(path, "at least one point must be given")
    for index, (before, after) in enumerate(pairwise(shape), start=1):
        if before.utilization >= after.utilization:
            problem = f"must rise from point to point, was {before.utilization}, then {after.utilization}"
            yield FieldError(f"{path}[{index}].utilization", problem)
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            yield FieldError(f"{path}[{index}].utilization", f"must be 0 to 100, was {point.utilization}")
        if not 0 <= point.score <= MAX_SHAPE_SCORE:
            yield FieldError(f"{path}[{index}].score", f"must be 0 to {MAX_SHAPE_SCORE}, was {point.score}")


def least_allocated(requested: Int64s, capacity: Int64s) -> Int64s:
    """Score each node by the fraction of one resource that would stay free: 100 is empty, 0 is full.

    Args:
        requested: int64 (n_nodes,), the pod to place included.
        capacity: the same; nowhere 0.
    """
    if _is_plain(requested, capacity):
        free = capacity - requested
        np.maximum(free, 0, out=free)
        free *= MAX_NODE_SCORE
        return divide_small(free, capacity)
    return np.where(requested > capacity, 0, divide((capacity - requested) * MAX_NODE_SCORE, capacity))


def most_allocated(requested: Int64s, capacity: Int64s) -> Int64s:
    """Score each node by the used fraction of one resource: 100 is full, 0 is empty; as `least_allocated`."""
    used = np.minimum(requested, capacity)
    used *= MAX_NODE_SCORE
    return divide_small(used, capacity) if _is_plain(requested, capacity) else divide(used, capacity)


def least_allocated_on(usage: NodeUsage) -> int:
    """Score one node as `least_allocated`."""
    free = usage.allocatable - usage.requested
    return 0 if free < 0 else divide_one(wrapped(wrapped(free) * MAX_NODE_SCORE), usage.allocatable)


def most_allocated_on(usage: NodeUsage) -> int:
    """Score one node as `most_allocated`."""
    used = min(usage.requested, usage.allocatable)
    return divide_one(wrapped(used * MAX_NODE_SCORE), usage.allocatable)


def mean_score_on(usages: Iterable[NodeUsage], score: Callable[[NodeUsage], int]) -> int:
    """Return the weighted mean of the resources' scores on one node, over those that it has."""
    total = weights = 0
    for usage in usages:
        if usage.allocatable:
            total = wrapped(total + score(usage) * usage.weight)
            weights += usage.weight
    return divide_one(total, max(weights, 1))


def mean_score(n_nodes: int, usages: Iterable[Usage], score: ResourceScore) -> Int64s:
    """Return the weighted mean of the resources' scores, over those that a node has."""
    total, weights = _weighted_sum(n_nodes, usages, score, lambda _: True)
    return divide(total, weights)


class RequestedToCapacityRatio:
    """Scores by a line through given points of utilization; resources that score 0 do not count."""

    def __init__(self, shape: Sequence[tuple[int, int]]) -> None:
        """Use (utilization in percent, score of 0 to 10) points by rising utilization."""
        points = [(utilization, score * (MAX_NODE_SCORE // MAX_SHAPE_SCORE)) for utilization, score in shape]
        self._score_at = np.array([_on_line(points, percent) for percent in range(101)], dtype=np.int64)

    def mean_score(self, n_nodes: int, usages: Iterable[Usage]) -> Int64s:
        """Return the weighted mean, rounded half away from zero."""
        total, weights = _weighted_sum(n_nodes, usages, self.score, lambda score: score > 0)
        return rounded(total / weights)

    def mean_score_on(self, usages: Iterable[NodeUsage]) -> int:
        """Return the same for one node."""
        total = weights = 0
        for usage in usages:
            if not usage.allocatable:
                continue
            full = usage.requested > usage.allocatable
            percent = 100 if full else divide_one(wrapped(usage.requested * 100), usage.allocatable)
            score = int(self._score_at[min(max(percent, 0), 100)])
            if score > 0:
                total += score * usage.weight
                weights += usage.weight
        mean = total / max(weights, 1)
        whole = math.floor(mean)
        return whole + (mean - whole >= 0.5)

    def score(self, requested: Int64s, capacity: Int64s) -> Int64s:
        """Return the score of each utilization; `capacity` is nowhere 0."""
        # The line is constant outside 0 to 100.
        percent = divide(requested * 100, capacity).clip(0, 100)
        return self._score_at[np.where(requested > capacity, 100, percent)]


def rounded(means: Float64s) -> Int64s:
    """Round half away from zero; nothing may be negative."""
    whole = np.floor(means)
    return (whole + (means - whole >= 0.5)).astype(np.int64)


def _weighted_sum(
    n_nodes: int, usages: Iterable[Usage], score: ResourceScore, counts: Callable[[Int64s], Bools | bool]
) -> tuple[Int64s, Int64s | int]:
    """Return the sum of weighted scores, and the sum of the weights that counted, at least 1."""
    total = np.zeros(n_nodes, dtype=np.int64)
    weights: Int64s | int = 0
    for usage in usages:
        capacity = usage.allocatable
        present: Bools | bool = True
        if capacity.min(initial=1) <= 0:
            present = capacity != 0
            capacity = np.where(present, capacity, 1)
        scored = score(usage.requested, capacity)
        if usage.weight != 1:
            scored = scored * usage.weight
        counted = counts(scored) & present
        if counted is True:
            total += scored
            weights = weights + usage.weight
        else:
            total += np.where(counted, scored, 0)
            weights = weights + np.where(counted, usage.weight, 0)
    return total, max(weights, 1) if isinstance(weights, int) else np.maximum(weights, 1)


def _is_plain(requested: Int64s, capacity: Int64s) -> bool:
    """Return whether no value is negative or very large."""
    return bool(
        requested.min(initial=0) >= 0 and capacity.min(initial=1) > 0 and capacity.max(initial=1) < _LARGE
    )


def _on_line(points: Sequence[tuple[int, int]], at: int) -> int:
    """Return the value at a position; constant before the first point and after the last.

    Source:
        kube-scheduler v1.36, plugins/helper/shape_score.go, BuildBrokenLinearFunction.
    """
    left, low = points[0]
    for right, high in points:
        if at <= right:
            if right == left:
                return high
            rise, run = (high - low) * (at - left), right - left
            return low + (rise // run if rise >= 0 else -(-rise // run))  # toward zero, as Go
        left, low = right, high
    return low
