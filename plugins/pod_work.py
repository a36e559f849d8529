"""Work for one pod: short work runs at once, long work in steps between attempts at other pods."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from scheduler.errors import SchedulerError
from scheduler.framework.sliced_work import NeedsTime, run_to_end

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
            goes_on: called between two steps outside of this call; returns whether the remaining steps are still useful.

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


def _rest(
    steps: Generator[None, None, object], goes_on: Callable[[], bool] | None
) -> Generator[None, None, None]:
    with suppress(SchedulerError):  # the restarted attempt fails the same way, and reports it
        for _ in steps:
            yield
            if goes_on is not None and not goes_on():
                break
    steps.close()
