"""Records events as the clients of a real cluster do: repeated ones are counted, similar ones combined, too many left out.

So the number of events about one object is bounded, even if its controller retries for days.

Source:
    Kubernetes v1.36, staging/src/k8s.io/client-go/tools/record/events_cache.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from scheduler.tools.simulator.apimachinery.objects import Object, key_of
from scheduler.tools.simulator.apimachinery.status import StatusError

if TYPE_CHECKING:
    from scheduler.clock import Clock

_KEPT_HISTORIES: Final = 4096
_BURST: Final = 25
_REFILL_SECONDS: Final = 300.0
_INDIVIDUAL_MESSAGES: Final = 9
_FORGOTTEN_SECONDS: Final = 600.0
_COMBINED: Final = "(combined from similar events): "
_LONGEST_BASE: Final = 236
"""Characters of a name that leave space for a dot and 16 digits."""


class EventAccess(Protocol):
    """Writes of events: to a `Store`, or to an API server (`remote`)."""

    def create(self, resource: str, obj: Object, *, namespace: str = "") -> object:
        """Create an event."""
        ...

    def change(self, obj: Object, patch: Object) -> object:
        """Patch an event."""
        ...

    def timestamp(self) -> str:
        """Return the time as metav1.Time."""
        ...


@dataclass(slots=True)
class _Similar:
    """The events of a history with one reason.

    Attributes:
        at: time of the last one.
        messages: those that have events of their own.
        written: (field path, message) -> name and count of the event; the combined event has the key ("", "").
    """

    at: float
    messages: set[str] = field(default_factory=set)
    written: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _History:
    """The events of one type, from one component, about one object.

    Attributes:
        at: time of the last one.
        tokens: number of events that may be written now.
        by_reason: reason -> its events.
    """

    at: float
    tokens: float = _BURST
    by_reason: dict[str, _Similar] = field(default_factory=dict)

    def take_token(self, now: float) -> bool:
        """Return whether an event may be written."""
        self.tokens = min(_BURST, self.tokens + (now - self.at) / _REFILL_SECONDS)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventRecorder:
    """Records events about objects.

    Args:
        objects: where they are written.
        clock: time, for the limits.
        normal: whether events of type Normal are recorded; warnings always are.
    """

    def __init__(self, objects: EventAccess, clock: Clock, *, normal: bool) -> None:
        self._objects = objects
        self._clock = clock
        self._normal = normal
        # Component, host, uid, is warning; the longest unused one first.
        self._histories: dict[tuple[str, str, str, bool], _History] = {}
        self._created = 0

    def record(
        self,
        obj: Object,
        reason: str,
        message: str,
        *,
        component: str,
        host: str = "",
        field_path: str = "",
        warning: bool = False,
    ) -> None:
        """Record an event.

        An event that equals an earlier one increases its count. The tenth message of a reason, and all that follow it
        within ten minutes of each other, share one event. After 25 events of a component about an object, one is
        written every five minutes.

        Args:
            obj: the object that it is about.
            reason: for example `SuccessfulCreate`.
            message: text for users.
            component: the client that records it.
            host: the node of that client, if it is a kubelet.
            field_path: the part of the object that it is about, for example `spec.containers{web}`.
            warning: whether its type is Warning; otherwise it is Normal.
        """
        if not (warning or self._normal):
            return
        now = self._clock.monotonic()
        history = self._history((component, host, obj["metadata"]["uid"], warning), now)
        similar = history.by_reason.get(reason)
        if similar is None or now - similar.at > _FORGOTTEN_SECONDS:
            similar = history.by_reason[reason] = _Similar(now)
        similar.at = now
        if message in similar.messages or len(similar.messages) < _INDIVIDUAL_MESSAGES:
            similar.messages.add(message)
            key = field_path, message
        else:
            key, message = ("", ""), f"{_COMBINED}{message}"
        if not history.take_token(now):
            return
        namespace = key_of(obj)[0] or "default"
        name, count = similar.written.get(key, ("", 0))
        if count and self._repeat(namespace, name, count + 1, message):
            similar.written[key] = name, count + 1
            return
        event = self._event(obj, field_path) | {
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "source": {"component": component, **({"host": host} if host else {})},
        }
        if self._create(event, namespace):
            similar.written[key] = event["metadata"]["name"], 1

    def _history(self, key: tuple[str, str, str, bool], now: float) -> _History:
        history = self._histories.pop(key, None) or _History(now)
        if len(self._histories) >= _KEPT_HISTORIES:
            del self._histories[next(iter(self._histories))]
        self._histories[key] = history
        return history

    def _event(self, obj: Object, field_path: str) -> Object:
        """Return the part of an event that does not depend on what happened."""
        namespace, name = key_of(obj)
        self._created += 1
        nanoseconds = int(self._clock.utc_now().timestamp() * 1e9) + self._created
        now = self._objects.timestamp()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name[:_LONGEST_BASE].rstrip('-.')}.{nanoseconds:x}"},
            "involvedObject": {
                "kind": obj["kind"],
                "apiVersion": obj["apiVersion"],
                "name": name,
                "uid": obj["metadata"]["uid"],
                **({"namespace": namespace} if namespace else {}),
                **({"fieldPath": field_path} if field_path else {}),
            },
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _create(self, event: Object, namespace: str) -> bool:
        """Create an event; return whether the server accepted it.

        It rejects events in a terminating namespace, and names that exist. As in client-go, the event is then lost.
        """
        try:
            self._objects.create("events", event, namespace=namespace)
        except StatusError as error:
            if error.reason not in {"Forbidden", "NotFound", "AlreadyExists"}:
                raise
            return False
        return True

    def _repeat(self, namespace: str, name: str, count: int, message: str) -> bool:
        """Set the count of an event; return whether the event still exists."""
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": namespace, "name": name}}
        patch = {"count": count, "message": message, "lastTimestamp": self._objects.timestamp()}
        try:
            self._objects.change(event, patch)
        except StatusError as error:
            if error.reason != "NotFound":
                raise
            return False
        return True
