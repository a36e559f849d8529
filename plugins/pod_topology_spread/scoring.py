"""The weighted number of pods in each feasible node's domains, for the constraints with ScheduleAnyway.

Source:
    kube-scheduler v1.36, plugins/podtopologyspread/scoring.go.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.pod_topology_spread.constraints import (
    CountedNodes,
    CountedPods,
    domains_of,
    lacking,
    nodes_with_keys,
    pods_by_domain,
)
from scheduler.framework import MAX_NODE_SCORE, divide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugins.pod_topology_spread.constraints import SpreadConstraint
    from plugins.work_in_steps import PluginWork
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Float64s, Int64s, Rows, Snapshot

HOSTNAME: Final = "kubernetes.io/hostname"
"""With this label every node is its own domain, whatever its value."""

_INVALID: Final = -1
"""The score of a node that is not compared with the others."""


class ScoreState:
    """The sums for the nodes of one pod.

    Args:
        feasible: the rows that are scored.
        constraints: the constraints with ScheduleAnyway; at least one.
        work: runs slow steps.
        needs_all_keys: whether a node must have all topology keys to be compared with the others. The default
            constraints do not require it, so that nodes without a zone are still ranked by their pods; nodes without
            the label then form one domain with those whose label is empty.
        compares: whether tolerations compare the values of taints, see `Tolerations.cover`.

    Raises:
        NeedsTime: counting the constraints takes longer than one time slice.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pod: PodInfo,
        feasible: Rows,
        constraints: Sequence[SpreadConstraint],
        work: PluginWork,
        *,
        needs_all_keys: bool,
        compares: bool,
    ) -> None:
        self._snapshot = snapshot
        self._needs_all_keys = needs_all_keys
        self._compared = nodes_with_keys(snapshot, constraints) if needs_all_keys else None
        self._nodes = CountedNodes(snapshot, pod, self._compared, work, compares=compares)
        # If no node is compared, the sums are not used.
        self._added = constraints if self._compared is None or self._compared.any() else ()
        self._pods = CountedPods(snapshot, self._added, work)
        self._rows = feasible if self._compared is None else feasible[self._compared[feasible]]

    def raw(self) -> Int64s:
        """Return int64 (n_nodes,): higher for more pods in a node's domains."""
        total = np.zeros(self._snapshot.n_nodes, dtype=np.float64)
        for constraint in self._added:
            own = constraint.topology_key == HOSTNAME
            total += self._of_node(constraint) if own else self._of_domain(constraint)
        if self._compared is not None:
            total[~self._compared] = 0
        return go_round(total).astype(np.int64)

    def _of_node(self, constraint: SpreadConstraint) -> Float64s:
        """Count a node's own pods, whatever the policies for counted nodes."""
        pods = self._pods.of(constraint)
        crowding = _crowding(pods, constraint, len(self._rows))
        absent = lacking(self._snapshot.label(HOSTNAME))
        return np.where(absent, 0.0, crowding) if absent.any() else crowding

    def _of_domain(self, constraint: SpreadConstraint) -> Float64s:
        label = self._snapshot.label(constraint.topology_key)
        everywhere = len(self._rows) == self._snapshot.n_nodes
        domains = domains_of(label, None if everywhere else self._rows)
        pods = pods_by_domain(label, self._pods.of(constraint), self._nodes.of(constraint))
        absent = label.values.index(None)
        if not self._needs_all_keys and (domains[absent] or pods[absent]):
            empty = [code for code, value in enumerate(label.values) if value == ""]
            pods[empty] += pods[absent]
            domains[absent] &= not domains[empty].any()
        crowding = _crowding(pods, constraint, int(np.count_nonzero(domains)))
        crowding[absent] = 0.0
        return crowding.take(label.codes)

    def normalized(self, scores: Int64s) -> Int64s:
        """Return int64 (n_nodes,), in [0, 100]: 100 for the fewest pods, 0 also for nodes that are not compared."""
        compared = scores if len(self._rows) == len(scores) else scores[self._rows]
        lowest, highest = int(compared.min(initial=_MOST)), int(compared.max(initial=0))
        if highest == 0:
            normalized = np.full(len(scores), MAX_NODE_SCORE, dtype=np.int64)
        else:
            normalized = divide(MAX_NODE_SCORE * (highest + lowest - scores), highest)
        normalized[scores == _INVALID] = 0
        if self._compared is not None:
            normalized[~self._compared] = 0
        return normalized


_MOST: Final = (1 << 63) - 1


def _crowding(pods: Int64s, constraint: SpreadConstraint, domains: int) -> Float64s:
    """Weight numbers of pods, so that many small domains count as much as a few large ones.

    A larger maxSkew reduces the differences between domains.
    """
    crowding: Float64s = pods.astype(np.float64) * go_log(domains + 2) + float(constraint.max_skew - 1)
    return crowding


def go_round(numbers: Float64s) -> Float64s:
    """Round half away from zero, as Go's math.Round."""
    whole: Float64s = np.floor(numbers)
    fraction = numbers - whole
    whole += fraction >= 0.5
    if numbers.min(initial=0) < 0:
        whole -= (fraction == 0.5) & (numbers < 0)
    return whole


@lru_cache(maxsize=4096)
def go_log(number: int) -> float:
    """Return the natural logarithm of a positive number, exactly as Go's math.Log.

    C libraries may round the last digit differently, and a score may lie half way between two numbers.

    Source:
        Go's math.Log, which is FreeBSD's e_log.c.
    """
    fraction, exponent = math.frexp(number)
    if fraction < math.sqrt(2) / 2:
        fraction, exponent = fraction * 2, exponent - 1
    f = fraction - 1
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    odd = s2 * (_LOG[1] + s4 * (_LOG[3] + s4 * (_LOG[5] + s4 * _LOG[7])))
    even = s4 * (_LOG[2] + s4 * (_LOG[4] + s4 * _LOG[6]))
    half = 0.5 * f * f
    return exponent * _LN2_HIGH - ((half - (s * (half + (odd + even)) + exponent * _LN2_LOW)) - f)


_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
_LOG: Final = (
    0.0,
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
