"""The binding cycle: carries a choice out, or undoes all of it. One task per pod; each handles its own failure.

Source:
    kube-scheduler v1.36, schedule_one.go, bindingCycle and handleBindingCycleError.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from scheduler.errors import ApiError, SchedulerError
from scheduler.framework.events import ActionType, ClusterEvent, EventResource
from scheduler.framework.status import SUCCESS, Code, Status

if TYPE_CHECKING:
    from scheduler.clock import Clock
    from scheduler.cycle.attempt import Choice
    from scheduler.cycle.event_bus import EventBus
    from scheduler.cycle.failure import FailureHandler
    from scheduler.cycle.observer import CycleObserver
    from scheduler.cycle.reporting import Reporter
    from scheduler.objects.pod import PodInfo
    from scheduler.queue.scheduling_queue import SchedulingQueue
    from scheduler.runtime.waiting_pods import WaitingPodsMap
    from scheduler.state.cache import Cache

logger = logging.getLogger(__name__)

ASSIGNED_POD_DELETE = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)

_UNCLEAR = frozenset({0, 409, 500, 504})
"""Answers to a Binding after which the pod may be bound all the same, perhaps by an earlier try of ours."""


class PodReader(Protocol):
    """Asks the API server for one pod, past every cache."""

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        """Return the pod as it is now, None if there is none.

        Raises:
            ApiError: no answer, after a few tries.
        """
        ...


class BindingCycle:
    """Carries choices out."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        bus: EventBus,
        waiting_pods: WaitingPodsMap,
        reporter: Reporter,
        failures: FailureHandler,
        reader: PodReader,
        clock: Clock,
        observer: CycleObserver,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._bus = bus
        self._waiting_pods = waiting_pods
        self._reporter = reporter
        self._failures = failures
        self._reader = reader
        self._clock = clock
        self._observer = observer

    async def run(self, choice: Choice) -> None:
        """Bind the pod, or undo the choice; never raises for what plugins or the API server do."""
        self._observer.binding(1)
        try:
            status = await self._carry_out(choice)
        except Exception as error:
            # A mistake of ours must cost this attempt only.
            logger.exception("Binding cycle broke", extra={"pod": choice.pod.key, "node": choice.node_name})
            status = Status.failed(f"binding: {type(error).__name__}: {error}", error)
        finally:
            self._observer.binding(-1)
        if status.is_success:
            await self._bound(choice)
        else:
            self.undo(choice, status)

    def undo(self, choice: Choice, status: Status) -> None:
        """Take everything back: reservations, the pod on the node, the pod out of the queue."""
        attempt = choice.attempt
        attempt.framework.run_unreserve(choice.state, choice.pod, choice.node_name)
        forgotten = self._cache.forget(choice.pod.uid)
        if status.is_rejected:
            # The room it held is news for the others, but not for itself: it would not sleep at all.
            self._fail(choice, status)
            self._release(forgotten, but=choice.pod.uid)
        else:
            self._release(forgotten)
            self._fail(choice, status)

    def _fail(self, choice: Choice, status: Status) -> None:
        rejected = frozenset({status.plugin}) if status.is_rejected and status.plugin else frozenset[str]()
        pending = rejected if status.code is Code.PENDING else frozenset[str]()
        if status.is_rejected:
            counts = ", ".join(sorted(f"1 {reason}" for reason in status.reasons))
            told = f"0/1 nodes are available: {counts}." if counts else "0/1 nodes are available:"
            status = Status(status.code, (told,), status.plugin)
        self._failures.handle(choice.attempt, status, unschedulable_plugins=rejected, pending_plugins=pending)

    def _release(self, forgotten: PodInfo | None, but: str = "") -> None:
        if forgotten is not None:
            self._bus.happened(ASSIGNED_POD_DELETE, forgotten, None, lambda pod: pod.uid != but)

    async def _carry_out(self, choice: Choice) -> Status:
        framework, pod, state = choice.attempt.framework, choice.pod, choice.state
        flight = framework.run_pre_bind_pre_flights(state, pod, choice.node_name)
        if not flight.is_success and flight.code is not Code.SKIP:
            return flight
        if flight.is_success or self._waiting_pods.holds(pod.uid):
            # It will take a while; tell those who would otherwise add a node for it.
            self._reporter.expected_on(choice.attempt.queued.pod, choice.node_name)
        permitted = await self._waiting_pods.wait_until_decided(pod.uid)
        if not permitted.is_success:
            return permitted
        # From here on a failure is an error, which no cluster event can mend; PreBind may take minutes.
        self._queue.ignore_events(pod.uid)
        prepared = await framework.run_pre_bind(state, pod, choice.node_name)
        if not prepared.is_success:
            return prepared
        return await self._bind(choice)

    async def _bind(self, choice: Choice) -> Status:
        status = await choice.attempt.framework.run_bind(choice.state, choice.pod, choice.node_name)
        error = status.error
        if status.is_success or not isinstance(error, ApiError) or error.status not in _UNCLEAR:
            return status
        # The bind may have taken effect. Forgetting the pod now would give its room away twice, so ask first.
        try:
            pod = await self._reader.read_pod(choice.pod.namespace, choice.pod.name)
        except SchedulerError as unanswered:
            logger.warning(
                "Cannot tell whether the pod was bound",
                extra={"pod": choice.pod.key, "node": choice.node_name, "error": str(unanswered)},
            )
            return status
        if pod is not None and pod.uid == choice.pod.uid and pod.node_name == choice.node_name:
            logger.info(
                "Pod was bound though the answer said otherwise",
                extra={"pod": choice.pod.key, "node": choice.node_name, "answer": str(error)},
            )
            return SUCCESS
        return status

    async def _bound(self, choice: Choice) -> None:
        attempt = choice.attempt
        self._queue.done(choice.pod.uid)
        now = self._clock.monotonic()
        first = attempt.queued.initial_attempt_timestamp
        logger.info("Pod bound", extra={"pod": choice.pod.key, "node": choice.node_name})
        self._observer.attempted(attempt.framework.profile, "scheduled", now - attempt.began)
        self._observer.bound(attempt.queued, now - (attempt.began if first is None else first))
        self._reporter.scheduled(attempt.framework.profile, choice.pod, choice.node_name)
        await attempt.framework.run_post_bind(choice.state, choice.pod, choice.node_name)
