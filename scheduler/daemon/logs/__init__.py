"""Logs: a constant sentence with fields; text on a terminal, one JSON object per line in a pod."""

from __future__ import annotations

import logging
import sys
import time
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pythonjsonlogger.json import JsonFormatter

from scheduler.objects.caches import BoundedDict
from scheduler.urls import shown_in, shown_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType
    from typing import TextIO


class LogFormat(Enum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


_VERBOSE = 2
"""Verbosity at which every bound or rejected pod is logged. Source: kube-scheduler v1.36, schedule_one.go."""


class _Formatter(JsonFormatter):
    """Hides secrets in URLs, also in tracebacks and in messages of other packages."""

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = shown_in(super().process_log_record(log_data), shown_text)
        return shown


def level_of(verbosity: int) -> int:
    """Return the lowest level shown at a verbosity, the flag `-v 2` of Kubernetes commands."""
    return logging.DEBUG if verbosity >= _VERBOSE else logging.INFO


def configure_logging(level: int, format_: LogFormat | None = None, stream: TextIO = sys.stderr) -> None:
    """Write all log lines to a stream.

    Args:
        level: the lowest level shown, as in `logging.INFO`.
        format_: None selects text if the stream is a terminal, else JSON.
        stream: the output stream.
    """
    if format_ is None:
        format_ = LogFormat.TEXT if stream.isatty() else LogFormat.JSON
    handler: logging.Handler
    if format_ is LogFormat.JSON:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(
            _Formatter(
                "{levelname}{name}{message}",
                style="{",
                rename_fields={"levelname": "level", "name": "logger"},
                timestamp="time",
            )
        )
    else:
        from scheduler.daemon.logs.formatting import FieldsHandler

        handler = FieldsHandler(stream)
    handler.addFilter(Repetitions())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)


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
