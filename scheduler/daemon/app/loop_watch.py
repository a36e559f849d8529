"""Detects that the main loop is blocked, and by what: which pod's attempt, event, plugin or request.

A thread inspects the loop's thread when the loop is late; otherwise there is no cost. Like all Python code it cannot run
while a call into C holds the interpreter lock; then the interpreter itself writes a traceback.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import FrameType

    from scheduler.daemon.metrics.loop import LoopMetrics

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
        kind: for the metric: `attempt`, `binding`, `event`, `queue`, `refresh`, `reload`, `request`, `watch`, or `other`.
        what: a description, from the outermost to the innermost work.
        where: the innermost line of Python code.
    """

    kind: str
    what: str
    where: str


def _event_in(found: Mapping[str, Any]) -> str:
    objects = found["objects"]
    about = getattr(objects[-1], "key", None) or getattr(objects[-1], "name", type(objects[-1]).__name__)
    return f"{type(found['self']).__name__}: {found['change'].__name__.strip('_')} {about}"


def _plugin_in(found: Mapping[str, Any]) -> str:
    return f"plugin {found['plugin'].name} at {found['point'].metric_name}"


def _plugin_at(what: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda found: f"plugin {found['plugin'].name} at {what}"


TERMS: Final[Mapping[tuple[str, str], tuple[str, Callable[[Mapping[str, Any]], str]]]] = {
    ("scheduler.kube.client.store", "Store.put"): (
        "watch",
        lambda found: f"{found['self'].kind} {found['identity'].key}",
    ),
    ("scheduler.engine.cycle.binding", "BindingCycle.run"): (
        "binding",
        lambda found: f"binding of pod {found['assumed'].pod.key}",
    ),
    ("scheduler.engine.cycle.event_handlers", "EventHandler._take_in"): ("event", _event_in),
    ("scheduler.engine.cycle.scheduler", "Scheduler._attempt"): (
        "attempt",
        lambda found: f"attempt at pod {found['members'][0].pod.key}",
    ),
    ("scheduler.engine.cycle.long_attempts", "LongAttempts._work"): (
        "attempt",
        lambda found: f"long attempt at pod {found['long'].pod.key}, plugin {found['long'].plugin[0].name}",
    ),
    ("scheduler.engine.cycle.scheduler", "Scheduler._work_the_queue"): (
        "queue",
        lambda _: "work of the queue",
    ),
    ("scheduler.daemon.app.generations", "Generations.reload"): ("reload", lambda _: "a new configuration"),
    ("scheduler.engine.cycle.refusal_details", "_details_of"): ("request", _plugin_at("why")),
    ("scheduler.engine.queue.hints", "Hints._helps"): (
        "queue",
        lambda found: f"hint of plugin {found['plugin']} for pod {found['queued'].pod.key}",
    ),
    ("scheduler.engine.queue.event_requeuer", "EventRequeuer.requeue"): (
        "queue",
        lambda found: f"requeueing by {found['recorded'].event.label}",
    ),
    ("scheduler.engine.runtime.calls", "PluginCalls.awaited"): ("attempt", _plugin_in),
    ("scheduler.engine.runtime.calls", "PluginCalls.guarded"): ("attempt", _plugin_in),
    ("scheduler.engine.runtime.calls", "PluginCalls.perhaps_awaited"): ("attempt", _plugin_in),
    ("scheduler.engine.runtime.calls", "PluginCalls.signature"): ("attempt", _plugin_at("signature")),
    ("scheduler.engine.runtime.calls", "PluginCalls.version"): ("attempt", _plugin_at("version")),
    ("scheduler.engine.runtime.construction", "build_plugin"): ("reload", _plugin_at("its constructor")),
    ("scheduler.engine.runtime.framework", "Framework.run_refresh"): ("refresh", _plugin_at("refresh")),
    ("scheduler.engine.runtime.registry", "Registry._load"): (
        "reload",
        lambda found: f"import of {found['reference']}",
    ),
    ("scheduler.daemon.server.http_server", "Application.answer"): (
        "request",
        lambda found: f"request {found['request'].method} {found['request'].path}",
    ),
}
"""(module, function) of named work -> its kind, and its description from the function's variables."""

_PLUGIN_CALLS: Final = frozenset(
    {
        ("scheduler.engine.runtime.budget", "LoopBudget._stoppable"),
        ("scheduler.engine.runtime.construction", "build_plugin"),
        ("scheduler.engine.runtime.registry", "Registry._load"),
    }
)
"""The functions that call the code of external plugins."""


def holder_in(frame: FrameType | None) -> Holder:
    """Return the current work of a thread."""
    kind, what, where = _NOBODY, [], ""
    while frame is not None:
        code = frame.f_code
        where = where or f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
        term = TERMS.get(_place(frame))
        if term is not None:
            kind = term[0]
            what.append(_described(term[1], frame))
        frame = frame.f_back
    return Holder(kind, ", ".join(reversed(what)), where)


def plugin_call_in(frame: FrameType | None) -> FrameType | None:
    """Return the innermost call of an external plugin; None if there is none."""
    while frame is not None and _place(frame) not in _PLUGIN_CALLS:
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


def _place(frame: FrameType) -> tuple[str, str]:
    return frame.f_globals.get("__name__", ""), frame.f_code.co_qualname


def _described(describe: Callable[[Mapping[str, Any]], str], frame: FrameType) -> str:
    try:
        return describe(frame.f_locals)
    except (AttributeError, IndexError, KeyError):
        return frame.f_code.co_qualname  # the function has only started


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
        """Measure the loop's delay ten times a second."""
        while True:
            self._due = self._clock() + PERIOD_SECONDS
            await asyncio.sleep(PERIOD_SECONDS)
            self.had_turn(self._clock() - self._due)

    def had_turn(self, late_seconds: float) -> None:
        """Record a delay of the loop."""
        self._metrics.lagged(max(0.0, late_seconds))
        if late_seconds >= STALL_SECONDS:
            holder = self._longest_seen(late_seconds)
            self._metrics.stalled(holder.kind, late_seconds)
            logger.warning("The loop was held", extra={"seconds": round(late_seconds, 3), **_fields(holder)})
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
    """Watch the running loop while the block runs."""
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
