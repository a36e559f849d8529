"""Which nodes pass required affinity and anti-affinity, both the pod's own and that of existing pods.

Source:
    kube-scheduler v1.36, plugins/interpodaffinity/filtering.go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.inter_pod_affinity.domains import Domains, added_up
from scheduler.framework import PASS, Code, Outcome, Outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from plugins.inter_pod_affinity.own_terms import OwnTerms
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Snapshot, TermsThatMean

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

_TABLE: Final = (
    PASS,
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_AFFINITY,)),
    Outcome(Code.UNSCHEDULABLE, (REASON_ANTI_AFFINITY,)),
    Outcome(Code.UNSCHEDULABLE, (REASON_EXISTING_ANTI_AFFINITY,)),
)
_FAR: Final = 1
_NEAR: Final = 2
_UNWELCOME: Final = 3


class AffinityState:
    """The pods that matter to one pod by domain, with the changes since they were counted."""

    def __init__(
        self,
        own: OwnTerms,
        others: TermsThatMean,
        affinity: tuple[Domains, ...],
        anti_affinity: dict[str, Domains],
        existing_anti_affinity: dict[str, Domains],
    ) -> None:
        self._own = own
        self._others = others  # the required anti-affinity of pods on nodes
        self._affinity = affinity  # by the pod's topology keys: pods that match all of its terms
        self._anti_affinity = anti_affinity  # topology key -> pods that match its terms
        self._existing_anti_affinity = (
            existing_anti_affinity  # topology key -> existing terms that match the pod
        )

    @classmethod
    def of(
        cls, own: OwnTerms, others: TermsThatMean, existing: dict[str, Domains], snapshot: Snapshot
    ) -> Self:
        """Count the pods that the pod's own terms match.

        Args:
            own: the pod's terms.
            others: the required anti-affinity of pods on nodes that matches the pod.
            existing: topology key -> how many of these terms each domain has.
            snapshot: the cluster.

        Raises:
            NeedsTime: counting the pod's terms takes longer than one time slice.
        """
        near: dict[str, Domains] = {}
        # If no node has one of the labels, every node is rejected, whatever the other keys are.
        unknown = next((key for key in own.affinity_keys if not snapshot.has_label(key)), None)
        affinity_keys = own.affinity_keys if unknown is None else (unknown,)
        if affinity_keys:
            rows, counts = own.affinity()
            near = added_up(snapshot, ((key, rows, counts) for key in affinity_keys))
        return cls(
            own,
            others,
            tuple(near.get(key) or Domains.empty(snapshot.label(key)) for key in affinity_keys),
            added_up(snapshot, own.anti_affinity() if own.has_anti_affinity else ()),
            existing,
        )

    def clone(self) -> Self:
        return type(self)(
            self._own,
            self._others,
            tuple(domains.clone() for domains in self._affinity),
            _cloned(self._anti_affinity),
            _cloned(self._existing_anti_affinity),
        )

    def change(
        self, pod: PodInfo, changed: Sequence[tuple[int, PodInfo]], sign: int, snapshot: Snapshot
    ) -> None:
        """Record pods that were added to their rows or removed, each as seen from its row."""
        unwelcome: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for row, other in changed:
            terms = other.affinity_terms
            if terms.required_anti_affinity:
                for key, weight in self._others.weights_of(terms).items():
                    unwelcome[key][row] += sign * weight
        for key, amounts in unwelcome.items():
            _domains(self._existing_anti_affinity, key, snapshot).change(amounts)
        if self._affinity:
            near = self._own.affinity_changes(changed, sign)
            for domains in self._affinity:
                domains.change(near)
        for key, apart in self._own.anti_affinity_changes(changed, sign):
            _domains(self._anti_affinity, key, snapshot).change(apart)

    def outcomes(self, pod: PodInfo, n_nodes: int) -> Outcomes:
        """Return the result of each node: its first reason in the order of the table."""
        index = np.zeros(n_nodes, dtype=np.uint16)
        for domains in self._existing_anti_affinity.values():
            index[domains.here() > 0] = _UNWELCOME
        for domains in self._anti_affinity.values():
            index[domains.here() > 0] = _NEAR
        if self._affinity:
            index[~self._satisfy_affinity(pod)] = _FAR
        return Outcomes(index, _TABLE)

    def _satisfy_affinity(self, pod: PodInfo) -> Bools:
        """Return where the pod's affinity is satisfied, (n_nodes,).

        The first pod of a series with affinity to itself finds no matching pod, so it may go anywhere.
        """
        near: Bools = np.logical_and.reduce([domains.here() > 0 for domains in self._affinity])
        if not near.all() and self._own.means_all(pod):
            near |= np.add.reduce([domains.occupied() for domains in self._affinity]) == 0
        for domains in self._affinity:
            near &= ~domains.lacking
        return near


def _domains(known: dict[str, Domains], key: str, snapshot: Snapshot) -> Domains:
    found = known.get(key)
    if found is None:
        found = known[key] = Domains.empty(snapshot.label(key))
    return found


def _cloned(domains: Mapping[str, Domains]) -> dict[str, Domains]:
    return {key: each.clone() for key, each in domains.items()}
