"""Logs a guest's log lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.extensions.wasm.guest_memory import text

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # by klog's severity


class GuestLog:
    """Logs the lines of one guest.

    Args:
        plugin: the guest's name.
        severity: the lowest severity that is logged. Upstream reverses the comparison in one of the two functions by
            mistake, and so loses errors.
    """

    def __init__(self, plugin: str, severity: int) -> None:
        self._plugin = plugin
        self.severity = severity

    def write(self, severity: int, message: bytes, pairs: bytes = b"") -> None:
        """Log one line with klog's severity; `pairs` are NUL-terminated keys and values in turn."""
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
    # Values may be empty, so memory.null_terminated does not fit.
    words = [text(word) for word in content.split(b"\0")[:-1]]
    if len(words) % 2:
        words.append("")
    return dict(zip(words[::2], words[1::2], strict=True))
