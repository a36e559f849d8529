"""Logs: a constant sentence with fields; text on a terminal, one JSON object per line in a pod."""

from __future__ import annotations

import logging
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any

from pythonjsonlogger.json import JsonFormatter

from scheduler.daemon.logs.repetitions import Repetitions
from scheduler.urls import shown_in, shown_text

if TYPE_CHECKING:
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
