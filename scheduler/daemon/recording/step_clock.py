"""A clock that is constant within a step, so that a replay of the step sees the same time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scheduler.daemon.recording.notes import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

LATE_SECONDS = 1.0
"""A step that takes longer reads the time again, so that time limits still work."""


class StepClock:
    """The time of the current step.

    Args:
        base: monotonic seconds at the beginning of the recording.
        wall: seconds since 1970 at the beginning of the recording.
        look: returns the current time in microseconds since the beginning, to read it again within a step;
            None to keep the step's time.

    Attributes:
        us: when the current step began, in microseconds since the beginning.
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
