"""How long an attempt may hold the loop at a stretch, and how somebody else's plugin that goes on and on is stopped.

A clock of the kernel (ITIMER_REAL) looks after the main thread. When a stretch has taken longer than its budget, the
attempt ends before the next plugin is called. A plugin that is not ours is stopped where it is: an exception is raised in
the main thread. It may land nowhere but in the plugin's own code, called by the runtime: not in ours, which may be changing
the queue, the cache or a column; not where the plugin called ours, or a library that called back. While the plugin is in a
library, that is waited for a little, for its locks' sake. So to the runtime it is a plugin that raised, which may happen
at any time.

Time that is awaited belongs to no stretch. Without the clock, off the main thread, the time is looked at between plugins.

A stretch is charged for its own time only. Of plugins of ours that is what the thread has used of the processor, without
garbage collection. Somebody else's plugin may also sleep, so all time counts while it runs, unless the process stood still or
waited for the processor meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from scheduler.errors import SchedulerError
from scheduler.framework.slow_plugins import SlowPlugin, TimeLimitError
from scheduler.steps import resumed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from scheduler.framework.interface import Plugin

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_SECONDS: Final = 0.75
"""What is left of a second is for what cannot be stopped: the plugin of ours that is at work, and the end of the attempt."""
LONG_SECONDS: Final = 10.0
"""What an attempt may use in all its stretches, those of its long work included. As long as DynamicResources may look for
devices by default (filterTimeout): more than that no pod of the usual kind needs."""
_CLEANUP_SECONDS: Final = 0.2
"""What Unreserve has, when the attempt's own budget is spent."""
_AGAIN_SECONDS: Final = 0.001
"""How soon the clock looks again where it must not stop a plugin; how often one that catches everything is stopped again."""
_PATIENCE_SECONDS: Final = 0.2
"""How long a plugin is waited for that is in a library when its budget is spent."""
_MANY: Final = 3
"""A plugin that was stopped so many times in a row rests; where one event may bring thousands of calls, once is enough."""
_SAMPLE_SECONDS: Final = 0.02
"""How long somebody else's plugin that uses little of the processor is looked at: it sleeps, or others have the machine."""
_OLDEST_GENERATION: Final = 2
_FIRST_REST_SECONDS: Final = 60.0
_LONGEST_REST_SECONDS: Final = 1800.0

_NEEDED: Final = frozenset({"", "PreEnqueue"})
"""Calls that pods need; without a hint they are tried again, without QueueSort in another order."""

_OURS: Final = frozenset({"scheduler", "plugins"})
_BOUNDARY: Final = "scheduler.runtime."
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
"""Libraries in which nothing is stopped: their locks are others' as well."""


class OverBudgetError(SchedulerError):
    """An attempt, or another call of a plugin, did not end within its budget.

    Attributes:
        rest_seconds: None where the plugin was asked; else it was not, and rests for so long.
        used_by: the plugin that used the time, where that is not the one whose call ended with this.
    """

    def __init__(
        self, message: str, rest_seconds: float | None = None, used_by: Plugin | None = None
    ) -> None:
        self.rest_seconds = rest_seconds
        self.used_by = used_by
        super().__init__(message)


class PluginEndError(Exception):
    """A plugin raised what would have ended the task it was called in, or the process; the cause is what it raised."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")


class _StoppedError(BaseException):
    """Raised in a plugin; no `except Exception` of its author holds it up."""


@dataclass(slots=True)
class _Record:
    """A plugin that was stopped; kept with it, since ids are used again.

    Attributes:
        at: the call that was stopped last; only a success of that call ends the row.
    """

    plugin: Plugin
    at: str = ""
    times: int = 0
    rests: int = 0
    rests_until: float = 0.0


@dataclass(slots=True)
class Usage:
    """What one attempt has used.

    Attributes:
        limit: how many seconds all its stretches may take together.
        seconds: of the thread's processor time in all stretches but the first.
        longest: the longest stretch that went over its budget, in seconds; 0 if none did.
        has_begun: whether the first stretch has begun.
    """

    limit: float = inf
    seconds: float = 0.0
    longest: float = 0.0
    has_begun: bool = False


class LoopBudget:
    """The budget of the loop that it is used in; at most one of a process has the clock.

    Args:
        now: seconds of a monotonic clock.
        seconds: how long a stretch may take.
        stopped: is told whenever somebody is stopped, or not asked, for want of time.
        used: seconds of the processor that this thread has used.

    Attributes:
        seconds: likewise; may be changed.
        checks: whether `call` must be used for every plugin; else for those that are not ours.
        running: the plugin that was called last in this stretch.
        usage: of the attempt that the stretch belongs to; None where it belongs to none.
        is_spent: whether the stretch has used up its budget: the next plugin is not called.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        seconds: float = DEFAULT_SECONDS,
        stopped: Callable[[], None] = lambda: None,
        used: Callable[[], float] = time.thread_time,
    ) -> None:
        self.seconds = seconds
        self._tell_stopped = stopped
        self.checks = False
        self.running: Plugin | None = None
        self.usage: Usage | None = None
        self._now, self._used = now, used
        self._has_clock = False
        self._is_ticking = False
        self._armed = (0.0, 0.0, 0.0)  # when, CPU time of the thread then, for how long
        self._began: float | None = None
        self._own = 0.0  # seconds of the processor that the stretch has used for sure, up to the last alarm
        self._sample: tuple[float, float, float] | None = None  # see `_is_its_own`
        self._waits: int | None = None  # a file that says how long the thread has waited for the processor
        self._collecting_since = self._collected = 0.0  # by the oldest generation, since the clock was armed
        self._limit = seconds
        self.is_spent = False
        self._used_by: Plugin | None = None
        self._overran_since: float | None = None
        self._longest = 0.0
        self._may_stop = False
        self._records: dict[tuple[int, str], _Record] = {}

    # The clock.

    def take_clock(self) -> None:
        """Stop plugins from now on; to be called in the main thread.

        Raises:
            ValueError: this is another thread.
        """
        signal.signal(signal.SIGALRM, self._on_alarm)
        self._has_clock = True
        gc.callbacks.append(self._on_collection)
        with suppress(OSError):  # no Linux, or none that counts this
            self._waits = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def give_clock_back(self) -> None:
        """Stop nothing any more."""
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
        # What was used before the stretch began was used by others: at most all the time until then.
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
        """Whether somebody else's plugin took the time: it ran, or it sleeps. If not, or not known yet, the clock is armed.

        An alarm that comes late comes after a call of C, which uses the processor, or after the process was stopped.
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
        # Only what it has used of the processor counts up to now.
        self._began, self._sample = now, None
        self._tick_in(self._limit - self._own)
        return False

    def _waited(self) -> float | None:
        """Return how many seconds the thread has waited for the processor, since it began; None if nobody knows."""
        if self._waits is None:
            return None
        try:
            return int(os.pread(self._waits, 100, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Note how long the garbage collector takes, who ever made the garbage: a `gc.callbacks`."""
        if info["generation"] == _OLDEST_GENERATION:
            if phase == "start":
                self._collecting_since = self._used()
            else:
                self._collected += self._used() - self._collecting_since

    # Stretches.

    def begin(self) -> None:
        """Begin a stretch."""
        self._own, self._sample = 0.0, None
        self._began, self._limit, self.is_spent, self.running = self._now(), self.seconds, False, None
        if not self._has_clock:
            self.checks = True
        elif not self._is_ticking:
            self._tick_in(self._limit)

    def end(self) -> None:
        """End the stretch."""
        if self._overran_since is not None:
            self._longest = max(self._longest, self._now() - self._overran_since)
            self._overran_since = self._used_by = None
        self._began, self.is_spent, self.checks, self.running = None, False, False, None

    def begin_cleanup(self) -> None:
        """Let what must be undone have a little time of its own, whatever was spent."""
        if self._began is not None:
            self._began = None  # until all of this is set, an alarm means nothing
            self._own, self._sample, self._limit, self.is_spent = 0.0, None, _CLEANUP_SECONDS, False
            self._began = self._now()
            self.checks = not self._has_clock
            if self._has_clock:
                self._tick_in(self._limit)

    def end_cleanup(self) -> None:
        """Let what goes on after something was undone have the whole time again."""
        if self._began is not None:
            self.begin()

    def stretch(self, function: Callable[..., T], *args: object) -> T:
        """Call a function in a stretch of its own."""
        self.begin()
        try:
            return function(*args)
        finally:
            self.end()

    def in_stretches(self, awaitable: Awaitable[T], usage: Usage | None = None) -> Awaitable[T]:
        """Return what is awaited instead: what it does between two waits is a stretch.

        Args:
            awaitable: what is awaited.
            usage: of the attempt that this is; a stretch of one that has used up its limit is over as it begins.
        """
        by_way_of = self.stretch if usage is None else partial(self.stretch_of, usage)
        return _Steps(by_way_of, awaitable)

    def stretch_of(self, usage: Usage, function: Callable[..., T], *args: object) -> T:
        """Call a function in a stretch of an attempt; the first, which mostly is the only one, is not measured."""
        self.begin()
        self.usage = usage
        is_first, usage.has_begun = not usage.has_begun, True
        used = 0.0 if is_first else self._used()
        if usage.seconds > usage.limit:
            self.is_spent = self.checks = True
            self._limit = usage.limit
        self._longest = 0.0
        try:
            return function(*args)
        finally:
            self.end()
            self.usage = None
            usage.longest = max(usage.longest, self._longest)
            if not is_first:
                usage.seconds += self._used() - used

    # Plugins.

    def call(
        self, plugin: Plugin, function: Callable[..., T], *args: object, often: str = "", at: str = ""
    ) -> T:
        """Call a plugin within the stretch, or in one of its own where there is none.

        Args:
            plugin: whom.
            function: its method, or a function that calls it.
            args: handed on.
            often: names a call that one event may bring thousands of, as "hint". It rests apart from others, and
                after it was stopped once.
            at: names the call, as "Filter"; a plugin that was stopped there is stopped in a row until this call ends.

        Raises:
            OverBudgetError: the stretch is over; the plugin was stopped, or not asked. Beside what it raises itself.
        """
        if self._began is not None:
            return self._call(plugin, often, at, function, *args)
        result: T = self.stretch(self._call, plugin, often, at, function, *args)
        return result

    async def awaited(self, plugin: Plugin, function: Callable[..., Any], *args: object, at: str = "") -> Any:
        """Call a plugin, and await what it answers, if that is to be awaited; what it waits for is not counted.

        Raises:
            OverBudgetError: as `call`; what was begun goes on whatever was spent, so that it can end, or be cancelled.
        """
        answer = self.call(plugin, function, *args, at=at)
        if isinstance(answer, Awaitable):
            answer = await _Steps(partial(self._go_on, plugin, at), answer)
            self._ended(plugin, "", at)
        return answer

    def _call(self, plugin: Plugin, often: str, at: str, function: Callable[..., T], *args: object) -> T:
        self.refuse_spent()
        key = id(plugin), often
        if key not in self._records:
            return self._stoppable(plugin, often, at, function, *args)
        self._refuse_resting(self._records[key])
        result = self._stoppable(plugin, often, at, function, *args)
        if not isinstance(result, Awaitable):  # which has yet to be awaited
            self._ended(plugin, often, at)
        return result

    def _ended(self, plugin: Plugin, often: str, at: str) -> None:
        """Forget that a plugin was stopped in a call that now came to its end."""
        record = self._records.get((id(plugin), often))
        if record is not None and record.at == at:
            del self._records[id(plugin), often]

    def _go_on(self, plugin: Plugin, at: str, step: Callable[..., T], value: object) -> T:
        if self._began is not None:
            return self._stoppable(plugin, "", at, step, value)
        result: T = self.stretch(self._stoppable, plugin, "", at, step, value)
        return result

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
        """Do nothing while the stretch may go on.

        Raises:
            OverBudgetError: it has used up its budget; who used it is named in the error.
        """
        if not self.is_spent and not self._has_clock and self._began is not None:
            self.is_spent = self._now() - self._began > self._limit
            if self.is_spent:
                self._used_by, self._overran_since = self.running, self._began
        if self.is_spent:
            self._tell_stopped()
            used_by = self._used_by or self.running
            name = "" if used_by is None else f' when plugin "{used_by.name}" was done'
            raise OverBudgetError(f"more than {self._limit:g}s had passed{name}", used_by=used_by)

    def _refuse_resting(self, record: _Record) -> None:
        left = record.rests_until - self._now()
        if left > 0:
            self._tell_stopped()
            raise OverBudgetError(
                f"not asked: it rests for {left:.0f}s, since it was stopped again and again", left
            )

    def _stopped(self, plugin: Plugin, often: str, at: str, why: str = "") -> OverBudgetError:
        self._tell_stopped()
        record = self._records.setdefault((id(plugin), often), _Record(plugin))
        record.at = at
        record.times += 1
        if often or record.times >= _MANY:
            rest = min(_FIRST_REST_SECONDS * 2**record.rests, _LONGEST_REST_SECONDS)
            record.rests_until = self._now() + rest
            record.rests += 1
            logger.error(
                "Plugin was stopped again and again, and rests",
                extra={"plugin": plugin.name, "seconds": rest},
            )
        return OverBudgetError(why or f"stopped: more than {self._limit:g}s had passed")

    @property
    def resting(self) -> list[str]:
        """The names of plugins that rest, and without which no attempt succeeds."""
        now = self._now()
        return sorted(
            record.plugin.name
            for (_, often), record in self._records.items()
            if often in _NEEDED and record.rests_until > now
        )

    def forget(self) -> None:
        """Let all plugins be asked again, as after a change of the configuration."""
        self._records.clear()


class _Steps(Generic[T]):
    """Awaits something, and does each step of it by way of a function."""

    def __init__(self, by_way_of: Callable[..., Any], awaitable: Awaitable[T]) -> None:
        self._by_way_of = by_way_of
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._awaitable.__await__()
        step, value = steps.send, None
        while True:
            try:
                waits_for = self._by_way_of(step, value)
            except StopIteration as end:
                result: T = end.value
                return result
            step, value = yield from resumed(steps, waits_for)


def ends_others(error: BaseException) -> bool:
    """Whether a plugin's error would end more than the plugin, and nobody but the plugin wants that."""
    if isinstance(error, asyncio.CancelledError):
        return not is_being_cancelled()  # but something that the plugin asked is
    return not isinstance(error, Exception | KeyboardInterrupt | GeneratorExit)


def is_being_cancelled() -> bool:
    """Whether somebody cancels the task that this is called in."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return False
    return task is not None and task.cancelling() > 0


def is_ours(plugin: Plugin) -> bool:
    """Whether a plugin came with the scheduler; WebAssembly guests are run by ours, and stopped by their own clock."""
    return _root(type(plugin).__module__) in _OURS


def may_rest(plugin: Plugin) -> bool:
    """Whether a plugin can be stopped, by the budget or by its own time limit, and so must be called through `call`."""
    return not is_ours(plugin) or isinstance(plugin, SlowPlugin)


def over_budget(error: BaseException | None) -> OverBudgetError | None:
    """Return the error of that kind that an error is, or is due to."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, OverBudgetError):
            return error
        status = getattr(error, "status", None)
        error = getattr(status, "error", None) or getattr(error, "cause", None) or error.__cause__
        seen += 1
    return None


def _time_limit_error(error: BaseException) -> TimeLimitError | None:
    """Return the error of that kind that an error is, or that it tells of for one node."""
    if not isinstance(error, TimeLimitError):
        error = getattr(error, "cause", None) or error
    return error if isinstance(error, TimeLimitError) else None


def _may_land(frame: FrameType | None, *, is_patient: bool) -> bool:
    """Whether an exception may be raised in a frame: the runtime called the plugin, which called all up to there.

    Args:
        frame: what runs.
        is_patient: not in libraries.
    """
    above = ""  # the root of the module that the frame before called
    collecting = {_code_of(callback) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in collecting:
            return False  # what is raised there goes nowhere, and the plugin goes on
        module = frame.f_globals.get("__name__") or ""
        root = _root(module)
        if root in _OURS:
            # What ours call as well may have been called by ours.
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
