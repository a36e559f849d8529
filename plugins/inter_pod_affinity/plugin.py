"""Places pods near other pods, or away from them, by their affinity and anti-affinity.

Source:
    kube-scheduler v1.36, plugins/interpodaffinity: plugin.go, filtering.go, scoring.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.inter_pod_affinity.domains import added_up
from plugins.inter_pod_affinity.filtering import AffinityState
from plugins.inter_pod_affinity.hints import (
    after_node_change,
    after_pod_change,
    alike,
    awaited_of_nodes,
    awaited_of_pods,
    brought_by_node,
    brought_by_pod,
)
from plugins.inter_pod_affinity.own_terms import (
    MOST_ONE_BY_ONE,
    MOST_REQUIREMENTS,
    FewTerms,
    ManyTerms,
)
from plugins.inter_pod_affinity.scoring import ScoreState, normalized
from plugins.inter_pod_affinity.terms import NAMESPACES, TermReader
from plugins.pod_work import PluginWork
from scheduler.errors import FieldError
from scheduler.framework import (
    SKIP,
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    PluginArgs,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    Status,
    TimeSlice,
)
from scheduler.snapshot import TermKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plugins.inter_pod_affinity.own_terms import OwnTerms
    from scheduler.framework import CycleState, Outcomes
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerms
    from scheduler.snapshot import Int64s, Rows, Snapshot

_PRE_FILTER = "PreFilterInterPodAffinity"
_PRE_SCORE = "PreScoreInterPodAffinity"

_HIGHEST_WEIGHT = 100

_POD_EVENT = ClusterEvent(EventResource.POD, ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.DELETE)
_NODE_EVENT = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """Arguments of InterPodAffinity.

    Attributes:
        hard_pod_affinity_weight: the score weight of an existing pod whose required affinity matches the pod; 0 to 100.
        ignore_preferred_terms_of_existing_pods: whether preferred terms of existing pods are ignored for pods without
          preferred terms of their own.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def faults(self) -> Iterator[FieldError]:
        weight = self.hard_pod_affinity_weight
        if not 0 <= weight <= _HIGHEST_WEIGHT:
            message = f"Invalid value: {weight}: not in valid range [0, {_HIGHEST_WEIGHT}]"
            yield FieldError("hardPodAffinityWeight", message)


class InterPodAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Evaluates the affinity and anti-affinity of pods."""

    name = "InterPodAffinity"
    api_version = 1
    Args = InterPodAffinityArgs
    needs = Needs(kinds=frozenset({NAMESPACES}))
    keeps_rows_apart = True

    def __init__(self, *, args: InterPodAffinityArgs, time_slice: TimeSlice) -> None:
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignores_others = args.ignore_preferred_terms_of_existing_pods
        self._reader = TermReader()
        self._work = PluginWork(time_slice)

    def events(self) -> Sequence[EventWithHint]:
        return (
            EventWithHint(_POD_EVENT, after_pod_change, alike, brought_by_pod, awaited_of_pods),
            EventWithHint(_NODE_EVENT, after_node_change, alike, brought_by_node, awaited_of_nodes),
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        terms = pod.affinity_terms
        if terms.faults:
            return Status.unschedulable(f"parsing pod: {_joined(terms)}", resolvable=False)
        self._reader.look_at(snapshot)
        others = snapshot.affinity_terms(TermKind.REQUIRED_ANTI_AFFINITY).matching(
            pod.namespace, pod.labels, self._reader.labels.of(pod.namespace)
        )
        existing = added_up(snapshot, others.amounts())
        if not (existing or terms.required_affinity or terms.required_anti_affinity):
            return SKIP
        found = AffinityState.of(self._own(terms, snapshot), others, existing, snapshot)
        state.write(_PRE_FILTER, found, by_row=True)
        return None

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_PRE_FILTER, AffinityState).change(pod, added, 1, snapshot)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_PRE_FILTER, AffinityState).change(pod, removed, -1, snapshot)

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        return state.read(_PRE_FILTER, AffinityState).outcomes(pod, snapshot.n_nodes)

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        terms = pod.affinity_terms
        prefers = bool(terms.preferred_affinity or terms.preferred_anti_affinity)
        if terms.faults:
            return Status.failed(f"failed to parse pod: {_joined(terms)}")
        if self._ignores_others and not prefers:
            return SKIP
        self._reader.look_at(snapshot)
        found = ScoreState.of(
            pod,
            self._own(terms, snapshot).preferred() if prefers else (),
            self._reader.labels.of(pod.namespace),
            self._hard_weight,
            snapshot,
        )
        if found is None:
            return SKIP
        state.write(_PRE_SCORE, found, by_row=True)
        return None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        """Return the weight of the pods near each node, unbounded; `normalize` brings it into range."""
        return state.read(_PRE_SCORE, ScoreState).raw()

    def _own(self, terms: AffinityTerms, snapshot: Snapshot) -> OwnTerms:
        """Return a pod's own terms; those that are expensive to read share one time slice."""
        if terms.count <= MOST_ONE_BY_ONE and not self._reader.selects_among_many(terms):
            few = self._reader.incoming(terms)
            if few.requirements <= MOST_REQUIREMENTS:
                return FewTerms(few, snapshot)
        self._work.begin()
        return ManyTerms(terms, self._reader.labels, snapshot, self._work)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        return normalized(scores, feasible)


def _joined(terms: AffinityTerms) -> str:
    """Return the errors of terms, several of them in brackets, as upstream's aggregates."""
    message = ", ".join(terms.faults)
    return f"[{message}]" if len(terms.faults) > 1 else message
