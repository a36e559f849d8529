"""The queue's pending work, done in time slices so that the queue never holds the event loop for long.

One event can concern twenty thousand pods. Work that exceeds a slice waits here in arrival order until the owner of
the queue calls for the next slice.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.engine.ports import Time
    from scheduler.engine.queue.in_flight import InFlightEvent
    from scheduler.objects.pod import PodInfo

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

    def since(self, number: int) -> Iterable[QueueWork]:
        """Return the unfinished work about events after the given number."""
        return [work for work in self._works if work.number > number]

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
