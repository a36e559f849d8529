"""Lets a pod preempt others on its own node while that lacks the capacity for the pod's resize.

The pod stays bound, and the kubelet resizes it. In the profile of a scheduler only with the gate
InPlacePodVerticalScalingSchedulerPreemption.

Source:
    kube-scheduler v1.37 (2fa5a2ed), plugins/deferredpodscheduling/deferred_pod_scheduling.go.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework import (
    PASS,
    SKIP,
    ActionType,
    ClusterEvent,
    Code,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Outcome,
    Outcomes,
    PermitPlugin,
    PreFilterPlugin,
    QueueingHint,
    Reason,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from scheduler.framework import CycleState
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Rows, Snapshot

OTHER_NODE = Reason("pod assigned to different node", "ResizeOnOtherNode")
DISABLED = Reason("node had resize preemption disabled", "ResizePreemptionDisabled")
FITS = Reason("pod resize fits, waiting for Kubelet actuation", "ResizeFits")

_OUTCOMES = (
    PASS,
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (OTHER_NODE,)),
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (DISABLED,)),
)


class DeferredPodScheduling(PreFilterPlugin, FilterPlugin, PermitPlugin):
    """Rejects all nodes but the pod's own, and this one if it disables preemption for resizes; a pod that fits waits."""

    name = "DeferredPodScheduling"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            OTHER_NODE.code: "the pod waits for its resize, and is on another node",
            DISABLED.code: "the pod waits for its resize, and its node disables preemption for resizes",
            FITS.code: "the resize of the pod fits, and the kubelet carries it out",
        }
    )
    reads_pods = False
    evaluates_resizes = True

    def signature(self, pod: PodInfo) -> Hashable | None:
        return None if pod.has_deferred_resize else ()

    def events(self) -> Sequence[EventWithHint]:
        """Register for the pod's own node, if it comes or allows preemption for resizes again."""
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_PREEMPTION_POLICY)
        return (EventWithHint(node, _after_node_change, _node_of, _node_changed, _own_node),)

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        return None if pod.has_deferred_resize else SKIP

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        if not pod.has_deferred_resize:
            return Outcomes.all_pass(snapshot.n_nodes)
        index = np.ones(snapshot.n_nodes, dtype=np.uint16)
        row = snapshot.row_of(pod.node_name)
        if row is not None:
            index[row] = 2 if snapshot.nodes[row].disables_resize_preemption else 0
        return Outcomes(index, _OUTCOMES)

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        policy = None if node is None else snapshot.nodes[node.row].node.spec.pod_preemption_policy
        return (
            None if policy is None else [f"disabled by {owner}" for owner in policy.disable_resize_preemption]
        )

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return Status.unschedulable(FITS, resolvable=False) if pod.has_deferred_resize else None


def _after_node_change(pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
    helps = (
        pod.node_name == new.name
        and not new.disables_resize_preemption
        and (old is None or old.disables_resize_preemption)
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _node_of(pod: PodInfo) -> str:
    return pod.node_name


def _own_node(pod: PodInfo) -> tuple[str]:
    return (pod.node_name,)


def _node_changed(_old: NodeObject | None, new: NodeObject) -> tuple[str]:
    return (new.name,)
