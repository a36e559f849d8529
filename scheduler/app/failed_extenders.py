"""Tells of extenders that fail: operators by a metric, users by an event on the pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.extenders.wire import ExtenderError
    from scheduler.framework import PodEvents
    from scheduler.metrics import Metrics
    from scheduler.objects.pod import PodInfo


class FailedExtenders:
    """Implements `ExtenderObserver`.

    Args:
        recorders: schedulerName -> who writes its events.
        metrics: counts.
    """

    def __init__(self, recorders: Mapping[str, PodEvents], metrics: Metrics) -> None:
        self._recorders = recorders
        self._metrics = metrics

    def extender_failed(
        self, extender: str, verb: str, pod: PodInfo, error: ExtenderError, *, is_fatal: bool
    ) -> None:
        self._metrics.extender_failed(extender, verb)
        if not is_fatal:  # else FailedScheduling says it
            self._recorders[pod.scheduler_name].record(
                pod, type_="Warning", reason="ExtenderFailed", action="Scheduling", note=str(error)
            )
