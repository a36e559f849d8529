"""A guest's log lines, as log lines of ours."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.wasm.memory import text

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # by klog's severity


class GuestLog:
    """Writes what one guest logs.

    Args:
        plugin: the guest's name.
        severity: the least that is kept. Upstream keeps it the other way round in one of the two functions, by
            mistake, and so loses errors.
    """

    def __init__(self, plugin: str, severity: int) -> None:
        self._plugin = plugin
        self.severity = severity

    def write(self, severity: int, message: bytes, pairs: bytes = b"") -> None:
        """Log one line of klog's severity; `pairs` are NUL-terminated keys and values in turn."""
        if severity < self.severity:
            return
        level = _LEVELS[min(severity, len(_LEVELS) - 1)]
        logger.log(
            level,
            "Guest: %s",
            text(message).rstrip("\n"),
            extra={"plugin": self._plugin, "guest_fields": dict(_pairs(pairs))},
        )


def _pairs(content: bytes) -> Mapping[str, str]:
    # Values may be empty, so that this is not memory.null_terminated.
    words = [text(word) for word in content.split(b"\0")[:-1]]
    if len(words) % 2:
        words.append("")
    return dict(zip(words[::2], words[1::2], strict=True))
