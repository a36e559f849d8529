"""The binding cycle: binds an assumed pod, or undoes the assumption. One task per pod; each handles its own failures.

A plain pod waits only for the response to its Binding. Separate functions handle slow cases: pods that wait at Permit
or in PreBind, and responses that do not tell whether the pod was bound.

Source:
    kube-scheduler v1.36, schedule_one.go, bindingCycle and handleBindingCycleError.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.cycle.time_slices import answer_in_slices
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.sharding.shards import (
    PASSED_ON_SECONDS,
    RETURNED,
    SHARDING,
    UNANSWERED_SECONDS,
    is_passed_on,
)
from scheduler.errors import ApiError, NotLeadingError, SchedulerError
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.events import ASSIGNED_POD_DELETE
from scheduler.framework.reasons import NODE_CHANGED, Reason
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.loop_work import loop_work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator

    from scheduler.engine.cycle.attempt import AssumedPod
    from scheduler.engine.cycle.failure import FailureHandler
    from scheduler.engine.cycle.reporting import Reporter
    from scheduler.engine.cycle.shared import Shared
    from scheduler.engine.ports import PodReader
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.state.cache import Cache
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_NOT_LEADING = "not leading any more: the pod is not bound"
_NOT_CURRENT = "it was deleted, is terminating or is bound"


def final_check(cache: Cache, assumed: AssumedPod) -> Status:
    """Evaluate a changed node again before the Binding: return a success if the pod still fits, else a rejection.

    Permit and PreBind may take minutes. Other decisions of this scheduler need no check, because they counted the assumed
    pod. Other changes do: the node was cordoned, reduced or deleted, or another client placed a pod there. The rejection
    names no plugin, because another node may fit. A failure of a plugin is returned as its error.
    """
    name = assumed.node_name
    snapshot = cache.snapshot()
    row = snapshot.row_of(name)
    if row is None:
        return Status.unschedulable(Reason(f"node {name} was deleted", NODE_CHANGED))
    filtering = assumed.attempt.framework.filtering
    counted = cache.pod(assumed.pod.uid)
    without = snapshot.overlay(remove=[(row, counted)] if counted is not None else [])
    state, diagnosis = AttemptState(), Diagnosis.blank(snapshot.n_nodes)
    status = filtering.run_pre_filter(state, assumed.pod, without, diagnosis, with_quotas=False)
    rows = np.array([row], dtype=np.intp)
    try:
        if status.is_success and filtering.run_filters(state, assumed.pod, without, rows, diagnosis).size:
            return SUCCESS
    except PluginError as error:
        return error.status
    refusal = diagnosis.outcome_of(row)
    reasons = ", ".join(refusal[1].reasons) if refusal else status.message
    return Status.unschedulable(
        Reason(f"node {name} changed before the pod was bound: {reasons}", NODE_CHANGED)
    )


def may_be_bound(error: ApiError) -> bool:
    """Return whether the pod may be bound or deleted although its Binding failed, for example by an earlier try."""
    return error.is_unclear or error.status in {404, 409}


class _NotOursError(Exception):
    """The pod was deleted or is bound elsewhere, so it is not tried again."""


@dataclass(slots=True)
class _PreBind:
    """The PreBind task of one pod, and the status of its cancellation, if any."""

    task: asyncio.Future[Status]
    cancelled: Status | None = None


class BindingCycle:
    """Binds assumed pods.

    Args:
        reader: reads a pod without any cache.
        is_leading: returns whether pods may be bound now. The client checks this too, right before it sends a request;
            the check here also covers Bind plugins with their own clients.
    """

    def __init__(
        self,
        shared: Shared,
        reporter: Reporter,
        failures: FailureHandler,
        reader: PodReader,
        *,
        is_leading: Callable[[], bool],
    ) -> None:
        self._shared = shared
        self._cache, self._queue, self._waiting_pods = shared.cache, shared.queue, shared.waiting_pods
        self._bus, self._freeze = shared.bus, shared.freeze
        self._clock, self._observer = shared.clock, shared.observer
        self._time = shared.time
        self._newest = shared.pods.get
        self._reporter = reporter
        self._failures = failures
        self._reader = reader
        self._is_leading = is_leading
        self._pre_binding: dict[str, _PreBind] = {}  # pod uid -> its running PreBind
        # id of a profile -> running bindings of its pods, by the id of the assumed pod
        self._under_way: defaultdict[int, dict[int, PodInfo]] = defaultdict(dict)
        self._ended = asyncio.Event()
        self._undoing = asyncio.Lock()

    @property
    def under_way(self) -> int:
        """The number of running bindings."""
        return sum(map(len, self._under_way.values()))

    def pods(self) -> Iterator[PodInfo]:
        """Return the pods of running bindings, as counted on their nodes; a deleted one is not counted any more."""
        return chain.from_iterable(each.values() for each in self._under_way.values())

    async def wait_ended(self, frameworks: Collection[Framework]) -> None:
        """Wait until all bindings that began with one of these profiles have ended."""
        while any(id(framework) in self._under_way for framework in frameworks):
            self._ended.clear()
            await self._ended.wait()

    @loop_work("binding", lambda assumed: f"binding of pod {assumed.pod.key}")
    async def run(self, assumed: AssumedPod) -> None:
        """Bind the pod, or undo the assumption; never raises for errors of plugins, the API server or this scheduler."""
        framework = id(assumed.attempt.framework)
        bindings = self._under_way[framework]
        bindings[id(assumed)] = assumed.pod
        try:
            await self._run(assumed)
        except Exception:
            logger.exception(
                "Binding cycle failed", extra={"pod": assumed.pod.key, "node": assumed.node_name}
            )
            if assumed.group is not None:
                assumed.group.lost(assumed.pod, "its binding failed")
            async with self._undoing_one():
                if self._queue.place_of(assumed.pod.uid) is Place.IN_FLIGHT:
                    self._take_back(assumed)
                self.rescue(assumed.attempt.queued)
        finally:
            del bindings[id(assumed)]
            if not bindings:
                del self._under_way[framework]
                self._ended.set()

    def undo(self, assumed: AssumedPod, status: Status) -> None:
        """Undo an assumption at once: reservations and the pod on the node; the pod returns to the queue.

        No other pod was evaluated with the assumed pod, so no event is sent, unless its nomination ends.
        """
        self.take_back(assumed)
        self._requeue(assumed, status)

    def take_back(self, assumed: AssumedPod) -> None:
        """Undo an assumption at once, as `undo`, but keep the pod in flight because its attempt continues."""
        self._take_back(assumed)
        self._queue.nominate(assumed.pod.uid, assumed.nominated)

    def rescue(self, queued: QueuedPodInfo) -> None:
        """Return a pod to the queue after a bug of this scheduler, which must cost this attempt only."""
        uid = queued.pod.uid
        if self._queue.place_of(uid) is Place.IN_FLIGHT:
            self._waiting_pods.release(uid)
            self._cache.forget(uid)
            self._queue.add_unschedulable(queued, is_error=True)
        self._bus.wake()

    # From the assumption to the response.

    async def _run(self, assumed: AssumedPod) -> None:
        try:
            status = await (self._pass_on(assumed) if assumed.is_passed_on else self._carry_out(assumed))
        except _NotOursError as why:
            if assumed.group is not None:
                assumed.group.lost(assumed.pod, str(why))
            await self._not_ours(assumed, why)
            return
        if status.is_success and assumed.is_passed_on:
            self._bound_by_another(assumed)
        elif status.is_success:
            self._bound(assumed)
            await assumed.attempt.framework.run_post_bind(assumed.state, assumed.pod, assumed.node_name)
        else:
            await self._failed(assumed, status)

    async def _carry_out(self, assumed: AssumedPod) -> Status:
        framework, pod = assumed.attempt.framework, assumed.pod
        busy = framework.run_pre_bind_pre_flights(assumed.state, pod, assumed.node_name)
        if isinstance(busy, Status):
            return busy
        is_held = self._waiting_pods.holds(pod.uid)
        if busy or is_held:
            # Binding takes a while: the nomination tells autoscalers not to add a node for the pod.
            self._reporter.expected_on(assumed.attempt.queued.pod, assumed.node_name)
        if is_held:
            permitted = await self._waiting_pods.wait_until_decided(pod.uid)
            if not permitted.is_success:
                return permitted
        self._queue.ignore_events(pod.uid)  # PreBind may take minutes
        status = await (
            self._pre_bind(assumed, busy)
            if busy
            else framework.run_pre_bind(assumed.state, pod, assumed.node_name, busy)
        )
        if status.is_success and assumed.group is not None:
            status = await assumed.group.wait_ready(pod, lambda: assumed.is_current(self._newest(pod.key)))
        if status.is_success:
            if not assumed.is_current(self._newest(pod.key)):
                raise _NotOursError(_NOT_CURRENT)
            if self._cache.node_generation(assumed.node_name) != assumed.node_generation:
                status = await answer_in_slices(partial(final_check, self._cache, assumed), self._time)
        if status.is_success:
            status = await self._bind(assumed)
        # No cluster event can resolve a failure from here on, so the status names no plugin to wait for.
        return status if status.is_success else replace(status, plugin="", origins=status.causes)

    async def _pass_on(self, assumed: AssumedPod) -> Status:
        """Let the replica to which the node belongs bind the pod, and wait until it did or refused.

        Raises:
            _NotOursError: the pod was deleted or is bound elsewhere.
        """
        pod = assumed.pod
        self._queue.ignore_events(pod.uid)
        if assumed.group is not None:
            status = await assumed.group.wait_ready(pod, lambda: assumed.is_current(self._newest(pod.key)))
            if not status.is_success:
                return status
        if not self._is_leading():
            return Status.failed(_NOT_LEADING)
        if not assumed.is_current(self._newest(pod.key)):  # no later event ends the wait
            raise _NotOursError(_NOT_CURRENT)
        self._waiting_pods.hold(pod, {SHARDING: PASSED_ON_SECONDS})
        try:
            status = await self._nominate_elsewhere(assumed)
            if status.is_success:
                status = await self._waiting_pods.wait_until_decided(pod.uid)
        finally:
            self._waiting_pods.release(pod.uid)
        newest = self._newest(pod.key)
        if newest is None or newest.uid != pod.uid or newest.node_name not in {"", assumed.node_name}:
            self._observer.passed_on("ended")
            raise _NotOursError("it was deleted or is bound elsewhere")
        self._observer.passed_on("bound" if newest.node_name else "returned")
        return SUCCESS if newest.node_name else replace(status, plugin="", origins=status.causes)

    async def _nominate_elsewhere(self, assumed: AssumedPod) -> Status:
        """Nominate the pod to the node of another replica.

        Without an answer the pod stays counted on the node until it is known whether the other replica may bind it.
        """
        shards, pod = self._shared.profiles.shards, assumed.pod
        assert shards is not None, "one replica passes no pods on"
        found = self._newest(pod.key)
        try:
            version = await self._reporter.passed_on(assumed.attempt.queued.pod, assumed.node_name)
        except SchedulerError as error:
            failed = Status.failed(f"the pod could not be passed on to another replica: {error}", error)
            if not (isinstance(error, ApiError) and error.is_unclear):
                return failed
            self._note_unanswered(assumed, error)
            await asyncio.sleep(UNANSWERED_SECONDS)
            try:
                found, version = await self._reader.read_pod(pod.namespace, pod.name), 0
            except SchedulerError:
                return failed
            if found is None or found.uid != pod.uid or not is_passed_on(found):
                return failed
        if found is not None and not version:
            version = int(found.resource_version or 0)
        shards.nominated(pod.uid, version)
        newest = self._newest(pod.key)
        if newest is not None and shards.is_returned(newest, assumed.node_name):
            return Status.unschedulable(RETURNED)  # the watch was faster than the answer
        return SUCCESS

    async def _bind(self, assumed: AssumedPod) -> Status:
        shards = self._shared.profiles.shards
        if not self._is_leading() or not (shards is None or shards.may_bind(assumed.pod, assumed.node_name)):
            return Status.failed(_NOT_LEADING)
        extenders = assumed.attempt.extenders
        if extenders is not None:
            try:
                if await extenders.bind(assumed.attempt.queued.pod, assumed.node_name):
                    return SUCCESS
            except ExtenderError as error:
                # The extender may have bound the pod before it failed.
                failed = ApiError(0, "ExtenderFailed", str(error))
                return await self._find_out(assumed, Status.failed(str(error), failed), failed)
            except NotLeadingError as error:
                return Status.failed(str(error), error)
        status = await assumed.attempt.framework.run_bind(assumed.state, assumed.pod, assumed.node_name)
        if isinstance(status.error, ApiError) and may_be_bound(status.error):
            return await self._find_out(assumed, status, status.error)
        return status

    # Slow cases.

    async def _pre_bind(self, assumed: AssumedPod, busy: frozenset[str]) -> Status:
        uid = assumed.pod.uid
        work = assumed.attempt.framework.run_pre_bind(assumed.state, assumed.pod, assumed.node_name, busy)
        work = self._time.task(work, f"PreBind {assumed.pod.key}")
        running = self._pre_binding[uid] = _PreBind(asyncio.ensure_future(work))
        try:
            return await running.task
        except asyncio.CancelledError:
            if running.cancelled is None or not running.task.cancelled():
                raise
            return running.cancelled
        finally:
            running.task.cancel()
            del self._pre_binding[uid]

    def cancel_pre_bind(self, uid: str, plugin: str, reason: str) -> bool:
        """Cancel PreBind of a pod on behalf of a plugin; return whether it was running."""
        running = self._pre_binding.get(uid)
        if running is None or running.task.done():
            return False
        running.cancelled = Status(Code.ERROR, (reason,), plugin)
        running.task.cancel()
        return True

    async def _find_out(self, assumed: AssumedPod, status: Status, answer: ApiError) -> Status:
        """Read a pod whose Binding may have taken effect: to forget the pod now would use its capacity twice.

        Raises:
            _NotOursError: the pod was deleted or is bound elsewhere.
        """
        self._note_unanswered(assumed, answer)
        try:
            pod = await self._reader.read_pod(assumed.pod.namespace, assumed.pod.name)
        except SchedulerError as unanswered:
            logger.warning(
                "Cannot determine whether the pod was bound",
                extra={"pod": assumed.pod.key, "node": assumed.node_name, "error": str(unanswered)},
            )
            return status
        if pod is None or pod.uid != assumed.pod.uid:
            raise _NotOursError("it was deleted")
        if pod.node_name and pod.node_name != assumed.node_name:
            raise _NotOursError(f"it is bound to {pod.node_name}")
        if not pod.node_name:
            return status
        logger.info(
            "Pod was bound although the response was an error",
            extra={"pod": assumed.pod.key, "node": assumed.node_name, "answer": str(answer)},
        )
        return SUCCESS

    def _note_unanswered(self, assumed: AssumedPod, error: SchedulerError) -> None:
        if self._shared.profiles.shards is not None and isinstance(error, ApiError) and error.is_unclear:
            self._shared.profiles.shards.unanswered(assumed.pod, assumed.node_name)

    # The end of a binding.

    def _bound(self, assumed: AssumedPod) -> None:
        attempt = assumed.attempt
        self._queue.done(assumed.pod.uid)
        if assumed.group is not None:
            assumed.group.bound(assumed.pod)
        now = self._clock.monotonic()
        first = attempt.queued.initial_attempt_timestamp
        logger.debug(
            "Successfully bound pod to node", extra={"pod": assumed.pod.key, "node": assumed.node_name}
        )
        self._observer.attempted(attempt.framework.profile, "scheduled", now - attempt.began)
        self._observer.bound(attempt.queued, now - (attempt.began if first is None else first))
        self._reporter.scheduled(attempt.framework.profile, assumed.pod, assumed.node_name)

    def _bound_by_another(self, assumed: AssumedPod) -> None:
        """End the attempt at a pod that another replica bound where this one wanted it."""
        self._queue.done(assumed.pod.uid)
        self._cache.forget(assumed.pod.uid)  # it was not placed by this replica
        if assumed.group is not None:
            assumed.group.bound(assumed.pod)

    async def _not_ours(self, assumed: AssumedPod, why: _NotOursError) -> None:
        logger.info("Pod needs no binding any more", extra={"pod": assumed.pod.key, "why": str(why)})
        async with self._undoing_one():
            self._queue.done(assumed.pod.uid)
            self._tell_released(self._take_back(assumed))

    async def _failed(self, assumed: AssumedPod, status: Status) -> None:
        is_partly_bound = assumed.group is not None and assumed.group.lost(assumed.pod, status.message)
        if is_partly_bound and assumed.group is not None:
            name, bound = assumed.group.group.key.name, assumed.group.n_bound
            status = replace(
                status, reasons=(f"pod group {name} is partly bound, {bound} of its pods: {status.message}",)
            )
        async with self._undoing_one():
            forgotten = self._take_back(assumed)
            if status.is_rejected:
                # Its capacity is free for other pods. The event must not requeue the pod itself: it would never wait.
                self._requeue(assumed, status)
                self._tell_released(forgotten, but=assumed.pod.uid)
            else:
                self._tell_released(forgotten)
                self._requeue(assumed, status)
            if is_partly_bound and assumed.attempt.queued.consecutive_errors_count == 1:
                # The first retry has no backoff, because the other members keep their capacity for it.
                self._bus.activate([assumed.pod.uid])
            self._bus.wake()

    @asynccontextmanager
    async def _undoing_one(self) -> AsyncIterator[None]:
        """Wait for the end of a freeze and for other bindings; each is undone in a separate turn of the event loop."""
        async with self._undoing:
            await self._freeze.wait_over()
            yield

    def _take_back(self, assumed: AssumedPod) -> PodInfo | None:
        """Undo reservations and the assumption; return the assumed pod, or None if it is bound to that node.

        The pod is returned even if its capacity was already free, because its reservations were not.
        """
        uid = assumed.pod.uid
        assumed.attempt.framework.run_unreserve(
            assumed.state, assumed.pod, assumed.node_name, of_quotas=bool(assumed.is_passed_on)
        )
        self._waiting_pods.release(uid)
        forgotten, counted = self._cache.forget(uid), self._cache.pod(uid)
        is_there = counted is not None and counted.node_name == assumed.node_name
        return None if is_there else forgotten or assumed.pod

    def _requeue(self, assumed: AssumedPod, status: Status) -> None:
        rejected_by = frozenset({status.plugin}) if status.is_rejected and status.plugin else frozenset[str]()
        if rejected_by:
            status = of_one_node(status)
        self._failures.handle(
            assumed.attempt,
            status,
            unschedulable_plugins=rejected_by,
            pending_plugins=rejected_by if status.code is Code.PENDING else frozenset(),
        )

    def _tell_released(self, forgotten: PodInfo | None, but: str = "") -> None:
        if forgotten is not None:
            self._bus.happened(ASSIGNED_POD_DELETE, forgotten, None, lambda pod: pod.uid != but)


def of_one_node(status: Status) -> Status:
    """Return a rejection with the message for the only remaining node, and with its causes.

    Source:
        kube-scheduler v1.36, framework/types.go, FitError.Error.
    """
    counts = sorted(f"{count} {reason}" for reason, count in Counter(status.reasons).items())
    head = "0/1 nodes are available:"
    message = f"{head} {', '.join(counts)}." if counts else head
    return replace(status, reasons=(message,), origins=status.causes)
