"""A clock that stands still within a step, so that whoever makes the step again sees the same time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scheduler.recording.notes import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

LATE_SECONDS = 1.0
"""A step that takes so long reads the time again: what is to end in time must be able to."""


class StepClock:
    """The time of the present step.

    Args:
        base: seconds of the monotonic clock at the recording's beginning.
        wall: seconds since 1970 then.
        now: microseconds since then; None where time stands still between steps as well.
        is_late: is told what was read when the clock was read late; None where `now` is.

    Attributes:
        us: when the present step began, in microseconds since the beginning.
    """

    def __init__(
        self, base: float, wall: float, look: Callable[[StepClock], int | None] = lambda _clock: None
    ) -> None:
        self._base, self._wall = base, wall
        self._look = look
        self.us = 0

    def monotonic(self) -> float:
        late = self._look(self)
        if late is not None:
            self.us = late
        return self._base + self.us / SECOND

    def utc_now(self) -> datetime:
        return datetime.fromtimestamp(self._wall + self.us / SECOND, UTC)
