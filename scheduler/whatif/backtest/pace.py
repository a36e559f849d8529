"""How fast the recorded scheduler was: what a decision took of its loop's time, and when it asked for Bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.app.daemon import SCHEDULING
from scheduler.recording.notes import Note

if TYPE_CHECKING:
    from collections.abc import Mapping

_BIND: Final = "bind "


class Pace:
    """Learns from notes, in their order.

    Between two attempts the loop gives everybody else a turn. So from the step that decides to the next step of the
    same task it is as long as a decision takes with all that has to be done beside it.

    Attributes:
        asked: uid -> when it was asked to bind the pod, the last time.
    """

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}
        self._task: int | None = None
        self._since = 0.0
        self._decided = 0  # since the task was resumed
        self._decisions = 0
        self._seconds = 0.0

    @property
    def decision_seconds(self) -> float:
        """What one decision took on average; 0 if there was none."""
        return self._seconds / self._decisions if self._decisions else 0.0

    def take(self, note: list[Any], at: float, uids: Mapping[str, str]) -> None:
        """Take a note in, made so many seconds after the beginning; `uids` has those of the pods that are there by key."""
        match note[0]:
            case Note.STARTED if note[3] == SCHEDULING:
                self._task, self._decided = note[2], 0
            case Note.RESUMED if note[2] == self._task:
                if self._decided:
                    self._seconds += at - self._since
                    self._decisions += self._decided
                    self._decided = 0
            case Note.DECIDED:
                self._since = at
                self._decided += 1
            case Note.ASKED if note[2].startswith(_BIND):
                uid = uids.get(note[2].removeprefix(_BIND).partition(" ")[0])
                if uid is not None:
                    self.asked[uid] = at
