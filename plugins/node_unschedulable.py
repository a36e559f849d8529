"""Rejects cordoned nodes, unless the pod tolerates the taint for them.

Source:
    kube-scheduler v1.36, plugins/nodeunschedulable/node_unschedulable.go.
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
    FilterPlugin,
    NodesExplanation,
    Outcomes,
    QueueingHint,
    Reason,
    Remedy,
    no_event_keys,
    no_pod_key,
)
from scheduler.objects.pod import MANY_ENTRIES
from scheduler.objects.v1 import NO_SCHEDULE, Taint, Toleration

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from scheduler.framework import CycleState
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Rows, Snapshot

REASON = Reason("node(s) were unschedulable", "NodeUnschedulable")

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
"""It has no value, so no toleration that compares values covers it."""


class NodeUnschedulable(FilterPlugin):
    """Rejects nodes with spec.unschedulable."""

    name = "NodeUnschedulable"
    api_version = 1
    reason_codes = MappingProxyType({REASON.code: "the node is cordoned, and the pod does not tolerate this"})
    reads_pods = False
    reads_only_nodes = True

    def signature(self, pod: PodInfo) -> Hashable:
        tolerations = pod.pod.spec.tolerations
        return tolerations if len(tolerations) <= MANY_ENTRIES else pod.spec_digest

    def events(self) -> Sequence[EventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT)
        pod = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_TOLERATION)
        return (
            EventWithHint(node, self._after_node_change, no_pod_key),
            EventWithHint(pod, self._after_toleration_change, no_pod_key, no_event_keys),
        )

    def _after_node_change(self, pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
        helps = not new.unschedulable and (old is None or old.unschedulable)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _after_toleration_change(self, pod: PodInfo, old: Any, new: PodInfo) -> QueueingHint:
        helps = new.uid == pod.uid and new.tolerated.cover(_TAINT, compares=False)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        if pod.tolerated.cover(_TAINT, compares=False):
            return Outcomes.all_pass(snapshot.n_nodes)
        return Outcomes.reject(snapshot.unschedulable, REASON, resolvable=False)

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        if node is None:
            return None
        return (
            ["the node is cordoned"]
            if node.unschedulable and not pod.tolerated.cover(_TAINT, compares=False)
            else []
        )

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        toleration = Toleration(_TAINT.key, "Exists", "", _TAINT.effect)
        relaxed = pod.with_spec(tolerations=(*pod.tolerations, toleration))

        def change(fitting: Rows) -> Change:
            row = int(fitting[0])
            return Change(row, f"{snapshot.name_of(row)} were uncordoned", relaxed)

        return NodesExplanation("cordoned", [Remedy(relaxed, change)])
