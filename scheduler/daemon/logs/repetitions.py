"""Logs a traceback once and counts its repetitions, so that a plugin that fails for thousands of pods fills no disk."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from scheduler.objects.caches import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType

_REPORTED_EVERY_SECONDS: Final = 60.0
_SHOWN_EVERY_SECONDS: Final = 3600.0
_MOST: Final = 1000
"""Maximum number of known tracebacks; the oldest one is forgotten for a new one."""


class _Shown:
    __slots__ = ("reported_at", "shown_at", "times")

    def __init__(self, now: float) -> None:
        self.shown_at = self.reported_at = now
        self.times = 0


class Repetitions(logging.Filter):
    """Passes a record with a traceback the first time, and again after an hour.

    In between, at most one line a minute without the traceback has the number of repetitions in `times`, and
    the last `error`. Tracebacks are equal if the message, the plugin, the type of the error and the line that
    raised it are equal.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._shown: BoundedDict[Hashable, _Shown] = BoundedDict(_MOST)

    def filter(self, record: logging.LogRecord) -> bool:
        if not isinstance(record.exc_info, tuple) or record.exc_info[0] is None:
            return True
        kind, error, traceback = record.exc_info
        fields = vars(record)
        key = (
            record.name,
            record.msg,
            fields.get("plugin"),
            fields.get("extension_point"),
            kind,
            _innermost(traceback),
        )
        now = self._clock()
        shown = self._shown.get(key)
        if shown is None or now - shown.shown_at >= _SHOWN_EVERY_SECONDS:
            self._shown[key] = _Shown(now)
            return True
        shown.times += 1
        if now - shown.reported_at < _REPORTED_EVERY_SECONDS:
            return False
        fields |= {"error": f"{kind.__name__}: {error}", "times": shown.times}
        record.exc_info = record.exc_text = None
        shown.reported_at, shown.times = now, 0
        return True


def _innermost(traceback: TracebackType | None) -> tuple[str, int]:
    """Return the file and the line where an error was raised."""
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
