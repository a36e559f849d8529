"""Reports a plugin that does not return to a command, and lets Ctrl-C end the command at any point.

For commands that decide in the main thread and end by themselves; the daemon has the loop watch and the budget. Calls of
plugins are not measured: a thread inspects the main thread.
"""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from scheduler.daemon.app.loop_watch import dump_if_silent, holder_in, plugin_call_in, stack_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

logger = logging.getLogger(__name__)

_LOOKS_SECONDS: Final = 0.5
_LONG_SECONDS: Final = 3.0
"""Calls of plugins usually end in milliseconds; heavy libraries take seconds to import."""


class PluginWatch:
    """Detects a plugin call that does not end.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._call: FrameType | None = None
        self._since = 0.0
        self._is_told = False

    def look(self, frame: FrameType | None) -> None:
        """Inspect a thread; report each long call once."""
        call, now = plugin_call_in(frame), self._clock()
        if call is not self._call:
            self._call, self._since, self._is_told = call, now, False
        elif call is not None and not self._is_told and now - self._since >= _LONG_SECONDS:
            self._is_told = True
            holder = holder_in(frame)
            logger.error(
                "A plugin does not return; Ctrl-C ends this command",
                extra={"at": holder.what, "where": holder.where, "stack": stack_of(frame)},
            )


@contextmanager
def watching_plugins() -> Iterator[None]:
    """Watch this thread, the main one, while the block runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch, over, watched = PluginWatch(), threading.Event(), threading.get_ident()

    def look() -> None:
        while not over.wait(_LOOKS_SECONDS):
            watch.look(sys._current_frames().get(watched))  # noqa: SLF001 - there is no other way
            dump_if_silent()

    thread = threading.Thread(target=look, name="plugin watch", daemon=True)
    # With the default action the kernel ends the process, whatever a plugin catches and even within C code.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    dump_if_silent()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGINT, before)
