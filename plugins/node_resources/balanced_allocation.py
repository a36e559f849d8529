"""Prefers nodes whose resources would be used in balanced proportions, such as cpu and memory.

Source:
    kube-scheduler v1.36, plugins/noderesources/balanced_allocation.go; v1.35 without BalanceImprovement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from plugins.dynamic_resources.devices import NEEDS, ClassTotals, Devices
from plugins.node_resources.allocation import (
    DEFAULT_RESOURCES,
    ResourceSpec,
    may_be_of_devices,
    usages,
    usages_on,
)
from scheduler.errors import FieldError
from scheduler.framework import (
    MAX_NODE_SCORE,
    SKIP,
    ClusterObjects,
    Features,
    PluginArgs,
    PreScorePlugin,
    ScorePlugin,
    TimeSlice,
    divide,
    divide_one,
)
from scheduler.snapshot import wrapped

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from plugins.node_resources.allocation import NodeUsage, Usage
    from scheduler.framework import CycleState, Features, Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, ChangeLog, Float64s, Int64s, NodeInfo, Rows, Snapshot

_PRE_SCORE = "PreScoreNodeResourcesBalancedAllocation"
_HALF = MAX_NODE_SCORE // 2
_FEW_CHANGES = 32
"""Up to this number changed nodes are computed one by one, which is then cheaper than arrays."""


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True):
    """Arguments of NodeResourcesBalancedAllocation.

    Attributes:
        resources: the balanced resources; by default cpu and memory. All have weight 1.

    Source:
        kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go,
        ValidateNodeResourcesBalancedAllocationArgs.
    """

    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES

    def faults(self) -> Iterator[FieldError]:
        seen: set[str] = set()
        for index, resource in enumerate(self.resources):
            if resource.name in seen:
                yield FieldError(f"resources[{index}].name", f"{resource.name!r} is named twice")
            seen.add(resource.name)
            if resource.weight != 1:
                yield FieldError(f"resources[{index}].weight", f"must be 1, was {resource.weight}")


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores by how much the pod improves the balance of a node's resources; up to 1.35 by the balance with the pod."""

    name = "NodeResourcesBalancedAllocation"
    api_version = 1
    Args = NodeResourcesBalancedAllocationArgs

    def __init__(
        self,
        *,
        args: NodeResourcesBalancedAllocationArgs,
        objects: ClusterObjects,
        time_slice: TimeSlice,
        features: Features,
    ) -> None:
        self._devices = ClassTotals(
            Devices.of(objects), time_slice, is_on=features.enabled("DRAExtendedResource")
        )
        self._compares_before = features.enabled("BalanceImprovement")
        self._resources = args.resources or DEFAULT_RESOURCES
        self._scores_devices = may_be_of_devices(self._resources)
        if self._scores_devices:
            self.needs = NEEDS  # type: ignore[misc]  # per instance
        self._known_before: _Before | None = None

    def signature(self, pod: PodInfo) -> Hashable | None:
        if self._scores_devices and self._devices.wanted_by(pod):
            return None
        return self._requests(pod)

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        requests = self._requests(pod)
        if not any(requests):
            return SKIP  # otherwise all pods without requests would go to one node
        state.write(_PRE_SCORE, requests)
        return None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        """Return 75 if the balance does not change, up to 100 if it improves, down to 50 if it worsens.

        Up to 1.35 it is 100 for full balance, down to 50.
        """
        requests = state.find(_PRE_SCORE, tuple) or self._requests(pod)
        if not any(requests):
            return np.zeros(snapshot.n_nodes, dtype=np.int64)
        used = usages(snapshot, self._resources, requests, snapshot.requested, self._devices)
        if not used:
            unused = _HALF + _HALF // 2 if self._compares_before else MAX_NODE_SCORE
            return np.full(snapshot.n_nodes, unused, dtype=np.int64)
        capacities = [usage.allocatable for usage in used]
        present = None
        if any(capacity.min(initial=1) <= 0 for capacity in capacities):
            present = [capacity != 0 for capacity in capacities]
            capacities = [
                np.where(here, capacity, 1) for here, capacity in zip(present, capacities, strict=True)
            ]
        score = _balance([usage.requested for usage in used], capacities, present)
        if not self._compares_before:
            return score
        score -= self._before(snapshot, requests, used, capacities, present)
        score += _HALF
        return _HALF + divide(score, 2)

    def _before(
        self,
        snapshot: Snapshot,
        requests: tuple[int, ...],
        used: Sequence[Usage],
        capacities: Sequence[Int64s],
        present: Sequence[Bools] | None,
    ) -> Int64s:
        """Return how balanced the nodes are without the pod.

        It is the same for all pods with the same balanced resources, so it is cached, and recomputed for changed nodes; not
        so if devices count, which change independently of the nodes.
        """
        resources = tuple([usage.name for usage in used])
        changes = snapshot.changes if self._devices.behind.keys().isdisjoint(resources) else None
        known = self._known_before
        if changes is not None and known is not None and known.is_of(changes, resources, snapshot.n_nodes):
            changed = changes.since(known.seen)
            if changed is not None and len(changed) <= _FEW_CHANGES:
                for row in {row for row in changed if row < snapshot.n_nodes}:
                    known.values[row] = _without_pod(self._used_on(snapshot.node_info(row), requests))
                known.seen = changes.end
                return known.values
        values = _balance([usage.allocated for usage in used], capacities, present)
        if changes is not None:
            self._known_before = _Before(changes, changes.end, resources, values)
        return values

    def _used_on(self, node: NodeInfo, requests: tuple[int, ...]) -> list[NodeUsage]:
        used = usages_on(node, self._resources, requests, nonzero=False)
        return [usage for usage in used if usage.allocatable]

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        requests = state.find(_PRE_SCORE, tuple) or self._requests(pod)
        if not any(requests):
            return 0
        used = self._used_on(node, requests)
        with_pod = _balance_on([(usage.requested, usage.allocatable) for usage in used])
        if not self._compares_before:
            return with_pod
        return wrapped(_HALF + divide_one(wrapped(_HALF + with_pod - _without_pod(used)), 2))

    def _requests(self, pod: PodInfo) -> tuple[int, ...]:
        balanced_score = pod.resources.balanced_score
        return tuple([balanced_score.get(resource.name, 0) for resource in self._resources])


@dataclass(slots=True, eq=False)
class _Before:
    """The balance of nodes without the pod to place.

    Attributes:
        log: the change log of the cluster.
        seen: how many changes of the log are included.
        resources: the balanced resources.
        values: int64 (n_nodes,).
    """

    log: ChangeLog
    seen: int
    resources: tuple[str, ...]
    values: Int64s

    def is_of(self, log: ChangeLog, resources: tuple[str, ...], n_nodes: int) -> bool:
        return self.log is log and self.resources == resources and len(self.values) == n_nodes


def _without_pod(used: Sequence[NodeUsage]) -> int:
    return _balance_on([(usage.allocated, usage.allocatable) for usage in used])


def _balance(
    amounts: Sequence[Int64s], capacities: Sequence[Int64s], present: Sequence[Bools] | None
) -> Int64s:
    """Return 100 where a node's resources are used in the same proportion, less elsewhere.

    Args:
        amounts: for each resource, the used amount.
        capacities: for each resource, the capacity; anything but 0 where there is none.
        present: for each resource, which nodes have it; None if all nodes have all.

    The order of floating point operations is upstream's, so that the last digit is the same.
    """
    fractions = [_fraction(amount, capacity) for amount, capacity in zip(amounts, capacities, strict=True)]
    deviation = _deviation(fractions) if present is None else _deviation_of_present(fractions, present)
    balance = 1.0 - deviation
    balance *= MAX_NODE_SCORE
    # Negative quantities produce numbers outside int64; the cast gives the same as Go's.
    with np.errstate(invalid="ignore"):
        return balance.astype(np.int64)


def _balance_on(amounts: Sequence[tuple[int, int]]) -> int:
    """Return `_balance` of one node: (amount, capacity) of each resource that it has."""
    fractions = [min(float(amount) / float(capacity), 1.0) for amount, capacity in amounts]
    count = len(fractions)
    if count < 2:
        deviation = 0.0
    elif count == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2.0)
    else:
        # One by one: since Python 3.12 sum() compensates for rounding, which Go does not.
        mean = reduce(add, fractions) / count
        squares = [(fraction - mean) * (fraction - mean) for fraction in fractions]
        deviation = math.sqrt(reduce(add, squares) / count)
    balance = int((1.0 - deviation) * MAX_NODE_SCORE)
    return balance if -(1 << 63) <= balance < 1 << 63 else -(1 << 63)


def _fraction(amount: Int64s, capacity: Int64s) -> Float64s:
    """Return the used fraction, at most 1."""
    fraction: Float64s = amount / capacity
    if fraction.max(initial=0.0) > 1.0:
        np.minimum(fraction, 1.0, out=fraction)
    return fraction


def _deviation(fractions: Sequence[Float64s]) -> Float64s:
    """Return the standard deviation of each node's fractions; 0 of a single one."""
    if len(fractions) == 1:
        return np.zeros_like(fractions[0])
    if len(fractions) == 2:
        half = fractions[0] - fractions[1]
        half /= 2.0
        return np.abs(half, out=half)
    mean = _sum(fractions) / len(fractions)
    squares = _sum([(fraction - mean) * (fraction - mean) for fraction in fractions])
    deviation: Float64s = np.sqrt(squares / len(fractions))
    return deviation


def _deviation_of_present(fractions: Sequence[Float64s], present: Sequence[Bools]) -> Float64s:
    """Return the same over the fractions of resources that a node has."""
    pairs = list(zip(fractions, present, strict=True))
    counts = _sum([here.astype(np.float64) for here in present])
    safe_counts = np.maximum(counts, 1.0)

    mean = _sum([np.where(here, fraction, 0.0) for fraction, here in pairs]) / safe_counts
    squares = _sum([np.where(here, (fraction - mean) * (fraction - mean), 0.0) for fraction, here in pairs])
    of_many = np.sqrt(squares / safe_counts)

    highest = np.max([np.where(here, fraction, -np.inf) for fraction, here in pairs], axis=0)
    lowest = np.min([np.where(here, fraction, np.inf) for fraction, here in pairs], axis=0)
    of_two = (highest - lowest) / 2

    return np.select([counts == 2, counts > 2], [of_two, of_many], 0.0)


def _sum(arrays: Sequence[Float64s]) -> Float64s:
    """Add from the first to the last."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total
