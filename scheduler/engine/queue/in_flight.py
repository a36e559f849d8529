"""The events that happened while pods were being scheduled or bound.

An event during an attempt may make a rejected pod schedulable. Events are therefore recorded while any pod is in
flight, and a rejected pod is checked against all events since its attempt began.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.framework.events import ClusterEvent
    from scheduler.objects.pod import PodInfo

POD_POPPED = "PodPopped"
"""The label in metrics under which the pods in flight are counted among the events."""


class InFlightEvent(NamedTuple):
    """An event with the object's old and new version."""

    event: ClusterEvent
    old: Any
    new: Any


@dataclass(slots=True)
class _PodInFlight:
    pod: PodInfo | None  # its newest version; None once it was deleted
    profile: str
    start: int  # the number of the first event that happened after it was popped
    own: list[InFlightEvent] = field(default_factory=list)


class InFlight:
    """The pods in flight, and the events since the first of them was popped.

    Events are kept only for pods that events can still requeue.

    Source:
        kube-scheduler v1.36, backend/queue/active_queue.go, inFlightPods and inFlightEvents.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, _PodInFlight] = {}  # uid -> attempt
        # the attempts that events can requeue, by when they began
        self._listening: dict[str, _PodInFlight] = {}
        self._events = deque[InFlightEvent]()
        self._first = 0  # the number of the first event in `_events`
        self._profiles = defaultdict[str, int](int)
        self._counts = defaultdict[str, int](int)  # label -> how many are kept

    def begin(self, pod: PodInfo) -> None:
        """Record that a pod was popped."""
        start = self._first + len(self._events)
        attempt = _PodInFlight(pod, pod.scheduler_name, start)
        self._attempts[pod.uid] = self._listening[pod.uid] = attempt
        self._profiles[pod.scheduler_name] += 1

    def record(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Record an event for all pods that events can requeue; there must be at least one."""
        assert self._listening, f"{event} is recorded for nobody"
        self._events.append(InFlightEvent(event, old, new))
        self._counts[event.label] += 1

    def record_for(self, uid: str, event: ClusterEvent, old: Any, new: Any) -> None:
        """Record an event that concerns a single pod in flight, if events can requeue it."""
        if uid in self._listening:
            self._listening[uid].own.append(InFlightEvent(event, old, new))
            self._counts[event.label] += 1

    def update(self, uid: str, pod: PodInfo | None) -> None:
        """Record a pod's newest version; None if it was deleted."""
        self._attempts[uid].pod = pod

    def newest(self, uid: str) -> PodInfo | None:
        """Return a pod's newest version; None if it was deleted."""
        return self._attempts[uid].pod

    def events_since(self, uid: str) -> Iterator[InFlightEvent]:
        """Yield the events since a pod was popped; the events that concern it alone come last."""
        attempt = self._listening.get(uid)
        if attempt is None:
            return iter(())
        return chain(islice(self._events, attempt.start - self._first, None), attempt.own)

    def end(self, uid: str) -> None:
        """End an attempt, and drop the events that no other pod needs."""
        self.ignore_events(uid)
        del self._attempts[uid]

    def ignore_events(self, uid: str) -> None:
        """Record that no event can requeue an attempt any more, and drop the events that no other pod needs."""
        attempt = self._listening.pop(uid, None)
        if attempt is None:
            return
        self._profiles[attempt.profile] -= 1
        if not self._profiles[attempt.profile]:
            del self._profiles[attempt.profile]
        for recorded in attempt.own:
            self._uncount(recorded)
        # The attempts are in the order in which they began, so the first needs the most events.
        oldest = next(iter(self._listening.values()), None)
        needed = self._first + len(self._events) if oldest is None else oldest.start
        while self._first < needed:
            self._uncount(self._events.popleft())
            self._first += 1

    @property
    def profiles(self) -> Iterable[str]:
        """The profiles of the pods in flight that events can requeue."""
        return self._profiles

    def counts(self) -> dict[str, int]:
        """Return label -> number of recorded events; PodPopped is the number of pods that they are recorded for."""
        counts = dict(self._counts)
        if self._listening:
            counts[POD_POPPED] = len(self._listening)
        return counts

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, uid: object) -> bool:
        return uid in self._attempts

    def check(self) -> None:
        """Assert the invariants."""
        astray = [uid for uid, attempt in self._listening.items() if self._attempts.get(uid) is not attempt]
        assert not astray, f"pods {astray} hear of events and are not in flight"
        starts = [attempt.start for attempt in self._listening.values()]
        assert starts == sorted(starts), "pods in flight are not in the order they began"
        needed = starts[0] if starts else self._first + len(self._events)
        assert self._first == needed, f"events from {self._first} are kept, from {needed} are needed"
        kept = chain(self._events, *(attempt.own for attempt in self._listening.values()))
        counts = Counter(recorded.event.label for recorded in kept)
        assert counts == self._counts, f"{counts} events found, {self._counts} counted"
        profiles = Counter(attempt.profile for attempt in self._listening.values())
        assert profiles == self._profiles, f"{profiles} pods found, {self._profiles} counted"

    def _uncount(self, recorded: InFlightEvent) -> None:
        label = recorded.event.label
        self._counts[label] -= 1
        if not self._counts[label]:
            del self._counts[label]
