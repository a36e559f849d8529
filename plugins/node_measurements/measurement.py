"""One quantity that is measured on nodes, and the expected effect of recent placements.

Measurements are delayed: a new pod affects them after a while. Until then each placement is counted with an estimate;
otherwise all pods of a burst would go to the node that was idle a moment ago.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from plugins.node_measurements.prometheus import InstanceIs
    from scheduler.snapshot import Int64s, Rows, Snapshot

    Float64s = NDArray[np.float64]

STALE_AFTER_PERIODS = 3
"""The number of refresh periods after which old data are stale."""


@dataclass(eq=False, slots=True)
class _Placements:
    """The placements between two refreshes, by node, so that a burst of any length needs constant memory.

    Attributes:
        until: when the interval ended; infinite for the current one.
        amounts: node name -> sum of the estimates.
    """

    until: float = math.inf
    amounts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Noted:
    """One counted placement, with what is needed to undo it."""

    node_name: str
    amount: float
    among: _Placements


@dataclass(eq=False, slots=True)
class _Layout:
    """The data by row of snapshots with these nodes.

    Attributes:
        names: the nodes, by row.
        row_of: node name -> row.
        measured: float64 (n_nodes,), NaN without data.
        coming: float64 (n_nodes,), estimates of what the data do not show yet.
    """

    names: tuple[str, ...]
    row_of: Mapping[str, int]
    measured: Float64s
    coming: Float64s


class NodeMeasurement:
    """The data of every node, by name or address, and by row on request.

    Args:
        period_seconds: the expected interval between new data.
        settle_seconds: the time until data show the full effect of a placement.
        instance_is: how instances identify nodes.
    """

    def __init__(
        self, *, period_seconds: float, settle_seconds: float, instance_is: InstanceIs = "NodeName"
    ) -> None:
        self._stale_seconds = STALE_AFTER_PERIODS * period_seconds
        self._settle_seconds = settle_seconds
        self._instance_is = instance_is
        self._values: Mapping[str, float] = {}
        self._measured_at = -math.inf
        self._placements = deque([_Placements()])
        self._layout: _Layout | None = None

    def asking(self, now: float) -> None:
        """Record that data are requested: the response cannot show later placements."""
        self._placements[-1].until = now
        self._placements.append(_Placements())
        forgotten = now - self._settle_seconds - self._stale_seconds
        while self._placements[0].until <= forgotten:
            self._placements.popleft()

    def learn(self, values: Mapping[str, float], asked_at: float) -> None:
        """Store new data: instance -> number, and the time of the request."""
        self._values, self._measured_at = values, asked_at
        self._layout = None

    def is_stale(self, now: float) -> bool:
        """Return whether there are no data, or only stale ones."""
        return now - self._measured_at > self._stale_seconds

    def note(self, node_name: str, amount: float) -> Noted:
        """Count the estimate of a pod placed on a node."""
        noted = Noted(node_name, amount, self._placements[-1])
        self._add(noted, amount)
        return noted

    def take_back(self, noted: Noted) -> None:
        """Undo `note`."""
        self._add(noted, -noted.amount)

    def _add(self, noted: Noted, amount: float) -> None:
        amounts, name = noted.among.amounts, noted.node_name
        amounts[name] = amounts.get(name, 0.0) + amount
        layout = self._layout
        if layout is not None and (row := layout.row_of.get(name)) is not None:
            layout.coming[row] = max(0.0, layout.coming[row] + amount * self._not_shown(noted.among))

    def _not_shown(self, placements: _Placements) -> float:
        """Return the fraction of placements that the data cannot show yet: 1 at first, 0 once they settled."""
        age = self._measured_at - placements.until
        if age < 0 or not math.isfinite(age):
            return 1.0
        return max(0.0, 1.0 - age / self._settle_seconds) if self._settle_seconds else 0.0

    def measured(self, snapshot: Snapshot) -> Float64s:
        """Return float64 (n_nodes,), NaN without data; read-only."""
        return self._by_row(snapshot).measured

    def expected(
        self, snapshot: Snapshot, feasible: Rows, now: float, *, capacity: Int64s | None = None
    ) -> Float64s | None:
        """Return the present and expected value of each node, float64 (n_nodes,); None without any data.

        A node without data counts as the mean of the feasible nodes with data.

        Args:
            snapshot: the cluster.
            feasible: the rows that count.
            now: the time.
            capacity: int64 (n_nodes,), positive; if given, fractions of it are returned, and the mean is one of fractions.
        """
        if self.is_stale(now):
            return None
        layout = self._by_row(snapshot)
        measured, coming = layout.measured, layout.coming
        if capacity is not None:
            measured, coming = measured / capacity, coming / capacity
        unknown = np.isnan(measured)
        known = feasible[~unknown[feasible]]
        if not len(known):
            return None
        return np.where(unknown, measured[known].mean(), measured) + coming

    def nodes_without_data(self, snapshot: Snapshot, now: float) -> int:
        """Return the number of nodes without recent data."""
        if self.is_stale(now):
            return snapshot.n_nodes
        return int(np.isnan(self.measured(snapshot)).sum())

    def _by_row(self, snapshot: Snapshot) -> _Layout:
        layout, names = self._layout, snapshot.names
        if layout is None or (layout.names is not names and layout.names != names):
            layout = self._layout = self._lay_out(snapshot)
        return layout

    def _lay_out(self, snapshot: Snapshot) -> _Layout:
        # This loops over nodes and placements, but only after a refresh and when nodes change.
        names = snapshot.names
        row_of = {name: row for row, name in enumerate(names)}
        rows = row_of if self._instance_is == "NodeName" else self._rows_by_address(snapshot, row_of)
        measured = np.full(len(names), np.nan)
        for instance, number in self._values.items():
            row = rows.get(host_of(instance))
            if row is not None:
                measured[row] = np.fmax(measured[row], number)
        coming = np.zeros(len(names))
        for placements in self._placements:
            share = self._not_shown(placements)
            for name, amount in placements.amounts.items() if share else ():
                row = row_of.get(name)
                if row is not None:
                    coming[row] += amount * share
        return _Layout(names, row_of, measured, np.maximum(coming, 0.0))

    def _rows_by_address(self, snapshot: Snapshot, row_of: Mapping[str, int]) -> dict[str, int]:
        rows = {
            address.address.lower(): row
            for row, node in enumerate(snapshot.nodes)
            for address in node.node.status.addresses
            if address.type == "InternalIP"
        }
        return {**rows, **row_of} if self._instance_is == "Any" else rows


def host_of(instance: str) -> str:
    """Return a name or an address without its port: of `n1:9100`, `10.0.0.1`, `[fd00::1]:9100`, `fd00::1`."""
    if instance.startswith("["):
        return instance[1:].partition("]")[0].lower()
    host, _, port = instance.rpartition(":")
    return (host if host and ":" not in host and port.isdigit() else instance).lower()
