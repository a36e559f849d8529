"""One quantity that is measured on nodes from outside, and what the pods placed since will add to it.

Measurements come late: a pod placed now shows in them after a while. Until then each placement is counted in with
an estimate, or all pods of a burst would go to the node that was quiet a moment ago.
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
"""Data that were not replaced for so many refresh periods say nothing any more."""


@dataclass(eq=False, slots=True)
class _Placements:
    """What was placed between two refreshes: by node, so that a burst of any length takes no more room.

    Attributes:
        until: when the time it covers ended; infinite while it goes on.
        amounts: node name -> sum of the estimates.
    """

    until: float = math.inf
    amounts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Noted:
    """One placement that was counted in; what is needed to take it back."""

    node_name: str
    amount: float
    among: _Placements


@dataclass(eq=False, slots=True)
class _Layout:
    """The data by row of snapshots with these nodes.

    Attributes:
        names: the nodes, by row.
        row_of: node name -> row.
        measured: float64 (n_nodes,), NaN where nothing is known.
        coming: float64 (n_nodes,), estimates of what the data do not show yet.
    """

    names: tuple[str, ...]
    row_of: Mapping[str, int]
    measured: Float64s
    coming: Float64s


class NodeMeasurement:
    """What is known of every node, by name or address, and by row when it is asked for.

    Args:
        period_seconds: how often new data are expected.
        settle_seconds: how long until data show all that a placement does.
        instance_is: what tells the nodes apart.
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
        """Note that data are asked for: placements from now on are none that they can show."""
        self._placements[-1].until = now
        self._placements.append(_Placements())
        forgotten = now - self._settle_seconds - self._stale_seconds
        while self._placements[0].until <= forgotten:
            self._placements.popleft()

    def learn(self, values: Mapping[str, float], asked_at: float) -> None:
        """Take new data: instance -> number, and when they were asked for."""
        self._values, self._measured_at = values, asked_at
        self._layout = None

    def is_stale(self, now: float) -> bool:
        """Whether there are no data, or none that are recent enough."""
        return now - self._measured_at > self._stale_seconds

    def note(self, node_name: str, amount: float) -> Noted:
        """Count in what a pod placed on a node will add."""
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
        """The share of placements that the data cannot show yet: all of it at first, none once they settled."""
        age = self._measured_at - placements.until
        if age < 0 or not math.isfinite(age):
            return 1.0
        return max(0.0, 1.0 - age / self._settle_seconds) if self._settle_seconds else 0.0

    def measured(self, snapshot: Snapshot) -> Float64s:
        """Return float64 (n_nodes,), NaN where nothing is known; not to be changed."""
        return self._by_row(snapshot).measured

    def expected(
        self, snapshot: Snapshot, feasible: Rows, now: float, *, capacity: Int64s | None = None
    ) -> Float64s | None:
        """Return what each node has or will have, float64 (n_nodes,); None where nothing at all is known.

        A node without data counts as the mean of the feasible ones with data: neither liked nor disliked.

        Args:
            snapshot: the cluster.
            feasible: the rows that count.
            now: the time.
            capacity: int64 (n_nodes,), positive; with it, shares of it are returned, and the mean is one of shares.
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
        """Return of how many nodes nothing is known that is recent enough."""
        if self.is_stale(now):
            return snapshot.n_nodes
        return int(np.isnan(self.measured(snapshot)).sum())

    def _by_row(self, snapshot: Snapshot) -> _Layout:
        layout, names = self._layout, snapshot.names
        if layout is None or (layout.names is not names and layout.names != names):
            layout = self._layout = self._lay_out(snapshot)
        return layout

    def _lay_out(self, snapshot: Snapshot) -> _Layout:
        # Loops over nodes and placements, but only after a refresh and when nodes come and go.
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
