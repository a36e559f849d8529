"""Pods that PreEnqueue keeps out of activeQ and backoffQ."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.framework.status import Code

if TYPE_CHECKING:
    from scheduler.engine.queue.ports import QueuePlugins
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.status import Status

logger = logging.getLogger(__name__)


def pre_enqueue_refusal(plugins: QueuePlugins, queued: QueuedPodInfo) -> Status | None:
    """Run PreEnqueue; return the rejection that gates the pod, and store its plugin in `queued`. None admits the pod.

    Raises:
        AssertionError: the rejection names no plugin, so no event could requeue the pod.

    Source:
        kube-scheduler v1.36, backend/queue/scheduling_queue.go, runPreEnqueuePlugins.
    """
    status = plugins.run_pre_enqueue(queued.pod)
    if status.is_success:
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
    # Also one of the rejecting plugins, so that its hints are called.
    queued.unschedulable_plugins |= {status.plugin}
    return status
