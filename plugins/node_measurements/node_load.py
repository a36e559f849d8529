"""NodeLoad: prefers nodes with the lowest usage of CPU and memory, whatever their pods request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from plugins.node_measurements.measurements import (
    NODE_METRICS_RIGHTS,
    NodeMeasurement,
    Noted,
    Prometheus,
    PrometheusArgs,
    filled_in,
    node_usages,
)
from plugins.node_resources.allocation import DEFAULT_RESOURCES, ResourceSpec
from scheduler.errors import FieldError
from scheduler.framework import MAX_NODE_SCORE, Needs, ReservePlugin, ScorePlugin
from scheduler.objects.quantity import Quantity
from scheduler.objects.resource_names import CPU, MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.framework import ApiGet, Clock, CycleState, HttpGet
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot

CPU_QUERY = 'sum by ($instance) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal"}[$range]))'
"""Cores in use."""
MEMORY_QUERY = "max by ($instance) (node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)"
"""Bytes in use that cannot be reclaimed."""

_MILLI_PER_CORE = 1000
_METRICS_WINDOW_SECONDS = 60.0
"""The maximum time that metrics-server needs, with its default settings, to show the usage of a new pod."""
_LONGEST_TIMEOUT_SECONDS = 10.0
_NOTED = "NodeLoad/noted"
_READ = {CPU: Quantity.milli_value, MEMORY: Quantity.value}  # resource -> in the unit of allocatable

METRICS_API: Literal["MetricsAPI"] = "MetricsAPI"


class NodeLoadArgs(PrometheusArgs, frozen=True):
    """Arguments of NodeLoad.

    Attributes:
        source: the source of measurements: the API server's `metrics.k8s.io`, or Prometheus, to which the arguments of
          `PrometheusArgs` apply.
        cpu_query: for Prometheus: the cores in use on each node. `$range` and `$instance` are replaced.
        memory_query: for Prometheus: the bytes in use on each node.
        resources: the resources that count: cpu, memory or both, each with its weight.
    """

    source: Literal["MetricsAPI", "Prometheus"] = METRICS_API
    cpu_query: str = CPU_QUERY
    memory_query: str = MEMORY_QUERY
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES

    @property
    def settle_seconds(self) -> float:
        if self.settle_time is None and self.source == METRICS_API:
            return _METRICS_WINDOW_SECONDS + self.refresh_period.seconds
        return super().settle_seconds

    def promql(self, resource: str) -> str:
        """Return the query for one resource."""
        query = self.cpu_query if resource == CPU else self.memory_query
        return filled_in(query, {"range": self.time_range.in_promql, "instance": self.instance_label})

    def faults(self) -> Iterator[FieldError]:
        yield from super().faults()
        for name, query in (("cpuQuery", self.cpu_query), ("memoryQuery", self.memory_query)):
            if not query.strip():
                yield FieldError(name, "must not be empty")
        if not self.resources:
            yield FieldError("resources", "must name cpu, memory or both")
        for index, resource in enumerate(self.resources):
            path = f"resources[{index}]"
            if resource.name not in _READ:
                yield FieldError(f"{path}.name", f"must be cpu or memory, was {resource.name!r}")
            if any(other.name == resource.name for other in self.resources[:index]):
                yield FieldError(f"{path}.name", f"{resource.name!r} was named before")
            if not 0 < resource.weight <= MAX_NODE_SCORE:
                yield FieldError(f"{path}.weight", f"must be 1 to 100, was {resource.weight}")


class NodeLoad(ScorePlugin, ReservePlugin):
    """Scores the fraction of CPU and memory that would stay unused: 100 is idle, 0 is full.

    It is a fraction of the node, not of the busiest node: two nearly idle nodes get nearly the same score. The data are
    fetched in the background; a node without data counts as the mean of the others, and without any data all nodes have
    the same score.
    """

    name = "NodeLoad"
    api_version = 1
    Args = NodeLoadArgs

    def __init__(self, *, args: NodeLoadArgs, web: HttpGet, api: ApiGet, clock: Clock) -> None:
        self.refresh_seconds = args.refresh_period.seconds
        self._args = args
        if args.source == METRICS_API:
            self.needs = Needs(rights=NODE_METRICS_RIGHTS)  # type: ignore[misc]  # per instance
        self._api = api
        self._clock = clock
        self._prometheus = Prometheus(args, web)
        self._used = {resource.name: self._measurement() for resource in args.resources}

    def _measurement(self) -> NodeMeasurement:
        args = self._args
        return NodeMeasurement(
            period_seconds=args.refresh_period.seconds,
            settle_seconds=args.settle_seconds,
            instance_is="NodeName" if args.source == METRICS_API else args.instance_is,
        )

    async def refresh(self) -> None:
        asked_at = self._clock.monotonic()
        for used in self._used.values():
            used.asking(asked_at)
        found = await (self._from_api() if self._args.source == METRICS_API else self._from_prometheus())
        for resource, used in self._used.items():
            used.learn(found[resource], asked_at)

    async def _from_api(self) -> Mapping[str, Mapping[str, float]]:
        read = {resource: _READ[resource] for resource in self._used}
        timeout = min(self._args.refresh_period.seconds, _LONGEST_TIMEOUT_SECONDS)
        return await node_usages(self._api, read, timeout_seconds=timeout)

    async def _from_prometheus(self) -> Mapping[str, Mapping[str, float]]:
        found: dict[str, Mapping[str, float]] = {}
        for resource in self._used:
            unit = _MILLI_PER_CORE if resource == CPU else 1
            numbers = await self._prometheus.query(self._args.promql(resource))
            found[resource] = {name: max(0.0, number * unit) for name, number in numbers.items()}
        return found

    def nodes_without_data(self, snapshot: Snapshot) -> int:
        now = self._clock.monotonic()
        return max(used.nodes_without_data(snapshot, now) for used in self._used.values())

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        now, requests = self._clock.monotonic(), _requests(pod)
        total, weights = np.zeros(snapshot.n_nodes), 0
        for spec in self._args.resources:
            allocatable = snapshot.allocatable[spec.name]
            capacity = np.maximum(allocatable, 1)
            used = self._used[spec.name].expected(snapshot, feasible, now, capacity=capacity)
            if used is not None:
                free = 1.0 - np.minimum(used + requests[spec.name] / capacity, 1.0)
                total += spec.weight * np.where(allocatable > 0, free, 0.0)
                weights += spec.weight
        return np.rint(total * MAX_NODE_SCORE / max(weights, 1)).astype(np.int64)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        requests = _requests(pod)
        noted = [(used, used.note(node_name, requests[name])) for name, used in self._used.items()]
        state.write(_NOTED, noted)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if _NOTED in state:
            noted: list[tuple[NodeMeasurement, Noted]] = state.read(_NOTED, list)
            for used, placement in noted:
                used.take_back(placement)
            state.delete(_NOTED)


def _requests(pod: PodInfo) -> Mapping[str, int]:
    """Return the expected usage of a pod: a default where it has no request."""
    resources = pod.resources
    return {CPU: resources.nonzero_milli_cpu, MEMORY: resources.nonzero_memory_bytes}
