"""Detects what blocks the main loop of a daemon or the main thread of a command: which attempt, event, plugin or request.

A thread inspects the loop's thread when the loop is late; otherwise there is no cost. Like all Python code it cannot run
while a call into C holds the interpreter lock; then the interpreter itself writes a traceback.

`watching_plugins` is for commands that decide in the main thread and end by themselves; the daemon has `watching_loop` and
the budget. Calls of plugins are not measured: a thread inspects the main thread.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.daemon.app.memory import collect_young
from scheduler.loop_work import is_plugin_call, work_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from types import FrameType

    from scheduler.daemon.metrics.additional import LoopMetrics
    from scheduler.loop_work import LoopWork

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 0.1
STALL_SECONDS = 1.0
"""Longer delays are logged."""
_LOOKS_SECONDS = 0.2
_SILENT_SECONDS = 10
_LOOKS_UNTIL_NEXT = 10
_MOST_FRAMES = 20
_NOBODY = "other"
_GARBAGE = "garbage"


class Holder(NamedTuple):
    """The work that blocks the loop.

    Attributes:
        kind: for the metric: the kind of a `LoopWork`, `garbage` or `other`.
        what: a description, from the outermost to the innermost work.
        where: the innermost line of Python code.
    """

    kind: str
    what: str
    where: str


def holder_in(frame: FrameType | None) -> Holder:
    """Return the current work of a thread."""
    kind, what, where = _NOBODY, [], ""
    while frame is not None:
        code = frame.f_code
        where = where or f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
        work = work_in(frame)
        if work is not None:
            kind = work.kind
            what.append(_description(work, frame))
        frame = frame.f_back
    return Holder(kind, ", ".join(reversed(what)), where)


def plugin_call_in(frame: FrameType | None) -> FrameType | None:
    """Return the innermost call of an external plugin; None if there is none."""
    while frame is not None and not is_plugin_call(frame):
        frame = frame.f_back
    return frame


def stack_of(frame: FrameType | None) -> str:
    """Return a thread's traceback, the innermost line last; within a plugin, only the plugin's part."""
    call = plugin_call_in(frame)
    frames: list[tuple[FrameType, int]] = []
    while frame is not None and frame is not call and len(frames) < _MOST_FRAMES:
        frames.append((frame, frame.f_lineno))
        frame = frame.f_back
    return "".join(traceback.StackSummary.extract(reversed(frames)).format())


def dump_if_silent() -> None:
    """Have the interpreter write all threads' tracebacks to standard error, unless this is called again in ten seconds.

    It does so without a Python thread: a call into C may block all of them.
    """
    if sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(_SILENT_SECONDS, file=sys.__stderr__)


def _description(work: LoopWork, frame: FrameType) -> str:
    try:
        return work.description(frame.f_locals)
    except (AttributeError, IndexError, KeyError):
        return frame.f_code.co_qualname  # the function has changed its arguments


class LoopWatch:
    """Measures the delay of the loop, and finds the cause.

    Args:
        metrics: counts delays.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, metrics: LoopMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._due = clock()
        self._thread = threading.get_ident()
        self._seen: list[Holder] = []  # since the loop is late
        self._is_told = False
        self._collecting_since = 0.0
        self._collected_seconds = 0.0

    async def run(self) -> None:
        """Measure the loop's delay and collect young garbage, ten times a second; a collection counts as a delay."""
        while True:
            self._due, used = self._clock() + PERIOD_SECONDS, time.thread_time()
            collect_young()
            await asyncio.sleep(PERIOD_SECONDS)
            self.had_turn(self._clock() - self._due, time.thread_time() - used)

    def had_turn(self, late_seconds: float, cpu_seconds: float) -> None:
        """Record a delay of the loop.

        Args:
            late_seconds: the delay.
            cpu_seconds: processor time of the loop's thread since the timer was set.
        """
        cpu_seconds = min(late_seconds, cpu_seconds)
        self._metrics.lagged(max(0.0, late_seconds), max(0.0, cpu_seconds))
        if late_seconds >= STALL_SECONDS:
            holder = self._longest_seen(late_seconds)
            self._metrics.stalled(holder.kind, late_seconds)
            fields = {"seconds": round(late_seconds, 3), "cpu_seconds": round(cpu_seconds, 3)}
            logger.warning("The loop was held", extra={**fields, **_fields(holder)})
        self._seen, self._is_told, self._collected_seconds = [], False, 0.0

    def look(self, frame: FrameType | None) -> None:
        """Inspect the loop's thread, if the loop is late; called by another thread."""
        late_seconds = self._clock() - self._due
        if late_seconds < _LOOKS_SECONDS:
            return
        holder = holder_in(frame)
        self._seen.append(holder)
        if late_seconds >= STALL_SECONDS and not self._is_told:
            self._is_told = True
            fields = {"seconds": round(late_seconds, 3), **_fields(holder), "stack": stack_of(frame)}
            logger.warning("The loop is held", extra=fields)

    def look_until(self, over: threading.Event) -> None:
        """Inspect the loop periodically until `over` is set."""
        looks = 0
        while not over.wait(_LOOKS_SECONDS):
            self.look(sys._current_frames().get(self._thread))  # noqa: SLF001 - there is no other way
            looks += 1
            if looks % _LOOKS_UNTIL_NEXT == 0:
                dump_if_silent()

    def collecting(self, phase: str, _info: Mapping[str, int]) -> None:
        """Measure the time of the garbage collector: a `gc.callbacks` entry."""
        if phase == "start":
            self._collecting_since = self._clock()
        else:
            self._collected_seconds += self._clock() - self._collecting_since

    def _longest_seen(self, late_seconds: float) -> Holder:
        if self._collected_seconds > late_seconds / 2:
            return Holder(_GARBAGE, "garbage collection", "")
        if not self._seen:
            return Holder(_NOBODY, "", "")
        first = Counter((each.kind, each.what) for each in self._seen).most_common(1)[0][0]
        return next(each for each in self._seen if each[:2] == first)


def _fields(holder: Holder) -> dict[str, str]:
    return {"holder": holder.what or "nothing that has a name here", "where": holder.where}


@asynccontextmanager
async def watching_loop(metrics: LoopMetrics) -> AsyncIterator[None]:
    """Watch the running loop while the block runs, and keep its garbage collections short."""
    watch, over = LoopWatch(metrics), threading.Event()
    turns = asyncio.create_task(watch.run(), name="loop watch")
    thread = threading.Thread(target=watch.look_until, args=(over,), name="loop watch", daemon=True)
    gc.callbacks.append(watch.collecting)
    dump_if_silent()
    thread.start()
    try:
        yield
    finally:
        over.set()
        faulthandler.cancel_dump_traceback_later()
        turns.cancel()
        gc.callbacks.remove(watch.collecting)


_COMMAND_LOOKS_SECONDS: Final = 0.5
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
        while not over.wait(_COMMAND_LOOKS_SECONDS):
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
