"""What users read of an attempt: an event on the pod, and its PodScheduled condition.

Cluster Autoscaler and Karpenter act on the condition, dashboards and people on the event; both carry
kube-scheduler's own words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scheduler.objects.v1 import PodCondition
from scheduler.snapshot import MOST_TERMS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo


class PodEventRecorder(Protocol):
    """Queues events to be written when there is time."""

    def record(
        self,
        regarding: PodInfo,
        *,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: PodInfo | PodGroup | None = None,
    ) -> None:
        """Queue one event of type "Normal" or "Warning"; `related` is the other object in it."""
        ...


class PodEventRecorders(Protocol):
    """Who records the events of each profile, also of those that are served no longer."""

    def of(self, scheduler_name: str) -> PodEventRecorder:
        """Return who records the events of a profile."""
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

    What a scheduler that stands by notices of pods is said once it leads: until then others may have said it.

    Args:
        recorders: who records the events of each profile.
        status: patches pods' status.
        is_leading: whether anything may be written now.
        newest: `namespace/name` -> the pod's last version that could be read, None if there is none.
    """

    def __init__(
        self,
        recorders: PodEventRecorders,
        status: StatusWriter,
        *,
        is_leading: Callable[[], bool],
        newest: Callable[[str], PodInfo | None],
    ) -> None:
        self._recorders = recorders
        self._status = status
        self._is_leading = is_leading
        self._newest = newest
        # pod key -> what was to be said last, and the newest version then
        self._unsaid: dict[str, tuple[str, PodInfo, Status, PodInfo | None]] = {}

    def scheduled(self, profile: str, pod: PodInfo, node_name: str) -> None:
        """The pod is bound; the API server sets its condition by itself."""
        self._recorders.of(profile).record(
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
        if not self._is_leading():
            self._unsaid[pod.key] = profile, pod, status, self._newest(pod.key)
            return
        self._warn(profile, pod, status.message)
        self._status.patch_pod_status(
            pod,
            condition=PodCondition(
                type="PodScheduled",
                status="False",
                reason="Unschedulable" if status.is_rejected else "SchedulerError",
                message=status.message,
            ),
            nominated_node_name=nominated_node_name,
        )

    def outdated(self, key: str) -> None:
        """What was to be said of a pod and could not be is not so any more: it changed."""
        self._unsaid.pop(key, None)

    def catch_up(self) -> None:
        """Report what is still so, now that we lead: a version that could be read came after none of these."""
        unsaid, self._unsaid = self._unsaid, {}
        for key, (profile, pod, status, newest) in unsaid.items():
            if self._newest(key) is newest:
                self.failed(profile, pod, status)

    def skipped(self, profile: str, pod: PodInfo) -> None:
        """The pod is being deleted."""
        self._warn(profile, pod, f"skip schedule deleting pod: {pod.key}")

    def released(self, pod: PodInfo, group: PodGroup, why: str) -> None:
        """A member of a group was deleted, since too many others of it could not be bound."""
        self._recorders.of(pod.scheduler_name).record(
            pod,
            type_="Warning",
            reason="Released",
            action="Binding",
            note=f"Pod group {group.key.name} is given back: {why}",
            related=group,
        )

    def preempted(self, victim: PodInfo, profile: str, related: PodInfo | PodGroup, note: str) -> None:
        """The pod had to leave for another, or for a group."""
        self._recorders.of(profile).record(
            victim, type_="Normal", reason="Preempted", action="Preempting", note=note, related=related
        )

    def extender_failed(self, pod: PodInfo, note: str) -> None:
        """An extender failed that the pod can do without."""
        self._recorders.of(pod.scheduler_name).record(
            pod, type_="Warning", reason="ExtenderFailed", action="Scheduling", note=note
        )

    def rejected_by_kubelet(self, profile: str, pod: PodInfo, why: str, pause_seconds: float) -> None:
        """The pod was bound, and its node would not run it."""
        rest = f"; other nodes are preferred for {pause_seconds:.0f} s" if pause_seconds else ""
        self._recorders.of(profile).record(
            pod,
            type_="Warning",
            reason="RejectedByKubelet",
            action="Binding",
            note=f"node {pod.node_name} rejected the pod after it was bound: {why}{rest}",
        )

    def counted_late(self, pod: PodInfo) -> None:
        """A pod on a node has so many affinity terms that others do not wait until they are counted."""
        self._recorders.of(pod.scheduler_name).record(
            pod,
            type_="Warning",
            reason="AffinityCountedLate",
            action="Scheduling",
            note=f"the pod has {pod.affinity_terms.count} inter-pod affinity terms: of a pod with more than "
            f"{MOST_TERMS_AT_ONCE} they are counted after other work, so pods that are placed meanwhile may not heed them",
        )

    def expected_on(self, pod: PodInfo, node_name: str) -> None:
        """The pod will be bound there, but not at once."""
        self._status.patch_pod_status(pod, nominated_node_name=node_name)

    def _warn(self, profile: str, pod: PodInfo, note: str) -> None:
        self._recorders.of(profile).record(
            pod,
            type_="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note=note,
        )
