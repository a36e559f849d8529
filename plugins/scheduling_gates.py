"""Keeps pods with spec.schedulingGates out of the active queue until all gates are removed.

Source:
    kube-scheduler v1.36, plugins/schedulinggates/scheduling_gates.go.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    PreEnqueuePlugin,
    QueueingHint,
    Reason,
    Status,
    no_event_keys,
    no_pod_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.pod import PodInfo


class SchedulingGates(PreEnqueuePlugin):
    """Gates pods with scheduling gates."""

    name = "SchedulingGates"
    api_version = 1
    reason_codes = MappingProxyType({"SchedulingGated": "the pod has scheduling gates"})

    def events(self) -> Sequence[EventWithHint]:
        eliminated = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        return (EventWithHint(eliminated, self._after_gates_eliminated, no_pod_key, no_event_keys),)

    def _after_gates_eliminated(self, pod: PodInfo, old: Any, new: PodInfo) -> QueueingHint:
        return QueueingHint.QUEUE if new.uid == pod.uid else QueueingHint.SKIP

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        reason = Reason(f"waiting for scheduling gates: [{names}]", "SchedulingGated")
        return Status.unschedulable(reason, resolvable=False)
