"""Evaluates events for the waiting pods, in time slices, so that the queue never holds the event loop for long.

One event can concern twenty thousand pods. Work that exceeds a slice waits here in arrival order until the owner of
the queue calls for the next slice.

A pod is checked against every event once. A pod that begins to wait after an event has already been checked against
it: in the snapshot of its attempt, or when it came back. The numbers of events tell the two apart, so an event may be
evaluated later than it happens.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from scheduler.engine.queue.hints import RequeueStrategy
from scheduler.loop_work import loop_work
from scheduler.objects.pod import PodInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scheduler.engine.ports import Time
    from scheduler.engine.queue.contents import QueueContents
    from scheduler.engine.queue.hints import Hints
    from scheduler.engine.queue.in_flight import InFlightEvent
    from scheduler.engine.queue.unschedulable import WaitingClass
    from scheduler.framework.events import ClusterEvent
    from scheduler.framework.queued_pod import QueuedPodInfo

_LONGEST_TURN_SECONDS = 0.1
_MOST = 10_000
"""The maximum number of events that wait. Beyond it the first event is completed at once, whatever time it takes, so
that the sender of events has to wait."""


class QueueWork(NamedTuple):
    """Work that can take a while.

    Attributes:
        steps: does the work; yields after each step whether a pod is tried again because of it.
        number: number of the event.
        recorded: the event.
        pre_check: excludes the pods for which it returns False.
    """

    steps: Iterator[bool]
    number: int
    recorded: InFlightEvent
    pre_check: Callable[[PodInfo], bool] | None = None

    def concerns(self, pod: PodInfo) -> bool:
        return self.pre_check is None or self.pre_check(pod)


class Backlog:
    """Work in arrival order.

    Args:
        time: measures slices.
        slice_seconds: the longest time that work may take in one slice; infinite if nothing else needs the event loop.
    """

    def __init__(self, time: Time, slice_seconds: float) -> None:
        self._time = time
        self._slice_seconds = slice_seconds
        self._left = slice_seconds  # of the current slice
        self._turn_began = time.stopwatch()
        self._is_at_work = False
        self._works = deque[QueueWork]()

    def do(self, work: QueueWork) -> int:
        """Do the work after all earlier work, as far as this slice allows; return how many pods are tried again."""
        self._works.append(work)
        if self._is_at_work:
            return 0
        if self._slice_seconds < inf and self._time.stopwatch() - self._turn_began > _LONGEST_TURN_SECONDS:
            self._begin_turn()  # nobody calls take_turn: a standby tries no pods
        return self._go_on(at_least_the_first=len(self._works) > _MOST)

    def take_turn(self) -> int:
        """Begin the next slice and use it; return how many pods are tried again because of it."""
        self._begin_turn()
        return self._go_on() if self._works else 0

    def since(self, number: int) -> Sequence[QueueWork]:
        """Return the unfinished work about events after the given number."""
        return list(takewhile(lambda work: work.number > number, reversed(self._works)))[::-1]

    def clear(self) -> None:
        """Drop all work."""
        self._works.clear()

    def __len__(self) -> int:
        return len(self._works)

    def _begin_turn(self) -> None:
        self._left = self._slice_seconds
        if self._left < inf:
            self._turn_began = self._time.stopwatch()

    def _go_on(self, *, at_least_the_first: bool = False) -> int:
        self._is_at_work = True
        try:
            if self._left == inf:
                return self._do_all()
            moved = sum(self._works.popleft().steps) if at_least_the_first else 0
            is_over = not self._works or self._time.measured(self._left <= 0)
            return moved + (0 if is_over else self._do_some())
        finally:
            self._is_at_work = False

    def _do_all(self) -> int:
        moved = 0
        while self._works:
            moved += sum(self._works[0].steps)
            self._works.popleft()
        return moved

    def _do_some(self) -> int:
        moved, began = 0, self._time.stopwatch()
        until, now = began + self._left, began
        try:
            is_over = False
            while self._works and not is_over:
                for has_moved in self._works[0].steps:
                    moved += has_moved
                    now = self._time.stopwatch()
                    is_over = self._time.measured(now >= until)
                    if is_over:
                        break
                else:
                    self._works.popleft()
        finally:
            self._left -= now - began
        return moved


if TYPE_CHECKING:
    PreCheck = Callable[[PodInfo], bool]


class Requeue(Protocol):
    """Moves a waiting pod according to a strategy because of an event; returns whether the pod is tried again."""

    def __call__(
        self, queued: QueuedPodInfo, strategy: RequeueStrategy, event: ClusterEvent, *, shown: int
    ) -> bool: ...


class EventRequeuer:
    """Evaluates events for the waiting pods.

    Args:
        contents: the pods of the queue.
        hints: the hints of plugins.
        requeue: moves the pods.
    """

    def __init__(self, contents: QueueContents, hints: Hints, requeue: Requeue) -> None:
        self._contents, self._waiting = contents, contents.unschedulable
        self._hints = hints
        self._requeue = requeue

    @loop_work("queue", lambda recorded: f"requeueing by {recorded.event.label}")
    def requeue(self, recorded: InFlightEvent, number: int, pre_check: PreCheck | None) -> Iterator[bool]:
        """Evaluate an event for all pods that waited when it happened; yield after each step whether a pod is tried again.

        Args:
            recorded: the event.
            number: its number.
            pre_check: excludes pods for which it returns False.
        """
        event = recorded.event
        if event.is_wildcard:
            yield from self._each(list(self._waiting), recorded, number, pre_check)
            return
        about = _uid_in(recorded)
        if about in self._waiting:  # hints may return another result for it than for other pods of its class
            yield from self._each([about], recorded, number, pre_check)
        for profile in self._waiting.profiles:
            listeners = self._hints.listeners(profile, event)
            classes = self._waiting.classes(profile) if listeners else None
            if classes is not None:
                for found in classes.touched(listeners, recorded.old, recorded.new):
                    yield from self._members(found, recorded, number, pre_check, about)

    def is_relevant(self, queued: QueuedPodInfo, event: ClusterEvent) -> bool:
        """Return whether a plugin that could requeue the pod registered for the event."""
        listeners = self._hints.listeners(queued.pod.scheduler_name, event)
        if queued.is_gated:
            return queued.gating_plugin in listeners
        rejectors = queued.unschedulable_plugins | queued.pending_plugins
        return event.is_wildcard or any(plugin in listeners for plugin in rejectors)

    def _each(
        self, uids: Iterable[str], recorded: InFlightEvent, number: int, pre_check: PreCheck | None
    ) -> Iterator[bool]:
        """Call the hints for each pod."""
        for uid in uids:
            shown = self._waiting.shown(uid)
            if shown is None or shown >= number:
                continue
            queued = self._contents.pods[uid]
            if (pre_check is not None and not pre_check(queued.pod)) or not self.is_relevant(
                queued, recorded.event
            ):
                continue
            strategy = self._hints.strategy(queued, *recorded)
            yield strategy is not RequeueStrategy.SKIP and self._requeue(
                queued, strategy, recorded.event, shown=number
            )

    def _members(
        self,
        found: WaitingClass,
        recorded: InFlightEvent,
        number: int,
        pre_check: PreCheck | None,
        but: str,
    ) -> Iterator[bool]:
        """Call the hints for one pod of a class, and apply the result to all its pods except `but`."""

        def waits(uid: str, shown: int | None) -> bool:
            return (
                shown is not None
                and shown < number
                and uid != but
                and (pre_check is None or pre_check(self._contents.pods[uid].pod))
            )

        first = next((uid for uid, shown in found.members.items() if waits(uid, shown)), None)
        if first is None:
            return
        strategy = self._hints.strategy(self._contents.pods[first], *recorded)
        yield False
        if strategy is RequeueStrategy.SKIP:
            return
        for uid in list(found.members):
            # Other work ran since: a pod may have moved, or its new version was checked against the event.
            if waits(uid, found.members.get(uid)):
                yield self._requeue(self._contents.pods[uid], strategy, recorded.event, shown=number)


def _uid_in(recorded: InFlightEvent) -> str:
    """Return the uid of the pod that an event concerns; "" for another object."""
    about = recorded.old if recorded.new is None else recorded.new
    return about.uid if isinstance(about, PodInfo) else ""
