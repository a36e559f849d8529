"""The counted pods of each domain of one constraint, and the skew that a pod would make.

Source:
    kube-scheduler v1.36, plugins/podtopologyspread/filtering.go.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.pod_topology_spread.constraints import domains_of, pods_by_domain

if TYPE_CHECKING:
    from collections import Counter

    from plugins.pod_topology_spread.constraints import SpreadConstraint
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot, UInt16s

_UNLABELLED: Final = 2
"""The index, in the table of outcomes, of a node that lacks the topology key; 1 is that of a skew that is too large."""

_NO_DOMAIN: Final = (1 << 31) - 1
"""The minimum number of pods without any domain, as upstream."""


class DomainCounts:
    """The counts of one constraint, before any change.

    Args:
        constraint: the constraint.
        snapshot: the cluster.
        pods: (n_nodes,), the counted pods.
        counted: bool (n_nodes,), the counted nodes; None is all.
        itself: whether the pod to place counts too.

    Attributes:
        constraint: the constraint.
    """

    def __init__(
        self,
        constraint: SpreadConstraint,
        snapshot: Snapshot,
        pods: Int64s,
        counted: Bools | None,
        *,
        itself: bool,
    ) -> None:
        self.constraint = constraint
        self._itself = int(itself)
        self._label = snapshot.label(constraint.topology_key)
        self._counted = counted
        self._pods = pods_by_domain(self._label, pods, counted)
        self._domains = np.flatnonzero(domains_of(self._label, counted))
        self._lacking = self._label.values.index(None)

    def counts(self, row: int) -> bool:
        """Return whether pods on a node are counted."""
        return self._counted is None or bool(self._counted[row])

    def verdicts(self, changes: Counter[int]) -> UInt16s:
        """Return uint16 (n_nodes,), indexes in the table of outcomes.

        `changes` is row -> the difference of the number of pods, visible from that row only.
        """
        of_domain = self._too_many(self._pods, self._fewest(self._smallest[0])).astype(np.uint16)
        of_domain[self._lacking] = _UNLABELLED
        verdicts: UInt16s = of_domain[self._label.codes]
        if changes:
            rows = np.fromiter(changes, dtype=np.intp, count=len(changes))
            # Only the row's own domain changes, so the minimum of the others is one of the two smallest of all.
            domains = self._label.codes[rows]
            lowest, second, where = self._smallest
            others = np.where(domains == where, second, lowest)
            own = self._pods[domains] + np.fromiter(changes.values(), dtype=np.int64, count=len(changes))
            verdicts[rows] = self._too_many(own, self._fewest(np.minimum(own, others)))
        return verdicts

    # For explanations.

    @property
    def fewest(self) -> int:
        """The minimum number of pods of a domain; 0 with fewer domains than minDomains."""
        return int(self._fewest(self._smallest[0]))

    def domain_of(self, row: int) -> str | None:
        """Return the domain of a node; None if it has none."""
        return self._label.values[int(self._label.codes[row])]

    def pods_of(self, row: int) -> int:
        """Return the number of counted pods in the domain of a node."""
        return int(self._pods[self._label.codes[row]])

    def skews(self, rows: Rows) -> Int64s:
        """Return the skew with the pod on each of some nodes."""
        skews: Int64s = self._pods[self._label.codes[rows]] + self._itself - self.fewest
        return skews

    def skew_of(self, row: int) -> int:
        """Return the skew with the pod on a node."""
        return self.pods_of(row) + self._itself - self.fewest

    def by_domain(self) -> list[tuple[str, int]]:
        """Return the number of pods of each domain, the fewest first."""
        found = [(str(self._label.values[code]), int(self._pods[code])) for code in self._domains.tolist()]
        return sorted(found, key=lambda domain: (domain[1], domain[0]))

    def _too_many(self, matching: Int64s, fewest: Int64s | int) -> Bools:
        skewed: Bools = matching + self._itself - fewest > self.constraint.max_skew
        return skewed

    def _fewest(self, fewest: Int64s | int) -> Int64s | int:
        return 0 if len(self._domains) < self.constraint.min_domains else fewest

    @cached_property
    def _smallest(self) -> tuple[int, int, int]:
        """The minimum number of pods of a domain, the minimum of the other domains, and the code of the first."""
        pods = self._pods[self._domains]
        if not pods.size:
            return _NO_DOMAIN, _NO_DOMAIN, -1
        place = int(pods.argmin())
        others = np.delete(pods, place)
        return int(pods[place]), int(others.min(initial=_NO_DOMAIN)), int(self._domains[place])
