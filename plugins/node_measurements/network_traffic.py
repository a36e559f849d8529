"""NetworkTraffic: prefers nodes with less network traffic, as measured by a Prometheus server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plugins.node_measurements.measurements import (
    NodeMeasurement,
    Noted,
    Prometheus,
    PrometheusArgs,
    filled_in,
    in_string,
)
from scheduler.errors import FieldError
from scheduler.framework import ReservePlugin, ScorePlugin, default_normalize_score

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.framework import Clock, CycleState, HttpGet
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot

TRAFFIC_QUERY = (
    "sum by ($instance) ("
    'rate(node_network_receive_bytes_total{device="$device"}[$range])'
    ' + rate(node_network_transmit_bytes_total{device="$device"}[$range]))'
)
"""Bytes per second in both directions, as the node exporter counts them."""

_NOTED = "NetworkTraffic/noted"
_THOUSANDTHS = 1000  # so that a query may also give shares of 1
_MOST = float(2**53)


class NetworkTrafficArgs(PrometheusArgs, frozen=True):
    """Arguments of NetworkTraffic.

    Attributes:
        device_name: the network interface that counts; `$device` in the query.
        query: an instant query with one number per node; less is better. `$device`, `$range` and `$instance`
            (the label) are replaced.
        traffic_per_pod: the expected traffic of a new pod, in the unit of the query; None uses the mean of the
          running pods.
    """

    device_name: str = "eth0"
    query: str = TRAFFIC_QUERY
    traffic_per_pod: float | None = None

    @property
    def promql(self) -> str:
        return filled_in(
            self.query,
            {
                "device": in_string(self.device_name),
                "range": self.time_range.in_promql,
                "instance": self.instance_label,
            },
        )

    def faults(self) -> Iterator[FieldError]:
        yield from super().faults()
        if not self.device_name and "$device" in self.query:
            yield FieldError("deviceName", "must not be empty when the query has $device")
        if not self.query.strip():
            yield FieldError("query", "must not be empty")
        if self.traffic_per_pod is not None and not 0 <= self.traffic_per_pod < _MOST:
            yield FieldError("trafficPerPod", f"must be at least 0, was {self.traffic_per_pod}")


class NetworkTraffic(ScorePlugin, ReservePlugin):
    """Scores 100 minus the node's fraction of the busiest feasible node's traffic.

    The data are fetched in the background with one query for all nodes. A node without data counts as the mean of the
    others; without any data all nodes have the same score.
    """

    name = "NetworkTraffic"
    api_version = 1
    Args = NetworkTrafficArgs

    def __init__(self, *, args: NetworkTrafficArgs, web: HttpGet, clock: Clock) -> None:
        self.refresh_seconds = args.refresh_period.seconds
        self._args = args
        self._clock = clock
        self._prometheus = Prometheus(args, web)
        self._traffic = NodeMeasurement(
            period_seconds=args.refresh_period.seconds,
            settle_seconds=args.settle_seconds,
            instance_is=args.instance_is,
        )
        self._mean_of: tuple[object, float] = (None, 0.0)  # the data, the mean per pod they give

    async def refresh(self) -> None:
        asked_at = self._clock.monotonic()
        self._traffic.asking(asked_at)
        found = await self._prometheus.query(self._args.promql)
        self._traffic.learn({name: max(0.0, number) for name, number in found.items()}, asked_at)

    def nodes_without_data(self, snapshot: Snapshot) -> int:
        return self._traffic.nodes_without_data(snapshot, self._clock.monotonic())

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        expected = self._traffic.expected(snapshot, feasible, self._clock.monotonic())
        if expected is None:
            return np.zeros(snapshot.n_nodes, dtype=np.int64)
        self._learn_mean(snapshot)
        return np.minimum(expected * _THOUSANDTHS, _MOST).astype(np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        return default_normalize_score(scores, feasible, reverse=True)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        given = self._args.traffic_per_pod
        state.write(_NOTED, self._traffic.note(node_name, self._mean_of[1] if given is None else given))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if _NOTED in state:
            self._traffic.take_back(state.read(_NOTED, Noted))
            state.delete(_NOTED)

    def _learn_mean(self, snapshot: Snapshot) -> None:
        """Compute the traffic of a pod, once per refresh and layout."""
        measured = self._traffic.measured(snapshot)
        if self._mean_of[0] is not measured:
            known = ~np.isnan(measured)
            # If there are few pods, most traffic is not theirs.
            pods = max(int(snapshot.pod_count[known].sum()), int(known.sum()), 1)
            self._mean_of = (measured, float(measured[known].sum()) / pods)
