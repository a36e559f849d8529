"""Log lines for people at a terminal, and tracebacks that are logged once."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text

from scheduler.objects.bounded_dict import BoundedDict
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType
    from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldsHandler(RichHandler):
    """Shows the fields after the message."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(
            console=Console(file=stream, soft_wrap=True), show_path=False, omit_repeated_times=False
        )

    def render_message(self, record: logging.LogRecord, message: str) -> Text:
        text = Text(shown_text(message))
        for name, value in _fields_of(record).items():
            text.append(f"  {name}=", style="dim")
            text.append(shown_text(str(value)))
        return text


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the `extra` fields of a log call."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


_TOLD_EVERY_SECONDS: Final = 60.0
_SHOWN_EVERY_SECONDS: Final = 3600.0
_MOST: Final = 1000
"""Maximum number of known tracebacks; the oldest one is forgotten for a new one."""


class _Shown:
    __slots__ = ("shown_at", "times", "told_at")

    def __init__(self, now: float) -> None:
        self.shown_at = self.told_at = now
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
        if now - shown.told_at < _TOLD_EVERY_SECONDS:
            return False
        fields |= {"error": f"{kind.__name__}: {error}", "times": shown.times}
        record.exc_info = record.exc_text = None
        shown.told_at, shown.times = now, 0
        return True


def _innermost(traceback: TracebackType | None) -> tuple[str, int]:
    """Return the file and the line where an error was raised."""
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
