"""Rejects nodes with untolerated taints, and prefers nodes with fewer untolerated PreferNoSchedule taints.

Source:
    kube-scheduler v1.36, plugins/tainttoleration/taint_toleration.go.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scheduler.framework import (
    ActionType,
    Change,
    ClusterEvent,
    EventResource,
    EventWithHint,
    Features,
    FilterPlugin,
    NodesExplanation,
    Outcomes,
    PreScorePlugin,
    QueueingHint,
    Reason,
    Remedy,
    ScorePlugin,
    default_normalize_score,
    no_event_keys,
    no_pod_key,
)
from scheduler.objects.label_index import some_of
from scheduler.objects.pod import MANY_ENTRIES
from scheduler.objects.v1 import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration, Tolerations

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from scheduler.framework import CycleState, Status
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot

REASON = Reason("node(s) had untolerated taint(s)", "UntoleratedTaint")

_PRE_SCORE = "PreScoreTaintToleration"
_MOST = 3
"""The number of sets of taints for which a toleration is proposed."""


class TaintToleration(FilterPlugin, PreScorePlugin, ScorePlugin):
    """Compares a node's taints with the pod's tolerations."""

    name = "TaintToleration"
    api_version = 1
    reason_codes = MappingProxyType({REASON.code: "the node has a taint that the pod does not tolerate"})
    reads_pods = False
    reads_only_nodes = True

    def __init__(self, *, features: Features) -> None:
        self._compares = features.enabled("TaintTolerationComparisonOperators")

    def signature(self, pod: PodInfo) -> Hashable:
        tolerations = pod.pod.spec.tolerations
        return tolerations if len(tolerations) <= MANY_ENTRIES else pod.spec_digest

    def events(self) -> Sequence[EventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT)
        pod = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_TOLERATION)
        return (
            EventWithHint(node, self._after_node_change, self.signature),
            EventWithHint(pod, self._after_toleration_change, no_pod_key, no_event_keys),
        )

    def _after_node_change(self, pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
        was_refused = old is None or _has_untolerated(old.taints, pod.tolerated, self._compares)
        helps = was_refused and not _has_untolerated(new.taints, pod.tolerated, self._compares)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _after_toleration_change(self, pod: PodInfo, old: Any, new: PodInfo) -> QueueingHint:
        return QueueingHint.QUEUE if new.uid == pod.uid else QueueingHint.SKIP

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        tolerated, compares = pod.tolerated, self._compares
        refused = snapshot.taints.judge(lambda taints: _has_untolerated(taints, tolerated, compares))
        return Outcomes.reject(refused, REASON, resolvable=False)

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        if node is None:
            return None
        return [f"does not tolerate {_written(taint)}" for taint in self._untolerated(node.taints, pod)]

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        by_taints: dict[tuple[Taint, ...], list[int]] = {}
        of_code: dict[int, tuple[Taint, ...]] = {}
        codes, values = snapshot.taints.codes, snapshot.taints.values
        for row in rows.tolist():
            code = int(codes[row])
            if code not in of_code:
                of_code[code] = tuple(self._untolerated(values[code], pod))
            by_taints.setdefault(of_code[code], []).append(row)
        most = sorted((taints for taints in by_taints if taints), key=lambda taints: -len(by_taints[taints]))
        counts = [
            f"{' and '.join(map(_written, taints))} on {len(by_taints[taints])} of {len(rows)} nodes"
            for taints in most
        ]
        summary = f"taints without a toleration: {some_of(counts)}" if counts else ""
        return NodesExplanation(summary, [self._toleration(taints, pod, snapshot) for taints in most[:_MOST]])

    def _toleration(self, taints: tuple[Taint, ...], pod: PodInfo, snapshot: Snapshot) -> Remedy:
        """Return the remedy for nodes with these untolerated taints."""
        more = tuple(Toleration(each.key, "Exists", "", each.effect) for each in taints)
        relaxed = pod.with_spec(tolerations=pod.tolerations + more)

        def change(rows: Rows) -> Change | None:
            with_them = (row for row in rows.tolist() if set(taints) <= {*snapshot.nodes[row].taints})
            row = next(with_them, None)
            if row is None:
                return None
            plural = "s" if len(taints) > 1 else ""
            names = " and ".join(map(_written, taints))
            node = snapshot.name_of(row)
            text = f"the taint{plural} {names} were removed from {node} (or tolerated)"
            return Change(row, text, relaxed)

        return Remedy(relaxed, change)

    def _untolerated(self, taints: Iterable[Taint], pod: PodInfo) -> Iterator[Taint]:
        return (each for each in taints if _has_untolerated((each,), pod.tolerated, self._compares))

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        # An empty effect matches every effect.
        relevant = tuple(
            toleration for toleration in pod.tolerations if toleration.effect in {"", PREFER_NO_SCHEDULE}
        )
        state.write(_PRE_SCORE, Tolerations(relevant))
        return None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        """Return the number of untolerated PreferNoSchedule taints; `normalize` inverts it."""
        tolerated, compares = state.read(_PRE_SCORE, Tolerations), self._compares
        return snapshot.taints.measure(lambda taints: _count_intolerable(taints, tolerated, compares))

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        return default_normalize_score(scores, feasible, reverse=True)


def _has_untolerated(taints: Iterable[Taint], tolerated: Tolerations, compares: bool) -> bool:
    return any(
        taint.effect in {NO_SCHEDULE, NO_EXECUTE} and not tolerated.cover(taint, compares=compares)
        for taint in taints
    )


def _written(taint: Taint) -> str:
    """Return a taint in kubectl's form."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _count_intolerable(taints: Iterable[Taint], tolerated: Tolerations, compares: bool) -> int:
    return sum(
        taint.effect == PREFER_NO_SCHEDULE and not tolerated.cover(taint, compares=compares)
        for taint in taints
    )
