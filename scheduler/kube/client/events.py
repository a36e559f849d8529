"""Events about pods and other objects, and their series, as `kubectl describe` shows them: events.k8s.io/v1.

A repeated event becomes a series: the second occurrence is patched into the first, later ones are only
counted. The count is written every half hour, and when no occurrence was added for six minutes.

Source: kube-scheduler v1.36, staging/src/k8s.io/client-go/tools/events.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import uuid
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

import msgspec

from scheduler.clock import rfc3339_micro
from scheduler.errors import ApiError
from scheduler.framework.pod_groups import PodGroup
from scheduler.kube.client.resources import EVENTS
from scheduler.kube.http.request import STRATEGIC_MERGE_PATCH, Request
from scheduler.objects.caches import BoundedDict
from scheduler.retries import RetryPolicy
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from scheduler.clock import Clock
    from scheduler.kube.client.background import Job
    from scheduler.kube.client.requests import Requests
    from scheduler.objects.pod import PodInfo

_RETRIES = RetryPolicy(12, also=frozenset({401}))  # a token has expired, and is replaced soon
_encode = msgspec.json.Encoder().encode


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """v1.ObjectReference: the object that an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class EventMetadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The metadata of a new event."""

    name: str
    namespace: str
    annotations: dict[str, str] = {}


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
        self._waits = _RETRIES.allows(error, self._tries)
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


if TYPE_CHECKING:
    QueueEvent = Callable[[Job], bool]  # returns False if the queue is full

FINISH_SECONDS = 360.0
"""A series without a new occurrence for this long is finished; the next occurrence is a new event."""
REFRESHES_AFTER = 5
"""The count of a series is written after this many FINISH_SECONDS: every half hour."""
KNOWN_LIMIT = 20_000
"""Maximum number of remembered events; a further occurrence of an older one is a new event."""
NOTE_BYTES = 1024
_CUT = " ..."
_NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
_NAME_LIMIT = 253


CONTROLLER = "custom-scheduler"
"""Reporting controller of events that belong to no profile."""


class EventRecorders:
    """Recorders by schedulerName, each created on first use.

    Recorders of names that are no longer served stay: bindings end under these names, and series of events
    even later. `run` must run concurrently to write the counts.

    Args:
        queue: receives events, to be sent in the background.
        clock: gives the times of events.
    """

    def __init__(self, queue: QueueEvent, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._recorders: dict[str, EventRecorder] = {}

    def of(self, scheduler_name: str) -> EventRecorder:
        """Return the recorder of a profile, or of another controller of this process."""
        recorder = self._recorders.get(scheduler_name)
        if recorder is None:
            recorder = EventRecorder(self._queue, self._clock, scheduler_name)
            self._recorders[scheduler_name] = recorder
        return recorder

    def about(self, kind: str, key: str) -> list[EventSeries]:
        """Return the remembered events about an object, by `namespace/name`."""
        return [event for each in self._recorders.values() for event in each.about(kind, key)]

    async def run(self) -> NoReturn:
        """Finish and refresh series until cancelled."""
        for rounds in itertools.count(1):
            await asyncio.sleep(FINISH_SECONDS)
            for recorder in list(self._recorders.values()):
                recorder.finish_series()
                if rounds % REFRESHES_AFTER == 0:
                    recorder.flush()
                await asyncio.sleep(0)
        raise AssertionError("counting ends nowhere")


class EventRecorder:
    """Records the events of one schedulerName; never waits."""

    def __init__(self, queue: QueueEvent, clock: Clock, controller: str) -> None:
        self._queue = queue
        self._clock = clock
        self._controller = controller
        self._instance = f"{controller}-{socket.gethostname()}"
        self._known: BoundedDict[tuple[object, ...], EventSeries] = BoundedDict(
            KNOWN_LIMIT, lambda _, event: event.finish()
        )
        self._last_nanoseconds = 0

    def record(
        self,
        regarding: PodInfo | ObjectReference,
        *,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: PodInfo | PodGroup | ObjectReference | None = None,
        is_unique: bool = False,
        annotations: Mapping[str, str] = _NO_ANNOTATIONS,
    ) -> None:
        """Queue an event, or count it if it repeats an earlier one.

        Args:
            regarding: the object that the event is about.
            type_: "Normal" or "Warning".
            reason: the reason in one word: `FailedScheduling`.
            action: the action in one word: `Scheduling`.
            note: text for people; cut to 1024 bytes, with secrets in URLs removed.
            related: a second object, such as the preemptor of a preempted pod.
            is_unique: never counted as a repetition, because its note differs.
            annotations: the annotations, which are for programs; a repetition does not change them, as the note.
        """
        about = _reference(regarding)
        other = None if related is None else _reference(related)
        key = (type_, action, reason, about, other)
        now = self._clock.utc_now()
        at = self._clock.monotonic()
        known = None if is_unique else self._known.get(key)
        if known is not None:
            known.count += 1
            known.last_observed, known.observed_at = now, at
            if known.count == 2:
                known.queue()
            return
        event = EventSeries(
            EventBody(
                kind=EVENTS.kind,
                api_version=EVENTS.api_version,
                metadata=EventMetadata(
                    self._event_name(about.name, now), about.namespace or "default", dict(annotations)
                ),
                event_time=rfc3339_micro(now),
                reporting_controller=self._controller,
                reporting_instance=self._instance,
                action=action,
                reason=reason,
                regarding=about,
                note=_shortened(shown_text(note)),
                type=type_,
                related=other,
            ),
            now,
            at,
            self._queue,
        )
        if event.queue() and not is_unique:
            self._known[key] = event

    def about(self, kind: str, key: str) -> list[EventSeries]:
        """Return the remembered events about an object, by `namespace/name`."""
        return [
            event
            for event in self._known.values()
            if event.about == key and event.body.regarding.kind == kind
        ]

    def finish_series(self) -> None:
        """Forget events that did not repeat for a while, and queue their last counts."""
        now = self._clock.monotonic()
        for key, event in list(self._known.items()):
            if now - event.observed_at > FINISH_SECONDS:
                self._known.pop(key).finish()

    def flush(self) -> None:
        """Queue the count of every series: this also keeps the server from deleting the event for its age."""
        for event in self._known.values():
            if event.count > 1:
                event.queue()

    def _event_name(self, about: str, now: datetime) -> str:
        """Return `<name>.<hex nanoseconds>`, unique although the clock counts microseconds."""
        nanoseconds = int(now.timestamp()) * 1_000_000_000 + now.microsecond * 1_000
        self._last_nanoseconds = max(nanoseconds, self._last_nanoseconds + 1)
        name = f"{about}.{self._last_nanoseconds:x}"
        # As client-go does if the name would be too long for an object.
        return name if len(name) <= _NAME_LIMIT else str(uuid.uuid4())


def _reference(about: PodInfo | PodGroup | ObjectReference) -> ObjectReference:
    if isinstance(about, ObjectReference):
        return about
    if isinstance(about, PodGroup):
        api_version = about.key.kind.rpartition("/")[0]
        kind = "CompositePodGroup" if about.is_composite else "PodGroup"
        return ObjectReference(kind, about.key.namespace, about.key.name, about.uid, api_version)
    return ObjectReference(
        kind="Pod",
        namespace=about.namespace,
        name=about.name,
        uid=about.uid,
        api_version="v1",
        resource_version=about.resource_version,
    )


def _shortened(note: str) -> str:
    """Cut a note, between characters, to the length that the API server accepts.

    Source:
        kube-scheduler v1.36, schedule_one.go, truncateMessage.
    """
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES:
        return note
    return encoded[: NOTE_BYTES - len(_CUT)].decode(errors="ignore") + _CUT
