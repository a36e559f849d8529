"""The weight of the pods near each node for a pod, and of the pod for them.

Source:
    kube-scheduler v1.36, plugins/interpodaffinity/scoring.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plugins.inter_pod_affinity.domains import added_up
from scheduler.framework import MAX_NODE_SCORE
from scheduler.snapshot import TermKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self

    from plugins.inter_pod_affinity.domains import Domains
    from plugins.inter_pod_affinity.own_terms import Counts
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot


class ScoreState:
    """The sums for the nodes of one pod."""

    def __init__(self, domains: Iterable[Domains]) -> None:
        self._domains = tuple(domains)

    @classmethod
    def of(
        cls,
        pod: PodInfo,
        preferred: Iterable[Counts],
        namespace_labels: Mapping[str, str],
        hard_weight: int,
        snapshot: Snapshot,
    ) -> Self | None:
        """Add up the weights of all pods near each node; None if there are none.

        Args:
            pod: the pod.
            preferred: the weights of the pods that its own preferred terms match.
            namespace_labels: the labels of its namespace.
            hard_weight: the worth of the pod to another that must be near such a pod.
            snapshot: the cluster.

        Raises:
            NeedsTime: counting the pod's terms takes longer than one time slice.
        """
        domains = added_up(
            snapshot,
            (
                *preferred,
                *_existing(pod, namespace_labels, TermKind.REQUIRED_AFFINITY, hard_weight, snapshot),
                *_existing(pod, namespace_labels, TermKind.PREFERRED_AFFINITY, 1, snapshot),
                *_existing(pod, namespace_labels, TermKind.PREFERRED_ANTI_AFFINITY, -1, snapshot),
            ),
        )
        return cls(domains.values()) if domains else None

    def raw(self) -> Int64s:
        """Return the weight of all pods near a node, (n_nodes,); negative where the pod prefers not to go."""
        total: Int64s = np.add.reduce([domains.here() for domains in self._domains])
        return total


def normalized(scores: Int64s, feasible: Rows) -> Int64s:
    """Scale the feasible nodes' scores to 0 to 100, (n_nodes,); all 0 if they are equal."""
    result = np.zeros(len(scores), dtype=np.int64)
    ours = scores[feasible]
    if ours.size:
        lowest = ours.min()
        span = ours.max() - lowest
        if span > 0:
            result[feasible] = (float(MAX_NODE_SCORE) * ((ours - lowest) / span)).astype(np.int64)
    return result


def _existing(
    pod: PodInfo, namespace_labels: Mapping[str, str], kind: TermKind, worth: int, snapshot: Snapshot
) -> Iterator[tuple[str, Rows, Int64s]]:
    """Yield the terms of existing pods that match the pod: topology key, rows, and the pod's weight for them."""
    if worth == 0:
        return
    found = snapshot.affinity_terms(kind).matching(pod.namespace, pod.labels, namespace_labels)
    for key, rows, amounts in found.amounts():
        yield key, rows, amounts * worth
