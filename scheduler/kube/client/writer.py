"""All writes of the scheduler: bindings in their own lane, the rest with lower priority.

A bind never waits for a status patch of another pod, nor for an event. There is no fixed rate: see
`AdaptiveLimit`.

Other writes have a limit of 8 in flight, or more as far as binds leave requests free, and 4 while binds wait:
a slow server must handle binds first. Each answered bind allows one extra event. So the events of a burst are
sent as fast as its bindings and follow them by about one answer's time. While the server does not answer
binds, it gets no other writes.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from scheduler.errors import ApiError
from scheduler.kube.client.background import BackgroundLane, Job, JobQueue
from scheduler.kube.client.connection import TIMEOUT
from scheduler.kube.client.resources import PODS
from scheduler.kube.client.status_queue import ObjectStatus, StatusPatch, StatusQueue
from scheduler.kube.http.request import Request
from scheduler.retries import DEFERRED, DEFERRED_SECONDS, Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sized
    from random import Random

    from scheduler.clock import Clock
    from scheduler.framework.capabilities import WantedStatus
    from scheduler.kube.client.background import WorkObserver
    from scheduler.kube.client.requests import Requests
    from scheduler.kube.client.resources import Resource
    from scheduler.kube.client.status_queue import Newest, StatusJob
    from scheduler.kube.http.request import Response
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodCondition

    _Ticket = tuple[int, int]
    """(round, number); the number orders requests by arrival."""

logger = logging.getLogger(__name__)

_QUEUED_TIMES = 2.0
_QUEUED_SECONDS = 0.005
_FORGETTING = 1.0002
"""Factor by which the lowest latency grows with each answer: the server, or the network to it, may have changed."""
_LEARNING = 0.05
"""Weight of a new answer in the average latency, which is measured while the limit is at its initial value."""


class AdaptiveLimit:
    """Grows while answers are quick, at first by one with each answer; shrinks while requests queue or answers are slow.

    There is no fixed rate: a small server is not overloaded and a large one is used fully. Where answers take
    much longer than the lowest latency, requests queue at the server. More concurrent requests would only
    lengthen that queue, in which the watch events of bound pods wait too, and open more connections. So the
    limit shrinks, to its initial value at the least. At the initial value, the average latency is learnt: a
    server that other clients load is slow however few requests this client sends, and without this floor the
    limit would shrink to nothing. No I/O, no clock; the caller reports when each request began and how it
    ended.
    """

    def __init__(self, *, initial: int = 8, maximum: int = 128, slow_seconds: float = 1.0) -> None:
        """Start at an intermediate limit.

        Args:
            initial: the first limit, and the lowest one while requests queue.
            maximum: the highest limit: what a connection pool and a server's queue can take.
            slow_seconds: an answer that takes longer is a sign of too many requests in flight.
        """
        self._value = self._initial = float(initial)
        self._maximum = float(maximum)
        self._slow_seconds = slow_seconds
        self._shrunk_at = float("-inf")
        self._quick_seconds = float("inf")  # recent low latency
        self._is_new = True  # nothing has queued yet

    @property
    def value(self) -> int:
        """The current limit, at least 1."""
        return int(self._value)

    def answered(self, *, started: float, now: float, all_used: bool) -> None:
        """Record an answer.

        Args:
            started: when the request was sent, in seconds of any one clock.
            now: the current time of the same clock.
            all_used: whether the limit delayed other requests; a limit that is not reached does not grow.
        """
        seconds = now - started
        quick = self._quick_seconds
        if self._value <= self._initial and not self._is_new and quick < float("inf"):
            self._quick_seconds += _LEARNING * (seconds - quick)
        else:
            self._quick_seconds = min(seconds, quick * _FORGETTING)
        if seconds > self._slow_seconds:
            self._shrink(0.7, started, now)
        elif self._queues(seconds):
            self._is_new = False
            self._value = max(min(self._initial, self._value), self._value - 1 / self._value)
        elif all_used and started > self._shrunk_at:
            self._value = min(self._maximum, self._value + (1 if self._is_new else 1 / self._value))

    def _queues(self, seconds: float) -> bool:
        """Return whether an answer that took this long waited for other requests."""
        return seconds > _QUEUED_TIMES * self._quick_seconds + _QUEUED_SECONDS

    def overloaded(self, *, started: float, now: float) -> None:
        """Record that the server reported overload, or did not answer in time."""
        self._shrink(0.5, started, now)

    def _shrink(self, factor: float, started: float, now: float) -> None:
        # A request sent before the last shrinking says nothing about the present limit.
        self._is_new = False
        if started > self._shrunk_at:
            self._value = max(1.0, self._value * factor)
            self._shrunk_at = now


class Lane:
    """Sends the requests of its callers' tasks, at once while the limit allows, else in lines that take turns.

    A request that the server defers (429, or 503 with Retry-After: the server did not begin it) stops the
    whole lane for as long as the server asks, and then goes before all later requests.

    Args:
        requests: sends the requests.
        limit: the limit of requests in flight.
    """

    def __init__(self, requests: Requests, limit: AdaptiveLimit) -> None:
        self._requests = requests
        self._limit = limit
        self._numbers = itertools.count()
        self._waiting: list[tuple[_Ticket, asyncio.Future[None]]] = []  # a heap
        self._last: dict[Hashable, int] = {}  # line -> round of its last request, while requests wait
        self._granted = 0  # round of the last started request
        self._in_flight = 0
        self._present = 0
        self._resume: asyncio.TimerHandle | None = None  # set while the server's Retry-After lasts
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def present(self) -> int:
        """The number of requests waiting or in flight."""
        return self._present

    @property
    def is_saturated(self) -> bool:
        """Whether requests wait for the limit."""
        return self._present > self._in_flight

    @property
    def free(self) -> int:
        """How many more requests the limit allows."""
        return max(0, self._limit.value - self._in_flight)

    async def wait_idle(self) -> None:
        """Wait until no request is waiting or in flight."""
        await self._idle.wait()

    async def send(self, request: Request, line: Hashable = None) -> Response:
        """Send one request in its turn, again if the server defers it.

        Args:
            request: the request.
            line: requests of one line are sent in order of arrival. Lines take turns, so that a request of one does
                not wait for thousands of another.

        Raises:
            ApiError: the request failed; 429 after the tries of `DEFERRED`.
        """
        # Each round has one request of each line.
        round_ = self._last[line] = max(self._granted, self._last.get(line, 0)) + 1
        ticket = round_, next(self._numbers)
        self._present += 1
        self._idle.clear()
        try:
            for tries in itertools.count(1):
                its_turn = request
                if self._has_room and not self._waiting:
                    self._in_flight += 1
                    self._granted = round_
                else:
                    its_turn = request.held_back(await self._wait_turn(ticket))
                try:
                    return await self._send_once(its_turn)
                except ApiError as error:
                    if not DEFERRED.allows(error, tries):
                        raise
                finally:
                    self._in_flight -= 1
                    self._grant()
            raise AssertionError("counting ends nowhere")
        finally:
            self._present -= 1
            if not self._present:
                self._idle.set()

    @property
    def _has_room(self) -> bool:
        return self._resume is None and self._in_flight < self._limit.value

    async def _send_once(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            response = await self._requests.send(request)
        except ApiError as error:
            if error.is_deferred:
                seconds = error.retry_after_seconds
                self._stop(DEFERRED_SECONDS if seconds is None else seconds)
            if error.is_deferred or error.reason == TIMEOUT:
                self._limit.overloaded(started=started, now=loop.time())
            raise
        self._limit.answered(started=started, now=loop.time(), all_used=self.is_saturated)
        return response

    async def _wait_turn(self, ticket: _Ticket) -> float:
        """Wait until the limit allows the request and count it as in flight; return the seconds waited."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        turn: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (ticket, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._in_flight -= 1
                self._grant()
            raise
        return loop.time() - began

    def _grant(self) -> None:
        """Let requests start in turn as far as the limit allows, unless the server asked to wait."""
        while self._waiting and self._has_room:
            (round_, _), turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._granted = round_
                turn.set_result(None)
                self._in_flight += 1
        if not self._waiting:
            self._last.clear()

    def _stop(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        resume_at = loop.time() + seconds
        if self._resume is not None:
            if resume_at <= self._resume.when():
                return
            self._resume.cancel()
        self._resume = loop.call_at(resume_at, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self._grant()


STATUS_CAPACITY = 50_000
"""Maximum number of pods with a waiting status patch; further pods get theirs after the next attempt."""
EVENT_CAPACITY = 10_000
"""Maximum number of waiting events: enough for a large burst of pods, at about 2 KB each."""
_PLACES = 8
_PLACES_WHILE_BINDS_WAIT = 4


class _PodMeta(msgspec.Struct, frozen=True, gc=False):
    name: str
    namespace: str
    uid: str


class _Target(msgspec.Struct, frozen=True, gc=False):
    name: str
    kind: str = "Node"


class _Binding(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: _PodMeta
    target: _Target
    kind: str = "Binding"
    api_version: str = "v1"


class _DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    preconditions: dict[str, str]
    kind: str = "DeleteOptions"
    api_version: str = "v1"


_encode = msgspec.json.Encoder().encode


class WriterObserver(Protocol):
    """Counts binds, dropped writes and the jobs of queues."""

    def bind_answered(self, status: int, seconds: float) -> None:
        """Count a bind that ended: the HTTP status, 0 without an answer, and the total time in seconds."""
        ...

    def dropped(self, queue: str) -> None:
        """Count a write that a full queue dropped: queue `status` or `events`."""
        ...

    def work_queue(self, name: str, queue: Sized, clock: Clock) -> WorkObserver:
        """Return the observer of a queue's jobs; the queue's length is the number of waiting jobs."""
        ...


class ApiWriter:
    """Writes to the API server. An async context manager; call `drain` before leaving it to lose nothing.

    Args:
        connection: sends the requests.
        clock: measures the time of binds.
        random: for jitter.
        newest: `namespace/name` -> the pod as last seen, which decides whether a patch is outdated.
        observer: counts the writes.
    """

    def __init__(
        self,
        connection: Requests,
        clock: Clock,
        *,
        random: Random,
        newest: Newest = lambda _: None,
        observer: WriterObserver | None = None,
    ) -> None:
        self._clock = clock
        self._newest = newest
        self._observer = observer
        self._binds = Lane(connection, AdaptiveLimit())
        self._deletes = Lane(connection, AdaptiveLimit())
        self._status = StatusQueue(STATUS_CAPACITY)
        self._events: JobQueue[Job] = JobQueue("events", EVENT_CAPACITY)
        if observer is not None:
            for queue in (self._status, self._events):
                queue.observer = observer.work_queue(queue.name, queue, clock)
        self._background = BackgroundLane(
            connection,
            [self._status, self._events],
            places=self._background_places,
            backoff=Backoff(random, initial_seconds=0.05, maximum_seconds=10.0),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._background.close()

    def pending(self) -> dict[str, int]:
        """Return the number of writes of each kind that wait or are in flight."""
        return {
            "binds": self._binds.present,
            "status": len(self._status) + self._status.in_flight,
            "events": len(self._events) + self._events.in_flight,
        }

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod to a node.

        The members of pod groups take turns with other pods, which do not wait for hundreds of them.
        Waiting status patches of its failed attempts are dropped, and one in flight is awaited: after the
        bind it would be wrong.

        Raises:
            ApiError: refused (409: already bound, or another pod of that name; 404: deleted); with status 0,
                no answer came, and the bind may have taken effect.
        """
        started = self._clock.monotonic()
        if self._status.is_pending(pod.uid):
            await self._status.withdraw(pod.uid)
        body = _encode(_Binding(_PodMeta(pod.name, pod.namespace, pod.uid), _Target(node_name)))
        status = 0
        try:
            request = Request("POST", PODS.path(pod.namespace, pod.name, "binding"), body)
            answer = await self._binds.send(request, line=pod.group is not None)
            status = answer.status
        except ApiError as error:
            status = error.status
            raise
        finally:
            if self._observer is not None:
                self._observer.bind_answered(status, self._clock.monotonic() - started)
            if status:
                self._background.allow_one_extra()

    def patch_pod_status(
        self,
        pod: PodInfo,
        *,
        condition: PodCondition | None = None,
        nominated_node_name: str | None = None,
    ) -> bool:
        """Queue a patch of a pod's status; a failure is logged.

        Several waiting patches of one pod are merged: the newest value of each field wins.

        Args:
            pod: the pod as last seen.
            condition: wanted; its observed generation is filled in. None to leave all.
            nominated_node_name: wanted; "" to clear it, None to leave it.

        Returns:
            Whether a patch was queued: there was a difference, and the queue was not full.
        """
        patch = self._status_patch(pod, condition, nominated_node_name)
        if patch.body() is None and not self._status.is_pending(pod.uid):
            return False
        return self._queue_status(patch)

    async def wait_pod_status_patched(
        self,
        pod: PodInfo,
        *,
        condition: PodCondition | None = None,
        nominated_node_name: str | None = None,
    ) -> int:
        """Patch a pod's status as `patch_pod_status` does, and wait for the result.

        Returns:
            The version of the pod that has the status; 0 if nothing was written.

        Raises:
            ApiError: the patch failed; status 429 without a request if the queue is full.
        """
        patch = self._status_patch(pod, condition, nominated_node_name)
        if patch.body() is None and not self._status.is_pending(pod.uid):
            return 0
        written = await self._wait_written(patch)
        metadata = {} if written is None else written.get("metadata") or {}
        return int(metadata.get("resourceVersion") or 0)

    async def write_status(
        self,
        resource: Resource,
        about: str,
        uid: str,
        wanted: WantedStatus,
        *,
        condition_types: Collection[str],
        newest: Callable[[], Mapping[str, Any] | None],
    ) -> Mapping[str, Any] | None:
        """Write the status of an object that is not a pod, and wait for the result; see `ObjectStatus`.

        If several statuses of one object wait, only the newest is written.

        Returns:
            The object as written; None if it does not exist any more.

        Raises:
            ApiError: the write failed; status 429 without a request if the queue is full.
        """
        job = ObjectStatus(self._clock, resource, about, uid, wanted, condition_types, newest)
        try:
            return await self._wait_written(job)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def delete_pod(self, pod: PodInfo) -> Response:
        """Delete a pod gracefully, if it is still this pod.

        Raises:
            ApiError: refused (404: deleted; 409: another pod of that name), or no answer.
        """
        body = _encode(_DeleteOptions({"uid": pod.uid}))
        return await self._deletes.send(Request("DELETE", PODS.path(pod.namespace, pod.name), body))

    def queue_event(self, job: Job) -> bool:
        """Queue an event to be sent in the background; return False if the queue is full."""
        if not self._events.put(job):
            self._count_drop("events")
            return False
        self._background.wake()
        return True

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until all binds, then all status patches, then all events are written.

        Returns:
            False after the timeout; unfinished writes are logged.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._binds.wait_idle()
                await self._deletes.wait_idle()
                await self._status.wait_idle()
                await self._events.wait_idle()
        except TimeoutError:
            logger.warning("Writes were left unfinished", extra={"pending": self.pending()})
            return False
        return True

    def _status_patch(
        self, pod: PodInfo, condition: PodCondition | None, nominated_node_name: str | None
    ) -> StatusPatch:
        return StatusPatch(
            self._clock, pod, condition, nominated_node_name, self._newest, self._status.unseen
        )

    def _queue_status(self, patch: StatusJob) -> bool:
        if not self._status.put(patch):
            self._count_drop("status")
            return False
        self._background.wake()
        return True

    async def _wait_written(self, job: StatusJob) -> Mapping[str, Any] | None:
        """Queue a status, and return the object as written; raises ApiError."""
        done: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()
        job.waiters.append(done)
        if not self._queue_status(job):
            raise ApiError(429, "", f"patch of {job.about}: the queue of status patches is full")
        return await done

    def _background_places(self) -> int:
        return _PLACES_WHILE_BINDS_WAIT if self._binds.is_saturated else max(_PLACES, self._binds.free)

    def _count_drop(self, queue: str) -> None:
        if self._observer is not None:
            self._observer.dropped(queue)
