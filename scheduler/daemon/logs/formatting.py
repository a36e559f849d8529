"""Log lines for people at a terminal. Importing rich takes a while, and a daemon in a pod does not need it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text

from scheduler.urls import shown_text

if TYPE_CHECKING:
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
