"""Logs: a constant sentence and fields; text on a terminal, one JSON object a line in a pod."""

from __future__ import annotations

import logging
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any

from pythonjsonlogger.json import JsonFormatter

from scheduler.logs.repetitions import Repetitions
from scheduler.urls import shown_in, shown_text

if TYPE_CHECKING:
    from typing import TextIO


class LogFormat(Enum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


_VERBOSE = 2
"""The verbosity from which on every pod that is bound, or has to wait, is logged. Source: kube-scheduler v1.36, schedule_one.go."""


class _Formatter(JsonFormatter):
    """Leaves out what is secret in URLs, also in tracebacks and in what others log."""

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = shown_in(super().process_log_record(log_data), shown_text)
        return shown


def level_of(verbosity: int) -> int:
    """Return the lowest level that is shown at a verbosity, as kubernetes commands have it: `-v 2`."""
    return logging.DEBUG if verbosity >= _VERBOSE else logging.INFO


def configure_logging(level: int, format_: LogFormat | None = None, stream: TextIO = sys.stderr) -> None:
    """Send all log lines to a stream.

    Args:
        level: the lowest that is shown, as in `logging.INFO`.
        format_: None decides by whether the stream is a terminal.
        stream: where to.
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
        from scheduler.logs.text import FieldsHandler  # rich takes a while to import, and pods do without

        handler = FieldsHandler(stream)
    handler.addFilter(Repetitions())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)
