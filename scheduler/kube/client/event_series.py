"""One event and its series, as written to the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from scheduler.clock import rfc3339_micro
from scheduler.errors import ApiError
from scheduler.kube.client.resources import EVENTS
from scheduler.kube.http.request import STRATEGIC_MERGE_PATCH, Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from scheduler.kube.client.requests import Requests

_MAX_TRIES = 12
_encode = msgspec.json.Encoder().encode


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """v1.ObjectReference: the object that an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class EventMetadata(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a new event."""

    name: str
    namespace: str


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    count: int
    last_observed_time: str


class EventBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """An events.k8s.io/v1 Event; a struct instead of a dict, because very many are held for some minutes."""

    kind: str
    api_version: str
    metadata: EventMetadata
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: ObjectReference
    note: str
    type: str
    related: ObjectReference | None = None
    series: _Series | None = None


@dataclass(eq=False, slots=True)
class EventSeries:
    """One event, and how often it happened.

    Attributes:
        body: the event as written.
        last_observed: time of its last occurrence, for people.
        observed_at: the same on the monotonic clock, which does not jump.
        count: number of occurrences.
    """

    body: EventBody
    last_observed: datetime
    observed_at: float
    _queue: Callable[[EventSeries], bool]
    count: int = 1
    _is_created: bool = False
    _sent_count: int = 0
    _tries: int = 0
    _waits: bool = False
    _is_sending: bool = False

    @property
    def about(self) -> str:
        return f"{self.body.regarding.namespace}/{self.body.regarding.name}"

    def finish(self) -> None:
        """Queue the last count, unless the server knows it."""
        if self.count > 1 and self.count > self._sent_count:
            self.queue()

    def queue(self) -> bool:
        """Queue the event; it is sent with the count at that time. Return False if the queue is full."""
        if not self._waits and not self._is_sending:
            self._waits = self._queue(self)
        return self._waits or self._is_sending

    async def send(self, connection: Requests) -> None:
        self._waits, self._is_sending = False, True
        count = self.count
        if self._is_created:
            try:
                await self._patch(connection)
            except ApiError as error:
                if error.status != 404:
                    raise
                await self._create(connection)  # the event has expired
        else:
            try:
                await self._create(connection)
            except ApiError as error:
                if error.status != 409:
                    raise
                # An earlier try created it, but the answer was lost.
                if count > 1:
                    await self._patch(connection)
        self._is_created = True
        self._sent_count = count

    def should_retry(self, error: ApiError) -> bool:
        self._is_sending = False
        self._tries += 1
        self._waits = error.is_transient and self._tries < _MAX_TRIES
        return self._waits

    def finished(self, error: ApiError | None) -> None:
        self._is_sending = False
        self._tries = 0
        if error is None and self.count > 1 and self._sent_count == 1:
            self.queue()  # it happened again during the sending

    async def _create(self, connection: Requests) -> None:
        body = self.body
        if self.count > 1:
            body = msgspec.structs.replace(body, series=self._series())
        path = EVENTS.path(body.metadata.namespace)
        await connection.send(Request("POST", path, _encode(body)))

    async def _patch(self, connection: Requests) -> None:
        path = EVENTS.path(self.body.metadata.namespace, self.body.metadata.name)
        body = _encode({"series": self._series()})
        await connection.send(Request("PATCH", path, body, STRATEGIC_MERGE_PATCH))

    def _series(self) -> _Series:
        return _Series(self.count, rfc3339_micro(self.last_observed))
