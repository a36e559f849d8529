"""Events about pods and other objects, as `kubectl describe` shows them: events.k8s.io/v1.

An event that repeats becomes a series: its second occurrence is patched into the first, the next ones are
only counted, and the count is written every half hour and when nothing was added for six minutes.

Source: kube-scheduler v1.36, staging/src/k8s.io/client-go/tools/events.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import uuid
from typing import TYPE_CHECKING, NoReturn

from scheduler.client.recorded_event import EventBody, EventMetadata, ObjectReference, RecordedEvent
from scheduler.client.resources import EVENTS
from scheduler.clock import rfc3339_micro
from scheduler.framework.pod_groups import PodGroup
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from scheduler.client.background import Job
    from scheduler.clock import Clock
    from scheduler.objects.pod import PodInfo

    QueueEvent = Callable[[Job], bool]  # whether there was room

FINISH_SECONDS = 360.0
"""A series that nothing was added to for so long is over; the next occurrence is a new event."""
REFRESHES_AFTER = 5
"""A series' count is written every so many times FINISH_SECONDS: every half hour."""
KNOWN_LIMIT = 20_000
"""How many events are remembered; the oldest beyond it become new ones should they happen again."""
NOTE_BYTES = 1024
_CUT = " ..."
_NAME_LIMIT = 253


CONTROLLER = "custom-scheduler"
"""Who reports events that are no profile's, whatever the profiles are called."""


class EventRecorders:
    """Recorders by schedulerName, each made when it is first asked for.

    Those of names that are served no longer stay: bindings end under them, and series of events later still. `run` must
    run beside them, to write what is counted.

    Args:
        queue: takes events, to be sent when there is time.
        clock: for the events' times.
    """

    def __init__(self, queue: QueueEvent, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._recorders: dict[str, EventRecorder] = {}

    def of(self, scheduler_name: str) -> EventRecorder:
        """Return who records the events of a profile, or of another controller of this process."""
        recorder = self._recorders.get(scheduler_name)
        if recorder is None:
            recorder = EventRecorder(self._queue, self._clock, scheduler_name)
            self._recorders[scheduler_name] = recorder
        return recorder

    def about(self, kind: str, key: str) -> list[RecordedEvent]:
        """Return what was recorded of an object, by `namespace/name`, and not yet forgotten."""
        return [event for each in self._recorders.values() for event in each.about(kind, key)]

    async def run(self) -> NoReturn:
        """Finish and refresh series until cancelled."""
        for rounds in itertools.count(1):
            await asyncio.sleep(FINISH_SECONDS)
            for recorder in list(self._recorders.values()):
                recorder.finish_series()
                if rounds % REFRESHES_AFTER == 0:
                    recorder.flush()
        raise AssertionError("counting ends nowhere")


class EventRecorder:
    """Records the events of one schedulerName; never waits."""

    def __init__(self, queue: QueueEvent, clock: Clock, controller: str) -> None:
        self._queue = queue
        self._clock = clock
        self._controller = controller
        self._instance = f"{controller}-{socket.gethostname()}"
        self._known: dict[tuple[object, ...], RecordedEvent] = {}
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
    ) -> None:
        """Queue an event, or count it if it is one that happened before.

        Args:
            regarding: what it is about.
            type_: "Normal" or "Warning".
            reason: why, in one word: `FailedScheduling`.
            action: what was done, in one word: `Scheduling`.
            note: for people; cut to 1024 bytes, without what is secret in URLs.
            related: the other object in it, as the preemptor when a pod was preempted.
            is_unique: never counted as one that happened before: its note says something else.
        """
        about = _reference(regarding)
        other = None if related is None else _reference(related)
        key = (type_, action, reason, about, other)
        now = self._clock.utc_now()
        known = None if is_unique else self._known.get(key)
        if known is not None:
            known.count += 1
            known.last_observed = now
            if known.count == 2:
                known.queue()
            return
        event = RecordedEvent(
            EventBody(
                kind=EVENTS.kind,
                api_version=EVENTS.api_version,
                metadata=EventMetadata(self._event_name(about.name, now), about.namespace or "default"),
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
            self._queue,
        )
        if event.queue() and not is_unique:
            self._known[key] = event
            if len(self._known) > KNOWN_LIMIT:
                self._forget(next(iter(self._known)))

    def about(self, kind: str, key: str) -> list[RecordedEvent]:
        """Return what was recorded of an object, by `namespace/name`, and not yet forgotten."""
        return [
            event
            for event in self._known.values()
            if event.about == key and event.body.regarding.kind == kind
        ]

    def finish_series(self) -> None:
        """Forget what did not happen again for a while, and queue its last count."""
        now = self._clock.utc_now()
        for key, event in list(self._known.items()):
            if (now - event.last_observed).total_seconds() > FINISH_SECONDS:
                self._forget(key)

    def flush(self) -> None:
        """Queue the count of every series: it also keeps the server from dropping the event for its age."""
        for event in self._known.values():
            if event.count > 1:
                event.queue()

    def _forget(self, key: tuple[object, ...]) -> None:
        event = self._known.pop(key)
        if event.is_uncounted:
            event.queue()

    def _event_name(self, about: str, now: datetime) -> str:
        """Return `<name>.<hex nanoseconds>`, as unique as a clock of microseconds allows, and then some."""
        nanoseconds = int(now.timestamp()) * 1_000_000_000 + now.microsecond * 1_000
        self._last_nanoseconds = max(nanoseconds, self._last_nanoseconds + 1)
        name = f"{about}.{self._last_nanoseconds:x}"
        # As client-go, where the name would be too long for an object's.
        return name if len(name) <= _NAME_LIMIT else str(uuid.uuid4())


def _reference(about: PodInfo | PodGroup | ObjectReference) -> ObjectReference:
    if isinstance(about, ObjectReference):
        return about
    if isinstance(about, PodGroup):
        api_version = about.key.kind.rpartition("/")[0]
        return ObjectReference("PodGroup", about.key.namespace, about.key.name, about.uid, api_version)
    return ObjectReference(
        kind="Pod",
        namespace=about.namespace,
        name=about.name,
        uid=about.uid,
        api_version="v1",
        resource_version=about.resource_version,
    )


def _shortened(note: str) -> str:
    """Cut a note to what the API server takes, between characters.

    Source:
        kube-scheduler v1.36, schedule_one.go, truncateMessage.
    """
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES:
        return note
    return encoded[: NOTE_BYTES - len(_CUT)].decode(errors="ignore") + _CUT
