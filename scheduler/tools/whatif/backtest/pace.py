"""Speed of the recorded scheduler: the time of a decision, and the times of Binding requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.daemon.app.daemon import SCHEDULING
from scheduler.daemon.recording.notes import Note

if TYPE_CHECKING:
    from collections.abc import Mapping

_BIND: Final = "bind "


class Pace:
    """Measures the entries of a recording, in their order.

    Between two attempts the event loop runs other tasks. So the time from the step that decides to the next step of the
    same task is the time of the decision with the work that belongs to it.

    Attributes:
        asked: uid -> time of the last Binding request for the pod.
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
        """Average time of a decision; 0 if there was none."""
        return self._seconds / self._decisions if self._decisions else 0.0

    def take(self, note: list[Any], at: float, uids: Mapping[str, str]) -> None:
        """Read an entry, `at` seconds after the beginning; `uids` maps the keys of existing pods to uids."""
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
