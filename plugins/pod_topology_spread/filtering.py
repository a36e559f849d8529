"""The skew of each node's domains, for the constraints with DoNotSchedule.

Source:
    kube-scheduler v1.36, plugins/podtopologyspread/filtering.go.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.pod_topology_spread.constraints import (
    CountedNodes,
    CountedPods,
    domains_of,
    nodes_with_keys,
    pods_by_domain,
)
from scheduler.framework import PASS, Code, Outcome, Outcomes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from plugins.pod_topology_spread.constraints import SpreadConstraint
    from plugins.pod_work import PluginWork
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Int64s, Snapshot, UInt16s

REASON = "node(s) didn't match pod topology spread constraints"
REASON_LABEL = f"{REASON} (missing required label)"

_TABLE: Final = (
    PASS,
    Outcome(Code.UNSCHEDULABLE, (REASON,)),
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_LABEL,)),
)
_SKEWED: Final = 1
_UNLABELLED: Final = 2

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


class SpreadState:
    """All constraints of a pod, with the pods added and removed since they were counted."""

    def __init__(
        self, pods: CountedPods, counts: Sequence[DomainCounts], changes: Iterable[Counter[int]]
    ) -> None:
        self._pods = pods
        self._counts = counts
        self._constraints = [each.constraint for each in counts]
        self._changes = tuple(changes)  # by constraint: row -> difference of the number of pods

    @classmethod
    def of(
        cls, constraints: Sequence[SpreadConstraint], pod: PodInfo, snapshot: Snapshot, work: PluginWork
    ) -> Self:
        """Count the pods of every constraint, of nodes that have all the topology keys.

        Raises:
            NeedsTime: the constraints or the pod's node affinity take longer than one time slice.
        """
        missing = [n for n, each in enumerate(constraints, 1) if not snapshot.has_label(each.topology_key)]
        if missing:
            constraints = constraints[
                : missing[0]
            ]  # no node passes the missing one, so later ones do not matter
        nodes = CountedNodes(snapshot, pod, nodes_with_keys(snapshot, constraints), work)
        pods = CountedPods(snapshot, constraints, work)
        counts = [
            DomainCounts(each, snapshot, pods.of(each), nodes.of(each), itself=bool(itself))
            for each, itself in zip(constraints, pods.matching(constraints, [pod]), strict=True)
        ]
        return cls(pods, counts, [Counter() for _ in counts])

    def clone(self) -> Self:
        return type(self)(self._pods, self._counts, (changes.copy() for changes in self._changes))

    def change(self, namespace: str, pods: Iterable[tuple[int, PodInfo]], sign: int) -> None:
        """Record added or removed pods by row, terminating or not; pods of other namespaces do not count."""
        ours = [(row, pod) for row, pod in pods if pod.namespace == namespace]
        found = self._pods.matching(self._constraints, [pod for _, pod in ours])
        for counts, changes, places in zip(self._counts, self._changes, found, strict=True):
            for place in places:
                row = ours[place][0]
                if counts.counts(row):
                    changes[row] += sign

    def outcomes(self) -> Outcomes:
        """Return the reason of the first constraint that a node violates."""
        index: UInt16s | None = None
        for counts, changes in zip(self._counts, self._changes, strict=True):
            verdicts = counts.verdicts(changes)
            index = verdicts if index is None else np.where(index == 0, verdicts, index)
        assert index is not None, "a pod without constraints is skipped"
        return Outcomes(index, _TABLE)
