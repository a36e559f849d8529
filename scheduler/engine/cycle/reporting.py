"""Reports attempts to users: an event on the pod, and its PodScheduled condition.

Cluster Autoscaler and Karpenter read the condition, dashboards and users read the event; both contain kube-scheduler's
own messages. Clients depend on the reason of the condition, so reason codes are in annotations of the event.
"""

from __future__ import annotations

from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.engine.sharding.shards import PASSED_ON
from scheduler.objects.v1 import PodCondition
from scheduler.snapshot import MOST_COST_AT_ONCE, MOST_TERMS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.engine.ports import PodEventRecorders, PodWriter
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.reasons import Cause, GroupCause
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo

    _Failure = tuple[str, PodInfo, Status, Sequence[Cause], Sequence[GroupCause]]
    """Profile, pod, status, causes and causes of the group, as of `Reporter.failed`."""

CAUSES: Final = "custom-scheduler.io/reasons"
"""Annotation of FailedScheduling events: the causes as JSON, those of most nodes first."""
GROUP_CAUSES: Final = "custom-scheduler.io/group-reasons"
"""Annotation of the same events: the causes for which members of the pod's group have no node, as JSON."""
_MOST_CAUSES: Final = 20
"""Maximum number of causes in an annotation."""
_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})


class Reporter:
    """Writes the results of attempts to the API server.

    Failures that a standby replica detects are reported after it becomes the leader, if they still apply.

    Args:
        recorders: the event recorders of the profiles.
        status: patches pods' status.
        is_leading: returns whether anything may be written now.
        newest: `namespace/name` -> the pod's last version that was decoded, or None.
    """

    def __init__(
        self,
        recorders: PodEventRecorders,
        status: PodWriter,
        *,
        is_leading: Callable[[], bool],
        newest: Callable[[str], PodInfo | None],
    ) -> None:
        self._recorders = recorders
        self._status = status
        self._is_leading = is_leading
        self._newest = newest
        # pod key -> last unreported failure, and the newest version at that time
        self._unsaid: dict[str, tuple[_Failure, PodInfo | None]] = {}

    def scheduled(self, profile: str, pod: PodInfo, node_name: str) -> None:
        """Report a bound pod; the API server sets its condition."""
        self._recorders.of(profile).record(
            pod,
            type_="Normal",
            reason="Scheduled",
            action="Binding",
            note=f"Successfully assigned {pod.key} to {node_name}",
        )

    def failed(
        self,
        profile: str,
        pod: PodInfo,
        status: Status,
        nominated_node_name: str | None = None,
        causes: Sequence[Cause] = (),
        group_causes: Sequence[GroupCause] = (),
    ) -> None:
        """Report a pod that was not placed; a repeated reason causes another event, but no patch.

        Args:
            profile: the pod's profile.
            pod: the pod.
            status: a rejection or an error; its reason is the text for the user.
            nominated_node_name: the node to nominate; "" clears a nomination, None keeps it.
            causes: why the pod was rejected.
            group_causes: why the members of its group without a node were rejected.
        """
        if not self._is_leading():
            self._unsaid[pod.key] = (profile, pod, status, causes, group_causes), self._newest(pod.key)
            return
        annotations = {CAUSES: _annotation(causes)} if causes else {}
        if group_causes:
            annotations[GROUP_CAUSES] = _annotation(group_causes)
        self._warn(profile, pod, status.message, annotations)
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
        """Drop the unreported failure of a pod, because the pod changed."""
        self._unsaid.pop(key, None)

    def catch_up(self) -> None:
        """Report the failures that still apply, after this process became the leader."""
        unsaid, self._unsaid = self._unsaid, {}
        for key, ((profile, pod, status, causes, group_causes), newest) in unsaid.items():
            if self._newest(key) is newest:
                self.failed(profile, pod, status, causes=causes, group_causes=group_causes)

    def skipped(self, profile: str, pod: PodInfo) -> None:
        """Report that a pod is skipped because it is being deleted."""
        self._warn(profile, pod, f"skip schedule deleting pod: {pod.key}")

    def released(self, pod: PodInfo, group: PodGroup, why: str) -> None:
        """Report that a bound member was deleted, because too many members of its group cannot be bound."""
        self._recorders.of(pod.scheduler_name).record(
            pod,
            type_="Warning",
            reason="Released",
            action="Binding",
            note=f"Pod group {group.key.name} is released: {why}",
            related=group,
        )

    def preempted(self, victim: PodInfo, profile: str, related: PodInfo | PodGroup, note: str) -> None:
        """Report a victim that was preempted for a pod or a group."""
        self._recorders.of(profile).record(
            victim, type_="Normal", reason="Preempted", action="Preempting", note=note, related=related
        )

    def extender_failed(self, pod: PodInfo, note: str) -> None:
        """Report the failure of an extender that is ignorable."""
        self._recorders.of(pod.scheduler_name).record(
            pod, type_="Warning", reason="ExtenderFailed", action="Scheduling", note=note
        )

    def rejected_by_kubelet(self, profile: str, pod: PodInfo, why: str, pause_seconds: float) -> None:
        """Report that a kubelet rejected a bound pod."""
        rest = f"; other nodes are preferred for {pause_seconds:.0f} s" if pause_seconds else ""
        self._recorders.of(profile).record(
            pod,
            type_="Warning",
            reason="RejectedByKubelet",
            action="Binding",
            note=f"node {pod.node_name} rejected the pod after it was bound: {why}{rest}",
        )

    def counted_late(self, pod: PodInfo) -> None:
        """Report a pod on a node whose affinity terms are counted later, because they are many or large."""
        self._recorders.of(pod.scheduler_name).record(
            pod,
            type_="Warning",
            reason="AffinityCountedLate",
            action="Scheduling",
            note=f"the pod has {pod.affinity_terms.count} inter-pod affinity terms with {pod.affinity_terms.cost} "
            f"requirements: more than {MOST_TERMS_AT_ONCE} terms, or {MOST_COST_AT_ONCE} requirements, are counted after "
            "other work, so pods that are placed meanwhile may ignore them",
        )

    def expected_on(self, pod: PodInfo, node_name: str) -> None:
        """Nominate a pod to the node where it will be bound later."""
        self._status.patch_pod_status(pod, nominated_node_name=node_name)

    async def passed_on(self, pod: PodInfo, node_name: str) -> int:
        """Nominate a pod to a node of another replica, which is to bind it.

        Returns:
            The version of the pod that has the nomination; 0 if nothing was written.

        Raises:
            ApiError: the nomination could not be written.
        """
        message = f"the replica to which node {node_name} belongs is to bind the pod"
        return await self._status.wait_pod_status_patched(
            pod,
            condition=PodCondition(type="PodScheduled", status="False", reason=PASSED_ON, message=message),
            nominated_node_name=node_name,
        )

    def returned(self, pod: PodInfo) -> None:
        """Return a pod, which does not fit on its nominated node any more, to the replica that passed it on."""
        self._status.patch_pod_status(pod, nominated_node_name="")

    def _warn(
        self, profile: str, pod: PodInfo, note: str, annotations: Mapping[str, str] = _NO_ANNOTATIONS
    ) -> None:
        self._recorders.of(profile).record(
            pod,
            type_="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note=note,
            annotations=annotations,
        )


def _annotation(causes: Iterable[Cause | GroupCause]) -> str:
    return msgspec.json.encode([cause.as_json() for cause in islice(causes, _MOST_CAUSES)]).decode()
