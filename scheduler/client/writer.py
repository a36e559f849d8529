"""Everything the scheduler writes: bindings in a lane of their own, the rest when there is room.

A bind never waits for a status patch of another pod, nor for an event. There is no fixed rate: see
`adaptive_limit`.

The rest has 8 places, or those that binds leave free, and 4 while binds wait for one of theirs: a server that is slow is
to bind first. But each bind that was answered lets one event out beyond these. So the events of a burst go out as fast as
its bindings do and follow them by about one answer's time, and where binds are not answered, nothing else is asked of the
server.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from scheduler.client.adaptive_limit import AdaptiveLimit
from scheduler.client.background import BackgroundLane, Job, JobQueue
from scheduler.client.backoff import Backoff
from scheduler.client.http.request import Request
from scheduler.client.lane import Lane
from scheduler.client.resources import PODS
from scheduler.client.status_queue import StatusPatch, StatusQueue
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sized
    from random import Random

    from scheduler.client.background import WorkObserver
    from scheduler.client.http.request import Response
    from scheduler.client.requests import Requests
    from scheduler.client.status_queue import Newest
    from scheduler.clock import Clock
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodCondition

logger = logging.getLogger(__name__)

STATUS_CAPACITY = 50_000
"""How many pods' status may wait to be patched; beyond it a pod waits for its next attempt to say why."""
EVENT_CAPACITY = 10_000
"""How many events may wait: what a large burst of pods needs, at about 2 KB each."""
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
    """Who counts."""

    def bind_answered(self, status: int, seconds: float) -> None:
        """Count a bind that ended: the HTTP status, 0 without an answer, and how long it took in all."""
        ...

    def dropped(self, queue: str) -> None:
        """Count a write for which there was no room: queue `status` or `events`."""
        ...

    def work_queue(self, name: str, queue: Sized, clock: Clock) -> WorkObserver:
        """Return who counts the jobs of a queue, by whose length as many wait."""
        ...


class ApiWriter:
    """Writes to the API server. An async context manager; `drain` before leaving it loses nothing.

    Args:
        newest: `namespace/name` -> the pod as last seen: what is not so any more is not written.
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
        """Return how many writes of each kind wait or are under way."""
        return {
            "binds": self._binds.present,
            "status": len(self._status) + self._status.in_flight,
            "events": len(self._events) + self._events.in_flight,
        }

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod to a node.

        The members of pod groups take turns with other pods, which do not wait for hundreds of them.
        What waited to be said of its failed attempts is dropped, and what is being said at this moment is
        waited for: after the bind it would be wrong.

        Raises:
            ApiError: refused (409: bound already, or another pod by now; 404: deleted); with status 0 there
                was no answer, and the bind may have taken effect.
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
                self._background.lend()

    def patch_pod_status(
        self,
        pod: PodInfo,
        *,
        condition: PodCondition | None = None,
        nominated_node_name: str | None = None,
    ) -> bool:
        """Queue a patch of a pod's status; a failure is logged.

        Of several patches of one pod that wait, the newest wins, field by field.

        Args:
            pod: as last seen.
            condition: wanted; its observed generation is filled in. None to leave all.
            nominated_node_name: wanted; "" to clear it, None to leave it.

        Returns:
            Whether there was anything to change and room to queue it.
        """
        return self._queue_status(self._status_patch(pod, condition, nominated_node_name))

    async def wait_pod_status_patched(
        self,
        pod: PodInfo,
        *,
        condition: PodCondition | None = None,
        nominated_node_name: str | None = None,
    ) -> None:
        """Patch a pod's status as `patch_pod_status`, and wait until it is done.

        Raises:
            ApiError: it was not; status 429 without asking if there was no room to queue it.
        """
        patch = self._status_patch(pod, condition, nominated_node_name)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        patch.waiters.append(done)
        if self._queue_status(patch):
            await done
        elif patch.body() is not None:
            raise ApiError(429, "", f"patch of {pod.key}: too many status patches wait already")

    async def delete_pod(self, pod: PodInfo) -> Response:
        """Delete a pod gracefully, if it is still this pod.

        Raises:
            ApiError: refused (404: gone; 409: another pod by that name), or without an answer.
        """
        body = _encode(_DeleteOptions({"uid": pod.uid}))
        return await self._deletes.send(Request("DELETE", PODS.path(pod.namespace, pod.name), body))

    def queue_event(self, job: Job) -> bool:
        """Queue an event to be sent when there is time; False if there is no room."""
        if not self._events.put(job):
            self._count_drop("events")
            return False
        self._background.wake()
        return True

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until all binds, then all status patches, then all events are written.

        Returns:
            False if the time was not enough; what is left is logged.
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

    def _queue_status(self, patch: StatusPatch) -> bool:
        if patch.body() is None and not self._status.is_pending(patch.pod.uid):
            return False
        if not self._status.put(patch):
            self._count_drop("status")
            return False
        self._background.wake()
        return True

    def _background_places(self) -> int:
        return _PLACES_WHILE_BINDS_WAIT if self._binds.is_crowded else max(_PLACES, self._binds.free)

    def _count_drop(self, queue: str) -> None:
        if self._observer is not None:
            self._observer.dropped(queue)
