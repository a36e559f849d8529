"""What users read of an attempt: an event on the pod, and its PodScheduled condition.

Cluster Autoscaler and Karpenter act on the condition, dashboards and people on the event; both carry
kube-scheduler's own words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scheduler.objects.pod import PodCondition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo


class EventSink(Protocol):
    """Queues events to be written when there is time."""

    def record(self, regarding: PodInfo, *, type_: str, reason: str, action: str, note: str) -> None:
        """Queue one event of type "Normal" or "Warning"."""
        ...


class StatusWriter(Protocol):
    """Queues patches of pods' status, where anything changes."""

    def patch_pod_status(
        self, pod: PodInfo, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> bool:
        """Queue a patch; a nominated_node_name of "" clears it, None leaves it."""
        ...


class Reporter:
    """Says in the API server what became of a pod.

    Args:
        events: schedulerName -> who records the events of that profile.
        status: patches pods' status.
    """

    def __init__(self, events: Mapping[str, EventSink], status: StatusWriter) -> None:
        self._events = events
        self._status = status

    def scheduled(self, profile: str, pod: PodInfo, node_name: str) -> None:
        """The pod is bound; the API server sets its condition by itself."""
        self._events[profile].record(
            pod,
            type_="Normal",
            reason="Scheduled",
            action="Binding",
            note=f"Successfully assigned {pod.key} to {node_name}",
        )

    def failed(
        self, profile: str, pod: PodInfo, status: Status, nominated_node_name: str | None = None
    ) -> None:
        """The pod could not be placed; a repeated reason is an event again, but no patch."""
        reason = "Unschedulable" if status.is_rejected else "SchedulerError"
        self._warn(profile, pod, status.message)
        self._status.patch_pod_status(
            pod,
            condition=PodCondition(
                type="PodScheduled", status="False", reason=reason, message=status.message
            ),
            nominated_node_name=nominated_node_name,
        )

    def outdated(self, key: str) -> None:
        """What was to be said of a pod and could not be is not so any more: it changed. Here nothing waits."""

    def skipped(self, profile: str, pod: PodInfo) -> None:
        """The pod is being deleted."""
        self._warn(profile, pod, f"skip schedule deleting pod: {pod.key}")

    def rejected_by_kubelet(self, profile: str, pod: PodInfo, why: str, pause_seconds: float) -> None:
        """The pod was bound, and its node would not run it."""
        rest = f"; other nodes are preferred for {pause_seconds:.0f} s" if pause_seconds else ""
        self._events[profile].record(
            pod,
            type_="Warning",
            reason="RejectedByKubelet",
            action="Binding",
            note=f"node {pod.node_name} rejected the pod after it was bound: {why}{rest}",
        )

    def expected_on(self, pod: PodInfo, node_name: str) -> None:
        """The pod will be bound there, but not at once."""
        self._status.patch_pod_status(pod, nominated_node_name=node_name)

    def _warn(self, profile: str, pod: PodInfo, note: str) -> None:
        self._events[profile].record(
            pod,
            type_="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note=note,
        )
