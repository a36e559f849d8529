"""Limits the time for which an attempt holds the event loop, and stops an external plugin that exceeds the limit.

A timer of the kernel (ITIMER_REAL) watches the main thread. When a slice exceeds its budget, the attempt ends before
the next plugin is called. An external plugin is stopped immediately: an exception is raised in the main thread. It is
raised only in the plugin's own code, called by the runtime. It is not raised in the scheduler's code, which may be
changing the queue, the cache or a column; nor in scheduler or library code that the plugin called. If the plugin is in a
library, the timer waits briefly, because of the library's locks. The runtime sees a plugin that raised an exception,
which can happen at any time.

Awaited time belongs to no slice. Without the timer, off the main thread, the time is checked between plugins.

A slice is charged for its own time only. For in-tree plugins that is the thread's processor time without garbage
collection. An external plugin may also sleep, so all time counts while it runs, unless the process was stopped or waited
for the processor.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
import types
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler.errors import SchedulerError
from scheduler.framework.interface import SlowPlugin, TimeLimitError
from scheduler.framework.sliced_work import resumed
from scheduler.loop_work import calls_plugin_code

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from scheduler.framework.interface import Plugin

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_SECONDS: Final = 0.75
"""The rest of a second is for work that cannot be stopped: the current in-tree plugin, and the end of the attempt."""
LONG_SECONDS: Final = 10.0
"""The limit of an attempt over all its slices, including sliced work. DynamicResources may search for devices for the
same time by default (filterTimeout); no usual pod needs more."""
_CLEANUP_SECONDS: Final = 0.2
"""The time for Unreserve after the attempt's own budget is spent."""
_AGAIN_SECONDS: Final = 0.001
"""The next alarm after one that must not stop a plugin, and between two stops of a plugin that catches everything."""
_PATIENCE_SECONDS: Final = 0.2
"""How long the timer waits for a plugin that is in a library when its budget is spent."""
_MANY: Final = 3
"""A plugin that was stopped this many times in a row is suspended; once is enough where one event may bring thousands of
calls."""
_SAMPLE_SECONDS: Final = 0.02
"""How long an external plugin that uses little processor time is sampled: it sleeps, or other processes run."""
_OLDEST_GENERATION: Final = 2
_FIRST_REST_SECONDS: Final = 60.0
_LONGEST_REST_SECONDS: Final = 1800.0

_NEEDED: Final = frozenset({"", "PreEnqueue"})
"""Calls that pods need; without a hint they are tried again, without QueueSort in another order."""

_OURS: Final = frozenset({"scheduler", "plugins"})
_BOUNDARY: Final = "scheduler.engine.runtime."
_NEVER: Final = frozenset(
    {
        "logging",
        "threading",
        "importlib",
        "_frozen_importlib",
        "_frozen_importlib_external",
        "asyncio",
        "contextlib",
    }
)
"""Libraries in which nothing is stopped, because other code shares their locks."""


class OverBudgetError(SchedulerError):
    """An attempt, or another call of a plugin, exceeded its budget.

    Attributes:
        quarantine_duration: remaining suspension of a plugin that was not called; None if it was called.
        used_by: the plugin that used the time, if it is not the one whose call ended with this error.
    """

    reason_code = "OverBudget"

    def __init__(
        self, message: str, pause_seconds: float | None = None, used_by: Plugin | None = None
    ) -> None:
        self.pause_seconds = pause_seconds
        self.used_by = used_by
        super().__init__(message)


class PluginEndError(Exception):
    """A plugin raised an error that would have ended the calling task or the process; `__cause__` is that error."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")


class _StoppedError(BaseException):
    """Raised in a plugin; an `except Exception` in the plugin does not catch it."""


@dataclass(slots=True)
class _Record:
    """A plugin that was stopped; the record holds a reference to it, because ids are reused.

    Attributes:
        at: the call that was stopped last; only a success of that call ends the series.
    """

    plugin: Plugin
    at: str = ""
    times: int = 0
    pauses: int = 0
    paused_until: float = 0.0


@dataclass(slots=True)
class AttemptUsage:
    """The time that one attempt has used.

    Attributes:
        limit: the limit for all its slices together, in seconds.
        seconds: the thread's processor time in all slices except the first.
        longest: the longest slice that exceeded its budget, in seconds; 0 if none did.
        has_begun: whether the first slice has begun.
    """

    limit: float = inf
    seconds: float = 0.0
    longest: float = 0.0
    has_begun: bool = False


class LoopBudget:
    """The budget of one event loop; at most one in a process has the timer.

    Args:
        now: seconds of a monotonic clock.
        seconds: the budget of a slice.
        stopped: called whenever a plugin is stopped, or not called, for lack of time.
        used: seconds of processor time that this thread has used.

    Attributes:
        seconds: the budget of a slice; may be changed.
        checks: whether `call` must be used for every plugin; otherwise only for external plugins.
        running: the plugin that was called last in this slice.
        usage: usage of the attempt that the slice belongs to; None if it belongs to none.
        is_spent: whether the slice has used up its budget, so that no further plugin is called.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        seconds: float = DEFAULT_SECONDS,
        stopped: Callable[[], None] = lambda: None,
        used: Callable[[], float] = time.thread_time,
    ) -> None:
        self.seconds = seconds
        self._on_stopped = stopped
        self.checks = False
        self.running: Plugin | None = None
        self.usage: AttemptUsage | None = None
        self._now, self._used = now, used
        self._has_clock = False
        self._is_ticking = False
        # Time and CPU time of the thread when the timer was set, and its seconds.
        self._armed = (0.0, 0.0, 0.0)
        self._began: float | None = None
        self._own = 0.0  # processor seconds that the slice has certainly used, up to the last alarm
        self._sample: tuple[float, float, float] | None = None  # see `_is_its_own`
        self._waits: int | None = None  # a file with the time that the thread has waited for the processor
        self._collecting_since = self._collected = 0.0  # by the oldest generation, since the timer was set
        self._limit = seconds
        self.is_spent = False
        self._used_by: Plugin | None = None
        self._overran_since: float | None = None
        self._longest = 0.0
        self._may_stop = False
        self._records: dict[tuple[int, str], _Record] = {}

    # The timer.

    def take_clock(self) -> None:
        """Stop plugins from now on; must be called in the main thread.

        Raises:
            ValueError: this is another thread.
        """
        signal.signal(signal.SIGALRM, self._on_alarm)
        self._has_clock = True
        gc.callbacks.append(self._on_collection)
        with suppress(OSError):  # not Linux, or a kernel without this statistic
            self._waits = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def give_clock_back(self) -> None:
        """Stop no plugins any more."""
        if self._has_clock:
            self._has_clock = self._is_ticking = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            gc.callbacks.remove(self._on_collection)
            if self._waits is not None:
                os.close(self._waits)
                self._waits = None

    def _tick_in(self, seconds: float) -> None:
        self._is_ticking = True
        self._armed = self._now(), self._used(), seconds
        self._collected = 0.0
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _on_alarm(self, _number: int, frame: FrameType | None) -> None:
        self._is_ticking = False
        if self._began is None or not self._has_clock:
            return
        now = self._now()
        armed_at, before, planned = self._armed
        used = self._used()
        # Processor time before the slice began belongs to other work: at most all the time until then.
        self._own += max(0.0, used - before - self._collected - max(0.0, self._began - armed_at))
        self._armed, self._collected = (now, used, planned), 0.0
        left = self._limit - max(self._own, (now - self._began) if self._may_stop else 0.0)
        if left > 0:
            self._tick_in(max(left, _AGAIN_SECONDS))
        elif not self.is_spent and self._may_stop and not self._is_its_own(now, now - armed_at - planned):
            return
        else:
            if not self.is_spent:
                self._used_by, self._overran_since = self.running, self._began
            self.is_spent = self.checks = True
            if self._may_stop:
                self._tick_in(_AGAIN_SECONDS)
                if _may_land(frame, is_patient=-left < _PATIENCE_SECONDS):
                    raise _StoppedError

    def _is_its_own(self, now: float, late: float) -> bool:
        """Return whether the external plugin took the time: it ran, or it sleeps. If not, or not yet known, set the timer.

        A late alarm follows a call into C, which uses the processor, or a stop of the process.
        """
        if self._own >= self._limit:
            return True
        waited = self._waited()
        if late <= self._limit:
            if waited is None:
                return True
            at = now, self._used(), waited
            if self._sample is None:
                self._sample = at
                self._tick_in(_SAMPLE_SECONDS)
                return False
            seconds, used, waited = (after - before for after, before in zip(at, self._sample, strict=True))
            if seconds - used - waited > seconds / 2:
                return True
        # Up to now only its processor time counts.
        self._began, self._sample = now, None
        self._tick_in(self._limit - self._own)
        return False

    def _waited(self) -> float | None:
        """Return the seconds that the thread has waited for the processor since it began; None if unknown."""
        if self._waits is None:
            return None
        try:
            return int(os.pread(self._waits, 100, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Measure the time of the garbage collector, whatever code created the garbage: a `gc.callbacks` entry."""
        if info["generation"] == _OLDEST_GENERATION:
            if phase == "start":
                self._collecting_since = self._used()
            else:
                self._collected += self._used() - self._collecting_since

    # Time slices.

    def run_slice(self, function: Callable[..., T], *args: object, usage: AttemptUsage | None = None) -> T:
        """Call a function in a slice: the only place where a slice, and so the budget of an attempt, begins and ends.

        Args:
            function: the function.
            args: its arguments.
            usage: usage of the attempt that the slice belongs to. Its first slice, usually the only one, is not measured;
                a slice that begins after the limit was used up is over at once.
        """
        self._begin()
        is_measured, used = False, 0.0
        if usage is not None:
            self.usage, self._longest = usage, 0.0
            is_measured, usage.has_begun = usage.has_begun, True
            if is_measured:
                used = self._used()
            if usage.seconds > usage.limit:
                self.is_spent = self.checks = True
                self._limit = usage.limit
        try:
            return function(*args)
        finally:
            self._end()
            if usage is not None:
                self.usage = None
                usage.longest = max(usage.longest, self._longest)
                if is_measured:
                    usage.seconds += self._used() - used

    def run_in_slices(self, awaitable: Awaitable[T], usage: AttemptUsage | None = None) -> Awaitable[T]:
        """Return an awaitable that runs the given one in slices: each step between two waits is one slice.

        Args:
            awaitable: the awaitable to run.
            usage: usage of its attempt; see `run_slice`.
        """
        return _driven(partial(self.run_slice, usage=usage), awaitable)

    def run_after_slice(self, function: Callable[..., T], *args: object) -> T:
        """End the running slice early, and call a function: each plugin that it calls has a slice of its own."""
        self._end()
        return function(*args)

    def run_cleanup(self, function: Callable[..., object], *args: object, goes_on: bool) -> None:
        """Call a function that cleans up after an attempt, with a short time of its own, whatever was spent.

        Args:
            function: the function; it raises nothing.
            args: its arguments.
            goes_on: whether the attempt continues afterwards; it then has the full budget again.
        """
        if self._began is not None:
            self._began = None  # an alarm has no effect until all of this is set
            self._own, self._sample, self._limit, self.is_spent = 0.0, None, _CLEANUP_SECONDS, False
            self._began = self._now()
            self.checks = not self._has_clock
            if self._has_clock:
                self._tick_in(self._limit)
        function(*args)
        if goes_on and self._began is not None:
            self._begin()

    def _begin(self) -> None:
        self._own, self._sample = 0.0, None
        self._began, self._limit, self.is_spent, self.running = self._now(), self.seconds, False, None
        if not self._has_clock:
            self.checks = True
        elif not self._is_ticking:
            self._tick_in(self._limit)

    def _end(self) -> None:
        if self._overran_since is not None:
            self._longest = max(self._longest, self._now() - self._overran_since)
            self._overran_since = self._used_by = None
        self._began, self.is_spent, self.checks, self.running = None, False, False, None

    # Plugins.

    def call(
        self, plugin: Plugin, function: Callable[..., T], *args: object, often: str = "", at: str = ""
    ) -> T:
        """Call a plugin within the slice, or in a slice of its own if there is none.

        Args:
            plugin: the plugin.
            function: its method, or a function that calls it.
            args: arguments of the function.
            often: name of a call that one event may bring thousands of, as "hint". Such a call is suspended separately,
                after a single stop.
            at: name of the call, as "Filter"; stops count as a series until this call succeeds.

        Raises:
            OverBudgetError: the slice is over; the plugin was stopped, or not called. The plugin's own errors pass through.
        """
        if self._began is not None:
            return self._call(plugin, often, at, function, *args)
        result: T = self.run_slice(self._call, plugin, often, at, function, *args)
        return result

    async def awaited(self, plugin: Plugin, function: Callable[..., Any], *args: object, at: str = "") -> Any:
        """Call a plugin, and await its result if it is awaitable; the time of waiting is not counted.

        Raises:
            OverBudgetError: as `call`; work that has begun continues beyond the budget, so that it can end or be cancelled.
        """
        answer = self.call(plugin, function, *args, at=at)
        if isinstance(answer, Awaitable):
            answer = await _driven(partial(self._go_on, plugin, at), answer)
            self._ended(plugin, "", at)
        return answer

    def _call(self, plugin: Plugin, often: str, at: str, function: Callable[..., T], *args: object) -> T:
        self.refuse_spent()
        key = id(plugin), often
        if key not in self._records:
            return self._stoppable(plugin, often, at, function, *args)
        self._refuse_paused(self._records[key])
        result = self._stoppable(plugin, often, at, function, *args)
        if not isinstance(result, Awaitable):  # an awaitable has not ended yet
            self._ended(plugin, often, at)
        return result

    def _ended(self, plugin: Plugin, often: str, at: str) -> None:
        """Drop the record of a plugin that was stopped in a call that has now succeeded."""
        record = self._records.get((id(plugin), often))
        if record is not None and record.at == at:
            del self._records[id(plugin), often]

    def _go_on(self, plugin: Plugin, at: str, step: Callable[..., T], value: object) -> T:
        if self._began is not None:
            return self._stoppable(plugin, "", at, step, value)
        result: T = self.run_slice(self._stoppable, plugin, "", at, step, value)
        return result

    @calls_plugin_code
    def _stoppable(self, plugin: Plugin, often: str, at: str, function: Callable[..., T], *args: object) -> T:
        may_stop = self._may_stop
        try:
            self.running, self._may_stop = plugin, not is_ours(plugin)
            result = function(*args)
            self._may_stop = may_stop
        except _StoppedError as stopped:
            self._may_stop = may_stop
            raise self._stopped(plugin, often, at) from stopped
        except BaseException as error:
            self._may_stop = may_stop
            limit = _time_limit_error(error)
            if limit is not None:
                raise self._stopped(plugin, often, at, str(limit)) from error
            if ends_others(error):
                raise PluginEndError(error) from error
            raise
        return result

    def refuse_spent(self) -> None:
        """Check that the slice may continue.

        Raises:
            OverBudgetError: it has used up its budget; the error names the plugin that used it.
        """
        if not self.is_spent and not self._has_clock and self._began is not None:
            self.is_spent = self._now() - self._began > self._limit
            if self.is_spent:
                self._used_by, self._overran_since = self.running, self._began
        if self.is_spent:
            self._on_stopped()
            used_by = self._used_by or self.running
            name = "" if used_by is None else f' when plugin "{used_by.name}" was done'
            raise OverBudgetError(f"more than {self._limit:g}s had passed{name}", used_by=used_by)

    def _refuse_paused(self, record: _Record) -> None:
        left = record.paused_until - self._now()
        if left > 0:
            self._on_stopped()
            raise OverBudgetError(
                f"not asked: it rests for {left:.0f}s, since it was stopped again and again", left
            )

    def _stopped(self, plugin: Plugin, often: str, at: str, why: str = "") -> OverBudgetError:
        self._on_stopped()
        record = self._records.setdefault((id(plugin), often), _Record(plugin))
        record.at = at
        record.times += 1
        if often or record.times >= _MANY:
            rest = min(_FIRST_REST_SECONDS * 2**record.pauses, _LONGEST_REST_SECONDS)
            record.paused_until = self._now() + rest
            record.pauses += 1
            logger.error(
                "Plugin was stopped again and again, and rests",
                extra={"plugin": plugin.name, "seconds": rest},
            )
        return OverBudgetError(why or f"stopped: more than {self._limit:g}s had passed")

    @property
    def paused(self) -> list[str]:
        """The names of suspended plugins without which no attempt succeeds."""
        now = self._now()
        return sorted(
            record.plugin.name
            for (_, often), record in self._records.items()
            if often in _NEEDED and record.paused_until > now
        )

    def forget(self) -> None:
        """Lift all suspensions, as after a change of the configuration."""
        self._records.clear()


@types.coroutine
def _driven(run_step: Callable[..., Any], awaitable: Awaitable[T]) -> Generator[Any, Any, T]:
    """Await an awaitable; each of its steps is run by a function, which gets the step and its argument."""
    steps: Any = awaitable.__await__()
    step, value = steps.send, None
    while True:
        try:
            waits_for = run_step(step, value)
        except StopIteration as end:
            result: T = end.value
            return result
        step, value = yield from resumed(steps, waits_for)


def ends_others(error: BaseException) -> bool:
    """Return whether a plugin's error would end more than the plugin, without a request from outside the plugin."""
    if isinstance(error, asyncio.CancelledError):
        return not is_being_cancelled()  # otherwise the plugin itself cancelled something
    return not isinstance(error, Exception | KeyboardInterrupt | GeneratorExit)


def is_being_cancelled() -> bool:
    """Return whether the current task is being cancelled."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return False
    return task is not None and task.cancelling() > 0


def is_ours(plugin: Plugin) -> bool:
    """Return whether a plugin is in-tree; WebAssembly guests run in an in-tree plugin with a time limit of their own."""
    return _root(type(plugin).__module__) in _OURS


def may_pause(plugin: Plugin) -> bool:
    """Return whether the budget or the plugin's own time limit can stop it, so that `call` must be used."""
    return not is_ours(plugin) or isinstance(plugin, SlowPlugin)


def over_budget(error: BaseException | None) -> OverBudgetError | None:
    """Return the OverBudgetError that an error is or results from."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, OverBudgetError):
            return error
        status = getattr(error, "status", None)
        error = getattr(status, "error", None) or getattr(error, "cause", None) or error.__cause__
        seen += 1
    return None


def _time_limit_error(error: BaseException) -> TimeLimitError | None:
    """Return the TimeLimitError that an error is, or that it wraps for one node."""
    if not isinstance(error, TimeLimitError):
        error = getattr(error, "cause", None) or error
    return error if isinstance(error, TimeLimitError) else None


def _may_land(frame: FrameType | None, *, is_patient: bool) -> bool:
    """Return whether an exception may be raised in a frame: the runtime called the plugin, and the plugin called the rest.

    Args:
        frame: the current frame.
        is_patient: whether to exclude libraries.
    """
    above = ""  # the root of the module that the frame before called
    collecting = {_code_of(callback) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in collecting:
            return False  # an exception is ignored there, and the plugin would continue
        module = frame.f_globals.get("__name__") or ""
        root = _root(module)
        if root in _OURS:
            # The scheduler's code may have called what the plugin calls too.
            return bool(above) and module.startswith(_BOUNDARY) and not _is_library(above)
        if root in _NEVER or (is_patient and not above and _is_library(root)):
            return False
        above, frame = root, frame.f_back
    return False


def _code_of(callback: Any) -> Any:
    function = (
        callback if hasattr(callback, "__code__") else getattr(callback, "__func__", type(callback).__call__)
    )
    return getattr(function, "__code__", None)


def _is_library(root: str) -> bool:
    return root == "numpy" or root in sys.stdlib_module_names


def _root(module: str) -> str:
    return module.partition(".")[0]
