"""Restricts a pod with spec.nodeName to that node.

Source:
    kube-scheduler v1.36, plugins/nodename/node_name.go.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Outcomes,
    Reason,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Rows, Snapshot

REASON = Reason("node(s) didn't match the requested node name", "NodeNameMismatch")


class NodeName(FilterPlugin):
    """Rejects nodes with another name."""

    name = "NodeName"
    api_version = 1
    reason_codes = MappingProxyType({REASON.code: "the `spec.nodeName` of the pod is another node"})
    reads_pods = False
    reads_only_nodes = True
    evaluates_resizes = True

    def signature(self, pod: PodInfo) -> Hashable:
        return pod.pod.spec.node_name

    def events(self) -> Sequence[EventWithHint]:
        return (EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD)),)

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        wanted = pod.pod.spec.node_name
        if not wanted:
            return Outcomes.all_pass(snapshot.n_nodes)
        refused = np.ones(snapshot.n_nodes, dtype=np.bool_)
        row = snapshot.row_of(wanted)
        if row is not None:
            refused[row] = False
        return Outcomes.reject(refused, REASON, resolvable=False)

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        wanted = pod.pod.spec.node_name
        if node is None or wanted in {"", node.name}:
            return []
        which = "" if snapshot.row_of(wanted) is not None else ", which does not exist"
        return [f"the pod's spec.nodeName is {wanted}{which}"]
