"""Writes to an API server: those of one object in their order, those of several objects at a time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from scheduler.errors import ApiError
from scheduler.kube.client.background import JobQueue
from scheduler.retries import RetryPolicy

if TYPE_CHECKING:
    from scheduler.kube.client.requests import Requests
    from scheduler.kube.http.request import Request

_RETRIES: Final = RetryPolicy()
_CAPACITY: Final = 100_000


class Write:
    """One write.

    Args:
        about: the kind and the key of the object.
        request: the request.
        replaces: whether a waiting write of the object, with the same attribute, need not be sent any more.
        expected: status of an error that is ignored; 0 for none.
    """

    def __init__(self, about: str, request: Request, *, replaces: bool = False, expected: int = 0) -> None:
        self.about = about
        self.replaces = replaces
        self._request = request
        self._expected = expected
        self._tries = 0

    async def send(self, connection: Requests) -> None:
        try:
            await connection.send(self._request)
        except ApiError as error:
            if error.status != self._expected:
                raise

    def should_retry(self, error: ApiError) -> bool:
        self._tries += 1
        return _RETRIES.allows(error, self._tries)

    def finished(self, error: ApiError | None) -> None:
        """Do nothing: the lane logs errors."""


class OrderedWrites(JobQueue[Write]):
    """Waiting writes by object; at most one write of an object is in flight."""

    def __init__(self) -> None:
        super().__init__("writes", _CAPACITY)
        self._waiting: dict[str, deque[Write]] = {}  # object -> its writes
        self._sent: set[str] = set()  # objects with a write in flight
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put_back(self, job: Write) -> None:
        self._sent.discard(job.about)
        super().put_back(job)

    def done(self, job: Write) -> None:
        self._sent.discard(job.about)
        super().done(job)

    def _append(self, job: Write) -> None:
        waiting = self._waiting.setdefault(job.about, deque())
        if job.replaces and waiting and waiting[-1].replaces:
            waiting[-1] = job
            return
        waiting.append(job)
        self._count += 1

    def _pop(self) -> Write | None:
        about = next((about for about in self._waiting if about not in self._sent), None)
        if about is None:
            return None
        waiting = self._waiting[about]
        job = waiting.popleft()
        if not waiting:
            del self._waiting[about]
        self._sent.add(about)
        self._count -= 1
        return job

    def _push_front(self, job: Write) -> None:
        self._waiting.setdefault(job.about, deque()).appendleft(job)
        self._count += 1
