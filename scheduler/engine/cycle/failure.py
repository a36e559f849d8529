"""Handles failed attempts: requeues the pod, and reports the reason.

Source:
    kube-scheduler v1.36, schedule_one.go, handleSchedulingFailure.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from scheduler.engine.queue.pod_places import Place
from scheduler.engine.queue.quarantine import message, quarantine_duration
from scheduler.engine.runtime.budget import over_budget
from scheduler.errors import drop_tracebacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.engine.cycle.attempt import Attempt
    from scheduler.engine.cycle.reporting import Reporter
    from scheduler.engine.cycle.shared import Shared
    from scheduler.extensions.extender_wire import ExtenderError
    from scheduler.framework.reasons import Cause, GroupCause
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)


class FailureHandler:
    """Requeues pods and reports failures; implements `ExtenderObserver`."""

    def __init__(self, shared: Shared, reporter: Reporter) -> None:
        self._queue, self._newest = shared.queue, shared.pods.get
        self._nominator, self._bus = shared.nominator, shared.bus
        self._clock, self._observer = shared.clock, shared.observer
        self._budget, self._reporter = shared.budget, reporter
        self._shared = shared

    def handle(
        self,
        attempt: Attempt,
        status: Status,
        *,
        nominated_node_name: str | None = "",
        unschedulable_plugins: frozenset[str] = frozenset(),
        pending_plugins: frozenset[str] = frozenset(),
        causes: Sequence[Cause] | None = None,
        group_causes: Sequence[GroupCause] = (),
    ) -> None:
        """Handle an attempt that did not bind its pod.

        Args:
            attempt: the attempt.
            status: a rejection or an error; its reason is the text for the user.
            nominated_node_name: the node to nominate; "" clears a nomination, None keeps it.
            unschedulable_plugins: the plugins that rejected the pod; their events may requeue it.
            pending_plugins: those of them that returned PENDING.
            causes: why the pod was rejected; None for the causes of the status.
            group_causes: why the members of its group without a node were rejected.
        """
        queued, pod, profile = attempt.queued, attempt.queued.pod, attempt.framework.profile
        quarantine_seconds = 0.0
        if status.error is not None:
            drop_tracebacks(status.error)  # they keep the whole cycle, which keeps the error
        spent = over_budget(status.error)
        if spent is not None:
            self._observer.over_budget(profile, status.plugin)
            quarantine_seconds = spent.pause_seconds or 0.0
            if spent.pause_seconds is None:
                queued.over_budget_count += 1
                quarantine_seconds = quarantine_duration(queued.over_budget_count)
                status = replace(status, reasons=(f"{status.message}{message(queued.over_budget_count)}",))
        result = "unschedulable" if status.is_rejected else "error"
        causes = status.causes if causes is None or not status.is_rejected else causes
        self._observer.attempted(profile, result, self._clock.monotonic() - attempt.began)
        self._log(pod, status)
        newest = self._newest(pod.key)
        shards = self._shared.profiles.shards
        is_taken = shards is None or (newest is not None and shards.takes(newest))
        if newest is None or newest.node_name != pod.node_name or newest.uid != pod.uid or not is_taken:
            # The pod was deleted, recreated, or bound: by a request without a response, or by another client. Or it belongs
            # to another replica now.
            self._queue.done(pod.uid)
            return
        # PreEnqueue in the queue must not fail because of time that other plugins used.
        place = self._budget.run_after_slice(
            partial(
                self._queue.add_unschedulable,
                queued,
                unschedulable_plugins=unschedulable_plugins,
                pending_plugins=pending_plugins,
                reason_codes=frozenset([(cause.code, cause.plugin) for cause in causes]),
                is_error=not status.is_rejected,
                quarantine_seconds=quarantine_seconds,
            )
        )
        # Its newest version cannot be decoded, which was already reported; or it runs, whatever becomes of its resize.
        if place is Place.OUTSIDE or pod.node_name:
            return
        if shards is not None and not shards.decides(newest):
            self._reporter.returned(newest)
            return
        if nominated_node_name is not None:
            self._nominate(newest, nominated_node_name)
        self._reporter.failed(profile, newest, status, nominated_node_name, causes, group_causes)

    def _nominate(self, pod: PodInfo, node_name: str) -> None:
        """Replace a pod's nomination; no watch event reports the end of a nomination that was not written yet."""
        before = self._nominator.node_of(pod.uid)
        self._queue.nominate(pod.uid, node_name)
        if before not in {"", node_name, pod.pod.status.nominated_node_name}:
            self._bus.nomination_ended(pod.placed_on(before), but=pod.uid)

    def extender_failed(
        self, extender: str, verb: str, pod: PodInfo, error: ExtenderError, *, is_fatal: bool
    ) -> None:
        self._observer.extender_failed(extender, verb)
        if not is_fatal:  # else FailedScheduling reports it
            self._reporter.extender_failed(pod, str(error))

    def _log(self, pod: PodInfo, status: Status) -> None:
        """Log a failure with kube-scheduler's messages and levels."""
        fields = {"pod": pod.key, "err": status.message}
        if status.is_rejected:
            logger.debug("Unable to schedule pod; no fit; waiting", extra=fields)
        else:
            logger.error("Error scheduling pod; retrying", extra=fields)
