"""Pending status patches: at most one of a pod, the newest wish winning."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from scheduler.client.background import JobQueue
from scheduler.client.http.request import STRATEGIC_MERGE_PATCH, Request
from scheduler.client.resources import PODS
from scheduler.client.status_patch import status_patch

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.client.requests import Requests
    from scheduler.clock import Clock
    from scheduler.errors import ApiError
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodCondition

    Newest = Callable[[str], PodInfo | None]

_MAX_TRIES = 12
# Refused, but the next try may find it otherwise.
_RETRIED = frozenset({0, 409, 429, 500, 502, 503, 504})


class StatusPatch:
    """What one pod's status should say.

    Args:
        newest: `namespace/name` -> the pod's last version that could be read, None if there is none.
    """

    def __init__(
        self,
        clock: Clock,
        pod: PodInfo,
        condition: PodCondition | None,
        nominated_node_name: str | None,
        newest: Newest,
    ) -> None:
        self.about = pod.key
        self.pod = pod
        self.conditions = {} if condition is None else {condition.type: condition}
        self.nominated_node_name = nominated_node_name
        self.waiters: list[asyncio.Future[None]] = []
        self._clock = clock
        self._newest = newest
        self._tries = 0

    def body(self) -> bytes | None:
        """Return the patch, None if there is nothing to change."""
        return status_patch(
            self.pod, self.conditions.values(), self.nominated_node_name, self._clock.utc_now()
        )

    def replace(self, older: StatusPatch) -> None:
        """Take over from an older wish what this one leaves open.

        Source:
            kube-scheduler v1.36, framework/api_calls/pod_status_patch.go, Merge.
        """
        self.conditions = older.conditions | self.conditions
        if self.nominated_node_name is None:
            self.nominated_node_name = older.nominated_node_name
        self.waiters = older.waiters + self.waiters

    async def send(self, connection: Requests) -> None:
        body = self.body()
        if body is not None and not self._is_outdated():
            path = PODS.path(self.pod.namespace, self.pod.name, "status")
            await connection.send(Request("PATCH", path, body, STRATEGIC_MERGE_PATCH))

    def _is_outdated(self) -> bool:
        """Whether it would be said of another pod by that name, or of one that somebody has bound meanwhile."""
        newest = self._newest(self.about)
        if newest is None:  # no version of it could be read, or it is gone, which does no harm
            return False
        return newest.uid != self.pod.uid or bool(newest.node_name and not self.pod.node_name)

    def should_retry(self, error: ApiError) -> bool:
        self._tries += 1
        return error.status in _RETRIED and self._tries < _MAX_TRIES

    def finished(self, error: ApiError | None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


class StatusQueue(JobQueue[StatusPatch]):
    """Status patches by pod; of one pod at most one is under way."""

    def __init__(self, capacity: int) -> None:
        super().__init__("status", capacity)
        self._by_uid: OrderedDict[str, StatusPatch] = OrderedDict()  # pod uid -> what waits
        self._sent: dict[str, asyncio.Event] = {}  # pod uid -> set when what is under way has ended

    def __len__(self) -> int:
        return len(self._by_uid)

    def put(self, job: StatusPatch) -> bool:
        older = self._by_uid.get(job.pod.uid)
        if older is None:
            return super().put(job)
        job.replace(older)
        self._append(job)
        return True

    def put_back(self, job: StatusPatch) -> None:
        super().put_back(job)
        self._sent.pop(job.pod.uid).set()

    def done(self, job: StatusPatch) -> None:
        super().done(job)
        self._sent.pop(job.pod.uid).set()

    def is_pending(self, uid: str) -> bool:
        """Whether something waits to be said of a pod or is being said."""
        return uid in self._by_uid or uid in self._sent

    async def withdraw(self, uid: str) -> None:
        """Drop what waits to be said of a pod, and wait for the end of what is being said."""
        while True:
            job = self._by_uid.pop(uid, None)
            if job is not None:
                self.observer.withdrawn(uid)
                job.finished(None)
                self._note_if_idle()
            sent = self._sent.get(uid)
            if sent is None:
                return
            await sent.wait()

    def _key(self, job: StatusPatch) -> str:
        return job.pod.uid

    def _append(self, job: StatusPatch) -> None:
        self._by_uid[job.pod.uid] = job

    def _pop(self) -> StatusPatch | None:
        if not self._by_uid:
            return None
        uid = next((uid for uid in self._by_uid if uid not in self._sent), None)
        if uid is None:
            return None
        self._sent[uid] = asyncio.Event()
        return self._by_uid.pop(uid)

    def _push_front(self, job: StatusPatch) -> None:
        newer = self._by_uid.get(job.pod.uid)
        if newer is not None:
            newer.replace(job)
        else:
            self._by_uid[job.pod.uid] = job
            self._by_uid.move_to_end(job.pod.uid, last=False)
