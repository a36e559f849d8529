"""The change from several active replicas to one leader: no pod is placed before the replicas have stopped.

During a rolling upgrade, replicas with sharding still run when a process without it becomes the leader.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from scheduler.daemon.sharding.assignment_object import FORMER, decode, encode
from scheduler.engine.sharding.buckets import BUCKETS
from scheduler.engine.sharding.holding import NOBODY
from scheduler.errors import ApiError, ObjectError
from scheduler.kube.client.resources import SHARD_ASSIGNMENTS
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scheduler.configuration.types import LeaderElection
    from scheduler.daemon.sharding.assignment_object import AssignmentObject
    from scheduler.kube.client.connection import ApiConnection

logger = logging.getLogger(__name__)

T = TypeVar("T")
_AGAIN_SECONDS: Final = 2.0
_TICK_SECONDS: Final = 0.1
_SECONDS: Final = 5.0


class FormerReplicas:
    """The replicas of an earlier configuration with sharding.

    Args:
        connection: to the API server.
        settings: the leader election; the assignment has the name of its Lease.
        check: raises NotLeadingError if this process does not lead.
        pods_version: returns the resourceVersion that the watch of pods has reached.
    """

    def __init__(
        self,
        connection: ApiConnection,
        settings: LeaderElection,
        *,
        check: Callable[[], None],
        pods_version: Callable[[], int],
    ) -> None:
        self._connection = connection
        self._name, self._namespace = settings.resource_name, settings.resource_namespace
        self._lease_seconds = settings.lease_duration.seconds
        self._check = check
        self._pods_version = pods_version
        self._path = SHARD_ASSIGNMENTS.path(name=self._name)
        self._told = ""  # the last logged error

    async def end(self) -> None:
        """Return when no replica uses a bucket and the cache has all their Bindings; call this while this process leads.

        First all buckets get a holder that stands for all replicas. A replica may use its buckets for the renew deadline after
        it read the assignment, so after the lease duration no replica uses one, even if it was stopped meanwhile.
        """
        found = await self._until_answered(self._read)
        if found is None or not {*found.assignment.wanted, *found.assignment.held} - {NOBODY}:
            return
        await self._until_answered(lambda: self._write(FORMER))
        logger.warning(
            "Replicas with sharding placed pods before; waiting for the lease duration until they have stopped",
            extra={"assignment": self._name, "seconds": self._lease_seconds},
        )
        await asyncio.sleep(self._lease_seconds)
        version = await self._until_answered(lambda: self._write(NOBODY))
        while self._pods_version() < version:  # noqa: ASYNC110 - in a quiet cluster until the next bookmark
            await asyncio.sleep(_TICK_SECONDS)

    async def _read(self) -> AssignmentObject | None:
        """Return the assignment; None if there is none of this scheduler, or if this process may not read it.

        Raises:
            ApiError: no answer, or another refusal.
            ObjectError: the assignment is invalid.
        """
        try:
            answer = await self._connection.send(Request("GET", self._path, timeout_seconds=_SECONDS))
        except ApiError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN}:
                raise
            if error.status == HTTPStatus.FORBIDDEN:
                self._tell(
                    "The assignment of buckets may not be read; no replica with sharding may run", error
                )
            return None
        found = decode(answer.body)
        return found if found.namespace == self._namespace else None

    async def _write(self, holder: str) -> int:
        """Reserve all buckets for a holder, and remove the wanted owners; return the version, or 0 without an assignment."""
        found = await self._read()
        if found is None:
            return 0
        body = encode(self._name, self._namespace, [NOBODY] * BUCKETS, [holder] * BUCKETS, found.raw)
        request = Request("PUT", self._path, body, timeout_seconds=_SECONDS)
        answer = await self._connection.send(request, before_sending=self._check)
        return decode(answer.body).assignment.version

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except (ApiError, ObjectError) as error:
                self._tell("No pods are placed before the assignment of buckets is read and written", error)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _tell(self, message: str, error: ApiError | ObjectError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            logger.warning(message, extra={"assignment": self._name, "error": str(error)})
