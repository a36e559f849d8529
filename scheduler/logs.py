"""Logs: a constant sentence and fields; text on a terminal, one JSON object a line in a pod."""

from __future__ import annotations

import logging
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any

from pythonjsonlogger.json import JsonFormatter
from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text

if TYPE_CHECKING:
    from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormat(Enum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


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
            JsonFormatter(
                "{levelname}{name}{message}",
                style="{",
                rename_fields={"levelname": "level", "name": "logger"},
                timestamp="time",
            )
        )
    else:
        handler = _FieldsHandler(
            console=Console(file=stream, soft_wrap=True), show_path=False, omit_repeated_times=False
        )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a log call gave as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class _FieldsHandler(RichHandler):
    """Shows the fields after the sentence."""

    def render_message(self, record: logging.LogRecord, message: str) -> Text:
        text = Text(message)
        for name, value in fields_of(record).items():
            text.append(f"  {name}=", style="dim")
            text.append(str(value))
        return text
