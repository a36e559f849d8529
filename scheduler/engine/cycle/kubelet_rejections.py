"""Finds pods of this scheduler that a kubelet rejected after their Binding, and pauses the nodes.

A rejected pod has failed, and failed pods are not watched: the watch reports a deletion. So a pod that leaves its node
without having run, and without a deletion request, is read again. Only such pods cost a request.

Only pods placed by this scheduler count, because pod creators can put a pod that the kubelet must reject on any node,
with any schedulerName. A node is not paused for a problem of the pod alone.

Source:
    kubelet v1.36, pkg/kubelet/kubelet.go, rejectPod: phase Failed, the reason of the failed check, and a message that
    begins with "Pod was rejected: ". Older kubelets set the reasons, but not the message.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from scheduler.errors import ApiError, ObjectError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.engine.cycle.reporting import Reporter
    from scheduler.engine.cycle.shared import Shared
    from scheduler.engine.ports import PodReader
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_MESSAGE = "Pod was rejected: "
_NO_ROOM = "OutOf"
_REASONS = frozenset({"NodeAffinity", "NodePorts", "NodeName", "NodeUnschedulable", "TaintToleration"})
"""Other reasons of a kubelet's admission. Source: kubelet v1.36, pkg/kubelet/lifecycle/predicate.go."""
_OF_THE_POD = frozenset(
    {
        "AppArmor",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
    }
)
"""Reasons in the pod spec that no scheduler checks. Source: kubelet v1.36, pkg/kubelet/lifecycle,
handlers.go and predicate.go; pkg/kubelet/sysctl/allowlist.go."""


class KubeletRejections:
    """Reads pods that left their nodes too early.

    Args:
        reader: reads pods.
        reporter: reports rejections to users.
        is_leading: returns whether this process is the leader; otherwise no pod is read.
    """

    def __init__(
        self, shared: Shared, *, reader: PodReader, reporter: Reporter, is_leading: Callable[[], bool]
    ) -> None:
        self._profiles, self._cache = shared.profiles, shared.cache
        self._time, self._observer = shared.time, shared.observer
        self._reader = reader
        self._reporter = reporter
        self._is_leading = is_leading
        self._unasked: asyncio.Queue[PodInfo] = asyncio.Queue()

    def left(self, pod: PodInfo) -> None:
        """Record that a pod left the node where this scheduler placed it; `pod` is its last version."""
        has_run = pod.pod.status.phase == "Running"
        if (
            pod.scheduler_name in self._profiles
            and not has_run
            and not pod.is_terminating
            and self._is_leading()
        ):
            self._unasked.put_nowait(pod)

    @property
    def is_idle(self) -> bool:
        """Whether no pod waits to be read."""
        return self._unasked.empty()

    async def run(self) -> NoReturn:
        """Read one pod after another, until cancelled."""
        while True:
            pod = await self._unasked.get()
            try:
                newest = await self._reader.read_pod(pod.namespace, pod.name)
            except (ApiError, ObjectError) as error:
                fields = {"pod": pod.key, "node": pod.node_name, "error": str(error)}
                logger.warning("Cannot determine whether the kubelet rejected the pod", extra=fields)
                continue
            if newest is not None and newest.uid == pod.uid and is_rejected(newest):
                self._note(newest)

    def _note(self, pod: PodInfo) -> None:
        reason, message = pod.pod.status.reason, pod.pod.status.message.removeprefix(_MESSAGE)
        why = f"{reason}: {message}" if message else reason
        seconds = 0.0
        is_there = self._cache.table.row_of(pod.node_name) is not None  # the node may have been deleted
        if is_there and reason not in _OF_THE_POD:
            seconds = self._cache.pauses.rejected(
                pod.node_name, f"its kubelet rejected pod {pod.key}: {why}", at=self._time.monotonic()
            )
        self._observer.rejected_by_kubelet(reason)
        self._reporter.rejected_by_kubelet(pod.scheduler_name, pod, why, seconds)
        fields = {
            "pod": pod.key,
            "node": pod.node_name,
            "reason": reason,
            "quarantine_duration": round(seconds, 1),
        }
        logger.warning("Kubelet rejected a pod that was bound to its node", extra=fields)


def is_rejected(pod: PodInfo) -> bool:
    """Return whether a kubelet rejected the pod before it ran."""
    status = pod.pod.status
    return (
        bool(pod.node_name)
        and status.phase == "Failed"
        and bool(status.reason)
        and (
            status.message.startswith(_MESSAGE)
            or status.reason.startswith(_NO_ROOM)
            or status.reason in _REASONS
        )
    )
