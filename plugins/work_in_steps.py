"""Long work of plugins in steps: for one pod, between attempts at others, or for all objects of a kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from scheduler.errors import SchedulerError
from scheduler.framework import NeedsTime
from scheduler.loop_work import run_to_end
from scheduler.snapshot import Objects

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from scheduler.framework import TimeSlice

T = TypeVar("T")


class UnlimitedTime:
    """Implements `TimeSlice` without a limit."""

    slice_seconds = inf

    def seconds(self) -> float:
        return 0.0

    def measured(self, is_so: bool, what: str = "") -> bool:
        return is_so


UNLIMITED: Final = UnlimitedTime()


class PluginWork:
    """The work of one call of a plugin, within its time slice.

    Args:
        time_slice: the time slice.
        is_unlimited: whether all calls for one pod together may take any time.
    """

    def __init__(self, time_slice: TimeSlice = UNLIMITED, *, is_unlimited: bool = False) -> None:
        self._time_slice = time_slice
        self._is_unlimited = is_unlimited
        self._until = inf

    def begin(self) -> None:
        """Begin a call: all its work shares one time slice."""
        if self._time_slice.slice_seconds < inf:
            self._until = self._time_slice.seconds() + self._time_slice.slice_seconds

    def done(self, steps: Generator[None, None, T], goes_on: Callable[[], bool] | None = None) -> T:
        """Run all steps, and return their result.

        Args:
            steps: the steps; they keep results, so that fewer are needed after a restart, and tolerate changes of the
                cluster between two of them.
            goes_on: called before each step outside of this call; returns whether the remaining steps are still useful.

        Raises:
            NeedsTime: the time slice ends before the steps.
        """
        if self._time_slice.slice_seconds == inf:
            return run_to_end(steps)
        is_over, result = self._advanced(steps)
        # Called once, whatever the number of steps: there are fewer if more results are cached from earlier calls.
        if self._time_slice.measured(is_over):
            raise NeedsTime(_rest(steps, goes_on), is_unlimited=self._is_unlimited)
        return run_to_end(steps) if is_over else result  # type: ignore[return-value]  # the steps have ended

    def some(self, steps: Generator[None, None, object]) -> None:
        """Run steps while the time slice lasts; the rest is left for the next call."""
        if self._time_slice.slice_seconds == inf:
            run_to_end(steps)
        else:
            self._advanced(steps)

    def _advanced(self, steps: Generator[None, None, T]) -> tuple[bool, T | None]:
        """Run steps while the time slice lasts; return whether it ended before them, and their result."""
        seconds, until = self._time_slice.seconds, self._until
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return False, end.value
            if seconds() >= until:
                return True, None


_ENDED: Final = object()


def _rest(
    steps: Generator[None, None, object], goes_on: Callable[[], bool] | None
) -> Generator[None, None, None]:
    with suppress(SchedulerError):  # the restarted attempt fails the same way, and reports it
        while (goes_on is None or goes_on()) and next(steps, _ENDED) is not _ENDED:
            yield
    steps.close()


READ_A_STEP: Final = 64
"""The default of `ObjectsInSteps.read_a_step`."""
SETTLED_A_STEP: Final = 500
"""The number of objects that one step of `settle` processes, at about a microsecond each."""
_FEW: Final = 256
"""The default of `ObjectsInSteps.few`."""


class ObjectsInSteps(ABC):
    """Reads the objects of one kind.

    A round reads all changed objects, and then computes the combined result. Until a round has ended, the result of the
    previous round stays active, so no decision uses a part of the changes. All callers of `reading` advance the same
    round.

    Attributes:
        read_a_step: the number of objects that one step reads; up to this number changes are read immediately.
        few: up to this number of objects all changes are read immediately, and `settle` runs immediately.
    """

    read_a_step: ClassVar[int] = READ_A_STEP
    few: ClassVar[int] = _FEW

    def __init__(self) -> None:
        self._objects = Objects()
        self._changes = 0
        self._unread: dict[str, None] = {}
        self._is_news = False
        self._round: Generator[None, None, None] | None = None
        self._waiting: set[str] = set()  # uids of pods whose attempts have waited for a round

    @abstractmethod
    def forget(self) -> None:
        """Forget all that was read, but not the result: all objects are read again."""

    @abstractmethod
    def read(self, key: str) -> bool:
        """Read a new, changed or deleted object; return whether `settle` has to follow."""

    @property
    def settles_at_once(self) -> bool:
        """Return whether `settle` takes only one step, although there are many objects."""
        return False

    @abstractmethod
    def settle(self) -> Generator[None, None, None]:
        """Compute the combined result in steps; it becomes active in the last step."""

    def look_at(self, objects: Objects) -> bool:
        """Read the changes if there are few; return whether some are left for `reading`."""
        if self._round is None:
            self._note(objects)
            if len(self._unread) <= self.read_a_step or len(objects) <= self.few:
                self._read_some(len(self._unread))
            if self._is_news and not self._unread and (len(objects) <= self.few or self.settles_at_once):
                self._is_news = False
                for _ in self.settle():
                    pass
        return bool(self._round is not None or self._unread or self._is_news)

    def be_read_for(self, uid: str, objects: Objects) -> None:
        """Read the objects for an attempt at a pod.

        A pod waits for them once in an attempt: later changes are events that may requeue the pod.

        Raises:
            NeedsTime: many objects have to be read.
        """
        if not self.look_at(objects):
            self._waiting.clear()
        elif uid in self._waiting:
            self._waiting.remove(uid)
        else:
            self._waiting.add(uid)
            raise NeedsTime(self.reading(objects))

    def reading(self, objects: Objects) -> Generator[None, None, None]:
        """Read the changes so far, in steps: the current round may have begun before, so at most two rounds are needed."""
        for _ in range(2):
            if not self.look_at(objects):
                return
            if self._round is None:
                self._round = self._steps()
            mine = self._round
            while self._round is mine:
                next(mine, None)
                yield

    def _steps(self) -> Generator[None, None, None]:
        try:
            while self._unread:
                self._read_some(self.read_a_step)
                yield
            if self._is_news:
                self._is_news = False
                yield from self.settle()
        finally:
            self._round = None

    def _note(self, objects: Objects) -> None:
        """Record which objects have changed."""
        if objects is self._objects and objects.changes == self._changes:
            return
        changed = objects.changed_since(self._changes) if objects is self._objects else None
        if changed is None:
            self.forget()
            self._unread, self._is_news = {}, True
        self._unread.update(dict.fromkeys(objects if changed is None else changed))
        self._objects, self._changes = objects, objects.changes

    def _read_some(self, most: int) -> None:
        for _ in range(min(most, len(self._unread))):
            key = next(iter(self._unread))
            del self._unread[key]
            self._is_news = self.read(key) or self._is_news
