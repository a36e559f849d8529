"""PreEnqueue: whether a pod may be tried at all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)


class Gate:
    """Asks the PreEnqueue plugins about a pod, and notes in it who keeps it gated.

    Source:
        kube-scheduler v1.36, backend/queue/scheduling_queue.go, runPreEnqueuePlugins.
    """

    def __init__(self, pre_enqueue: Callable[[PodInfo], Status | None]) -> None:
        self._pre_enqueue = pre_enqueue

    def refusal(self, queued: QueuedPodInfo) -> Status | None:
        """Return the rejection that keeps a pod gated; None lets it pass.

        Raises:
            AssertionError: the rejection does not say whose it is, so nothing could ever wake the pod.
        """
        status = self._pre_enqueue(queued.pod)
        if status is None or status.is_success:
            queued.gating_plugin = ""
            return None
        if not status.plugin:
            raise AssertionError(f"Pod {queued.pod.key}: PreEnqueue refused it without a plugin: {status}")
        if status.code is Code.ERROR:
            logger.error(
                "PreEnqueue failed; the pod stays gated",
                extra={"plugin": status.plugin, "pod": queued.pod.key, "error": status.message},
            )
        queued.gating_plugin = status.plugin
        # Among the rejectors too, so that its hints are asked.
        queued.unschedulable_plugins |= {status.plugin}
        return status
