"""Work for one pod: done at once where it is short, else in steps between attempts at other pods."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from scheduler.errors import SchedulerError
from scheduler.framework.long_work import NeedsTime, at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from scheduler.framework import TurnLimit

T = TypeVar("T")


class Unlimited:
    """Fulfils `TurnLimit` where nobody else waits for a turn."""

    slice_seconds = inf

    def seconds(self) -> float:
        return 0.0

    def observed(self, is_so: bool, what: str = "") -> bool:
        return is_so


UNLIMITED: Final = Unlimited()


class Work:
    """What one call of a plugin does, within the time that it may hold the event loop.

    Args:
        limit: says how long that is.
        is_unlimited: whether all calls for one pod together may take any time.
    """

    def __init__(self, limit: TurnLimit = UNLIMITED, *, is_unlimited: bool = False) -> None:
        self._limit = limit
        self._is_unlimited = is_unlimited
        self._until = inf

    def begin(self) -> None:
        """Begin a call: what it does until the next one shares one slice of time."""
        if self._limit.slice_seconds < inf:
            self._until = self._limit.seconds() + self._limit.slice_seconds

    def done(self, steps: Generator[None, None, T], goes_on: Callable[[], bool] | None = None) -> T:
        """Go through all steps, and return what they come to.

        Args:
            steps: they keep what they find, so that they are few when they are begun again; and they bear that the cluster
                changes between two of them.
            goes_on: asked between two steps in turns of their own, whether the rest is still worth while.

        Raises:
            NeedsTime: the slice is over before them.
        """
        if self._limit.slice_seconds == inf:
            return at_once(steps)
        is_over, result = self._advanced(steps)
        # Asked once, whatever the number of steps: there are fewer where more is kept from earlier calls.
        if self._limit.observed(is_over):
            raise NeedsTime(_rest(steps, goes_on), is_unlimited=self._is_unlimited)
        return at_once(steps) if is_over else result  # type: ignore[return-value]  # the steps have ended

    def some(self, steps: Generator[None, None, object]) -> None:
        """Go through steps while the slice lasts; the rest is left for the next time."""
        if self._limit.slice_seconds == inf:
            at_once(steps)
        else:
            self._advanced(steps)

    def _advanced(self, steps: Generator[None, None, T]) -> tuple[bool, T | None]:
        """Go through steps while the slice lasts; return whether it is over before them, and what they come to."""
        seconds, until = self._limit.seconds, self._until
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
    with suppress(SchedulerError):  # the attempt that begins again fails the same way, and says so
        for _ in steps:
            yield
            if goes_on is not None and not goes_on():
                break
    steps.close()
