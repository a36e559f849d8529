"""The lane for writes that can wait, status patches before events; it never delays binds."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from scheduler.errors import ApiError, NotLeadingError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from scheduler.kube.client.requests import Requests
    from scheduler.retries import Backoff

logger = logging.getLogger(__name__)


class Job(Protocol):
    """One write."""

    @property
    def about(self) -> str:
        """The key of the object that the job writes, for logs."""
        ...

    async def send(self, connection: Requests) -> None:
        """Write the object in its state at the time of sending.

        Raises:
            ApiError: the write failed.
        """
        ...

    def should_retry(self, error: ApiError) -> bool:
        """Return whether to send the job again after an error; also counts the tries."""
        ...

    def finished(self, error: ApiError | None) -> None:
        """Handle the end of the job: it was written, or given up with an error."""
        ...


class WorkObserver(Protocol):
    """Counts the jobs of a queue; each job has a key that is unique in the queue."""

    def added(self, key: Hashable) -> None:
        """A job was queued, or is to be sent again."""
        ...

    def withdrawn(self, key: Hashable) -> None:
        """A waiting job was withdrawn."""
        ...

    def taken(self, key: Hashable) -> None:
        """A waiting job is being sent."""
        ...

    def done(self, key: Hashable) -> None:
        """A job was sent, or given up."""
        ...

    def retried(self, key: Hashable) -> None:
        """A job failed, and will be sent again."""
        ...


class NoWorkObserver:
    """Counts nothing."""

    def added(self, key: Hashable) -> None: ...
    def withdrawn(self, key: Hashable) -> None: ...
    def taken(self, key: Hashable) -> None: ...
    def done(self, key: Hashable) -> None: ...
    def retried(self, key: Hashable) -> None: ...


J = TypeVar("J", bound=Job)
_Next: TypeAlias = "tuple[JobQueue[Any], Job]"

_MAX_EXTRA = 128
"""Maximum number of jobs of the last queue in flight beyond the limit."""


class JobQueue(Generic[J]):
    """Jobs of one kind, first in, first out, with a bounded length.

    Attributes:
        name: the queue's name in logs and metrics.
        dropped: the number of jobs that were dropped because the queue was full.
        in_flight: the number of jobs taken and not yet done.
        observer: is notified of every job; set it before the first job.
    """

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.dropped = 0
        self.in_flight = 0
        self.observer: WorkObserver = NoWorkObserver()
        self._capacity = capacity
        self._jobs: deque[J] = deque()
        self._is_dropping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: J) -> bool:
        """Queue a job; return False if the queue is full."""
        if len(self) >= self._capacity:
            self.dropped += 1
            if not self._is_dropping:
                self._is_dropping = True
                logger.warning(
                    "Write queue is full, dropping",
                    extra={"queue": self.name, "capacity": self._capacity, "object": job.about},
                )
            return False
        self._append(job)
        self.observer.added(self._key(job))
        self._idle.clear()
        return True

    def take(self) -> J | None:
        """Take the next job to send; None if there is none."""
        job = self._pop()
        if job is None:
            return None
        self.in_flight += 1
        self.observer.taken(self._key(job))
        if self._is_dropping and len(self) <= self._capacity // 2:
            self._is_dropping = False
            logger.warning(
                "Write queue has free capacity again",
                extra={"queue": self.name, "dropped_in_all": self.dropped},
            )
        return job

    def put_back(self, job: J) -> None:
        """Return a job to the front of the queue, to be sent again."""
        self.in_flight -= 1
        key = self._key(job)
        self.observer.retried(key)
        self.observer.added(key)
        self._push_front(job)

    def done(self, job: J) -> None:
        """Forget a job that was taken."""
        self.in_flight -= 1
        self.observer.done(self._key(job))
        self._note_if_idle()

    async def wait_idle(self) -> None:
        """Wait until no job is queued or in flight."""
        while not self._idle.is_set():
            await self._idle.wait()

    def _note_if_idle(self) -> None:
        if len(self) == 0 and self.in_flight == 0:
            self._idle.set()

    def _key(self, job: J) -> Hashable:
        return id(job)

    def _append(self, job: J) -> None:
        self._jobs.append(job)

    def _pop(self) -> J | None:
        return self._jobs.popleft() if self._jobs else None

    def _push_front(self, job: J) -> None:
        self._jobs.appendleft(job)


class BackgroundLane:
    """Sends the jobs of several queues, in the order of the queues.

    The first queues leave one slot free, so that a flood of patches does not stop the last queue, the events.
    `allow_one_extra` lets one extra job of the last queue start beyond the limit. When the server is overloaded or
    unreachable, all jobs wait together.

    Long-lived tasks send the jobs, as many as were ever in flight at a time.
    """

    def __init__(
        self,
        connection: Requests,
        queues: Sequence[JobQueue[Any]],
        *,
        places: Callable[[], int],
        backoff: Backoff,
    ) -> None:
        """Prepare an idle lane.

        Args:
            connection: to the API server.
            queues: the most urgent one first.
            places: returns how many jobs may be in flight now, at least 2.
            backoff: between tries while the server does not answer.
        """
        self._connection = connection
        self._queues = queues
        self._places = places
        self._backoff = backoff
        self._senders: set[asyncio.Task[None]] = set()
        self._asleep: list[asyncio.Future[_Next]] = []  # senders without a job
        self._is_closed = False
        self._busy = 0
        self._extra = 0
        self._resume: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Start as many jobs as the limit allows; call this after queueing a job, or when the limit may have grown."""
        while not self._is_closed and (turn := self._next()) is not None:
            self._busy += 1
            if self._asleep:
                self._asleep.pop().set_result(turn)
            else:
                sender = asyncio.create_task(self._send(turn), name=f"background writes {len(self._senders)}")
                self._senders.add(sender)

    def allow_one_extra(self) -> None:
        """Allow one extra job of the last queue beyond the limit, now or as soon as there is one."""
        self._extra = min(self._extra + 1, _MAX_EXTRA)
        self.wake()

    async def close(self) -> None:
        """Drop all jobs, and start none any more."""
        self._is_closed = True
        if self._resume is not None:
            self._resume.cancel()
        self._asleep.clear()
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

    def _next(self) -> _Next | None:
        """Take the next job that may start."""
        if self._resume is not None or not any(self._queues):
            return None
        *urgent, last = self._queues
        places = self._places()
        free = places - self._busy
        if free > 0:
            self._extra = 0
            for queue in urgent:
                if queue.in_flight < places - 1 and (job := queue.take()) is not None:
                    return queue, job
        elif not self._extra or free <= -_MAX_EXTRA:
            return None
        job = last.take()
        if job is None:
            return None
        if free <= 0:
            self._extra -= 1
        return last, job

    async def _send(self, turn: _Next) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._carry_out(*turn)
            finally:
                self._busy -= 1
            next_turn = self._next()
            if next_turn is None:
                asleep: asyncio.Future[_Next] = loop.create_future()
                self._asleep.append(asleep)
                turn = await asleep
            else:
                self._busy += 1
                turn = next_turn
                self.wake()  # the limit may have grown

    async def _carry_out(self, queue: JobQueue[Any], job: Job) -> None:
        failure: ApiError | None = None
        try:
            await job.send(self._connection)
            self._backoff.reset()
        except ApiError as error:
            if job.should_retry(error):
                queue.put_back(job)
                self._wait(error)
                return
            # The object was deleted meanwhile, or another leader writes it now.
            is_expected = error.status == 404 or isinstance(error, NotLeadingError)
            logger.log(
                logging.DEBUG if is_expected else logging.WARNING,
                "Write was given up",
                extra={"queue": queue.name, "object": job.about, "status": error.status, "error": str(error)},
            )
            failure = error.with_traceback(None)  # it refers to this frame, and so to the job and its pod
        except Exception as error:
            # A bug in one write must not stop the writes behind it.
            logger.exception("Write failed", extra={"queue": queue.name, "object": job.about})
            failure = ApiError(0, "InternalError", f"{job.about}: {error!r}")
        queue.done(job)
        job.finished(failure)  # may queue the job again

    def _wait(self, error: ApiError) -> None:
        """Start no job for a while."""
        seconds = error.pause_seconds(self._backoff.next_seconds())
        loop = asyncio.get_running_loop()
        if self._resume is not None:
            if self._resume.when() >= loop.time() + seconds:
                return
            self._resume.cancel()
        self._resume = loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self.wake()
